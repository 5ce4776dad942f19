#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A novel in the page of `weir serve`, in a real headless Chromium: asked about chapter one after the last chapter, an
answer shows the passage of chapter one, and its place.

    tests/clients/page_novel.py PROGRAM [MODEL [CHAPTERS]] [--pictures FOLDER]

Reads Pride and Prejudice as `scripts/fetch-book pride` stores it, the first CHAPTERS of it, or 4 (61: all of it, some
ten minutes). Needs what page.py needs; exits with 77 (skipped) where something is missing.
"""

import os
import re
import tempfile
from pathlib import Path

from page_driver import By, Keys, Page, arguments, browser, check, until
from server import Server, model_or_skip, skip

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
BOOK = CACHE / "weir/books/pride.txt"
QUESTION = "Which young man of large fortune has taken Netherfield?"
SAID = "Netherfield is taken by a young man of large fortune"
FLAGS = ["--pot", "1024", "--policy", "weir", "--recall", "words", "--recall-disk", "16MiB"]
FLAGS += ["--temp", "0", "--repeat-penalty", "1.15", "-n", "40"]


def main():
    args = arguments(__doc__, ("model", None), ("chapters", "4"))
    chapters = int(args.chapters)
    if not BOOK.is_file():
        skip(f"no {BOOK}; scripts/fetch-book pride makes it")
    book = BOOK.read_text(encoding="utf-8")
    starts = [found.start() for found in re.finditer(r"^Chapter \d+$", book, re.MULTILINE)] + [len(book)]
    check("the book has its chapters", len(starts) == 62, len(starts))
    book = book[: starts[chapters]]
    with (
        Server(args.program, model_or_skip(args.model), FLAGS) as server,
        browser(size=(1280, 943)) as driver,
        tempfile.TemporaryDirectory() as folder,
    ):
        page = Page(driver, args.pictures)
        path = Path(folder, "Pride and Prejudice.txt")
        path.write_text(book, encoding="utf-8")

        def note():
            return (page.said("note") or [""])[-1]

        def read():
            found = re.match(r"read ([\d,]+) of", page.text("far") or note())
            return int(found[1].replace(",", "")) if found else 0

        driver.get(server.url + "/")
        until("the page is there", lambda: page.inside(".welcome"))
        page.part("file").send_keys(str(path))
        until("it says at once that it reads", lambda: note().startswith("reading "), 10)
        until("then how far it is", lambda: 0 < read() < len(book) and page.text("far").endswith(" left"), 1800)
        until("and all of it is read", page.idle, 600 + 240 * chapters)
        check("to the last character", read() == len(book) and not note().endswith("left"), note())
        check("most of which has left the pot", page.counter("tokens on disk") > 0.8 * page.counter("tokens seen"))
        check("and nothing is gone", page.counter("tokens gone") == 0, page.counter("tokens gone"))

        page.type(QUESTION, Keys.ENTER)
        folds = lambda: page.inside(".log > .answer > details.recalled")
        until("an answer has a fold below it", lambda: page.idle() and len(folds()) == 1)
        folds()[0].find_element(By.TAG_NAME, "summary").click()
        shown = re.sub(r"\s+", " ", folds()[0].text)
        check("which shows what chapter one says", SAID in shown, shown)
        # The first chapter's share of the characters, and some more: tokens of chapters differ a little in length.
        passages = driver.find_elements(By.CSS_SELECTOR, "details.recalled > blockquote")
        places = [
            (int(at.replace(",", "")), int(of.replace(",", "")))
            for at, of in re.findall(r"token ([\d,]+) of ([\d,]+), match [\d.]+", shown)
        ]
        check("every passage has its place", len(places) == len(passages) > 0, shown)
        told = [place for place, passage in zip(places, passages) if SAID in re.sub(r"\s+", " ", passage.text)]
        check("that one in chapter one", told[0][0] < 1.2 * told[0][1] * starts[1] / len(book), told)
        bottom = driver.execute_script(
            "return [document.querySelector('details.recalled').getBoundingClientRect().bottom,"
            "  document.querySelector('.log').getBoundingClientRect().bottom]"
        )
        check("opened, it is in view", bottom[0] <= bottom[1] + 1, bottom)
        page.picture("novel")
        page.content()


if __name__ == "__main__":
    main()

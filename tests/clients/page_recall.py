#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recall in the page of `weir serve`, in a real headless Chromium: an answer shows what was brought back for it.

    tests/clients/page_recall.py PROGRAM [MODEL] [--pictures FOLDER]

Needs what page.py needs; exits with 77 (skipped) where something is missing.
"""

from page_driver import By, Keys, Page, arguments, browser, check, until
from server import Server, model_or_skip

FACT = "The lighthouse keeper of Varnholm was called Ottoline Quistgaard."
FLAGS = ["--pot", "256", "--policy", "weir", "--recall", "words", "--recall-disk", "4MiB", "--recall-tokens", "128"]


def main():
    args = arguments(__doc__)
    flags = [*FLAGS, "--temp", "0", "-n", "32"]
    with Server(args.program, model_or_skip(args.model), flags) as server, browser() as driver:
        page = Page(driver, args.pictures)

        def read(text):
            page.put(text)
            page.type(Keys.CONTROL, Keys.ENTER)

        def folds():
            return page.inside(".log > .answer > details.recalled")

        driver.get(server.url + "/")
        until("the page is there", lambda: page.inside(".welcome"))
        read(FACT + " The river carries what the rain gives and keeps what it can hold." * 120)
        until("the fact has left the pot", lambda: page.idle() and page.counter("tokens on disk") > 800)
        check("nothing is gone", page.counter("tokens gone") == 0)
        before = page.pixels("states")
        page.type("Who was the lighthouse keeper of Varnholm?", Keys.ENTER)
        until("the answer has a fold below it", lambda: page.idle() and len(folds()) == 1)
        fold = folds()[0]
        check("which is closed", not fold.get_attribute("open"))
        fold.find_element(By.TAG_NAME, "summary").click()
        check("and opened shows the words", "Ottoline Quistgaard" in fold.text, fold.text)
        check("their place and how well they match", "token " in fold.text and "match " in fold.text, fold.text)
        page.picture("recall")
        page.type("Which zyzzogeton brachiated?", Keys.ENTER)
        until("an answer without says why", lambda: page.idle() and len(folds()) == 2)
        check("in words", folds()[1].text.startswith("nothing brought back"), folds()[1].text)

        page.part("settings").click()
        check("a session has recall, as the server says", driver.find_element(By.NAME, "recall").is_selected())
        driver.find_element(By.NAME, "recall").click()
        page.id("start-here").click()
        until("a session without begins", lambda: page.idle() and page.counter("tokens on disk") < 0)
        read("The river carries what the rain gives and keeps what it can hold." * 60)
        until("what leaves its pot is gone", lambda: page.idle() and page.counter("tokens forgotten") > 300)
        check("and the strip is another", page.pixels("states") != before)
        page.content()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several sessions in the page of `weir serve`, in a real headless Chromium: side by side, forked, saved and restored,
with other sampling, refused for want of room, and ended by somebody else.

    tests/clients/page_sessions.py PROGRAM [MODEL] [--pictures FOLDER]

The model is the tests' tiny one. Needs what page.py needs; exits with 77 (skipped) where something is missing.
"""

import json
import tempfile
import urllib.request
from pathlib import Path

from page_driver import By, Keys, Page, arguments, browser, check, until
from server import Server

MODEL = Path(__file__).resolve().parent.parent / "golden/models/llama.gguf"


def main():
    args = arguments(__doc__, ("model", str(MODEL)))
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--pot", "96", "-n", "12", "--snapshots", folder]
        with Server(args.program, args.model, flags) as server, browser(size=(1500, 900)) as driver:
            play(Page(driver, args.pictures), server, driver)
        crowded = ["--pot", "96", "-n", "12", "--budget", "6MiB", "--answer-pots", "1"]
        with Server(args.program, args.model, crowded) as server, browser() as driver:
            refused(Page(driver), server, driver)


def sessions(server, method="GET", path=""):
    request = urllib.request.Request(server.url + "/v1/sessions" + path, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def play(page, server, driver):
    driver.get(server.url + "/")
    until("the page is there", lambda: page.inside(".welcome"))
    check("and has begun no session", not sessions(server)["data"])
    page.type("the man and the sea", Keys.ENTER)
    until("a question is answered", lambda: page.idle() and page.said("answer"))

    page.part("settings").click()
    page.field("settings", "temperature", 0)
    page.field("settings", "max_tokens", 3)
    page.every("#settings [value=done]")[0].click()
    page.type("again", Keys.ENTER)
    until("with another sampling", lambda: page.idle() and len(page.said("answer")) == 2)
    page.type("again", Keys.ENTER)
    until("that is kept", lambda: page.idle() and len(page.said("answer")) == 3)
    page.part("settings").click()
    shown = page.driver.find_element(By.CSS_SELECTOR, "#settings [name=max_tokens]").get_attribute("value")
    check("the dialog says so", shown == "3", shown)
    page.id("sampling-default").click()
    page.every("#settings [value=done]")[0].click()

    said, seen = page.said("answer"), page.counter("tokens seen")
    page.part("fork").click()
    until("a fork stands beside it", lambda: len(page.panes()) == 2)
    page.pane = 1
    check("with the same past", page.said("answer") == said, page.said("answer"))
    until("and the same tokens", lambda: page.counter("tokens seen") == seen)
    page.type("and then", Keys.ENTER)
    until("it goes on by itself", lambda: page.idle() and len(page.said("answer")) == 4)
    page.pane = 0
    check("and the first does not", len(page.said("answer")) == 3 and page.counter("tokens seen") == seen)
    page.narrow()
    page.picture("side-by-side")

    page.part("store").click()
    page.field("store", "name", "a b")
    page.id("save").click()
    until("a bad name is refused", lambda: "'name'" in page.id("store-note").text)
    page.field("store", "name", "notes")
    page.id("save").click()
    until("a session is saved", lambda: page.id("store-note").text == "Saved as notes.")
    page.id("restore").click()
    until("and restored beside", lambda: len(page.panes()) == 3)
    page.every("#store [value=done]")[0].click()
    page.pane = 2
    until("with its tokens", lambda: page.counter("tokens seen") == seen)
    check("the server has three", len(sessions(server)["data"]) == 3)

    # A session that somebody else began is looked at, and left alone.
    urllib.request.urlopen(urllib.request.Request(server.url + "/v1/sessions", method="POST", data=b'{"pot": 64}'))
    page.part("store").click()
    until("others are listed", lambda: page.id("open-session").is_enabled())
    page.id("open-session").click()
    until("and opened", lambda: len(page.panes()) == 4)
    page.every("#store [value=done]")[0].click()
    page.pane = 3
    check("with a pot of its own", "pot of 64" in page.text("facts"), page.text("facts"))
    page.part("close").click()
    until("closing it", lambda: len(page.panes()) == 3)
    check("ends nothing", len(sessions(server)["data"]) == 4)
    page.pane = 2
    page.part("close").click()
    until("closing one of the page's", lambda: len(page.panes()) == 2)
    until("ends it", lambda: len(sessions(server)["data"]) == 3)

    page.pane = 1
    for one in sessions(server)["data"]:
        if one["pot"] == 96:
            sessions(server, "DELETE", "/" + one["id"])
    page.type("who?", Keys.ENTER)
    until("a session that has ended is said to", lambda: any("has ended" in note for note in page.said("note")))
    until("without an answer", page.idle)
    page.type("who?", Keys.ENTER)
    until("and the next question begins another", lambda: page.idle() and len(page.said("answer")) == 5)

    driver.set_window_size(420, 800)
    page.pane = 0
    until("a narrow screen has tabs", lambda: len(page.every("#tabs button")) == 2)
    check("and shows one session", sum(pane.is_displayed() for pane in page.panes()) == 1)
    page.every("#tabs button")[0].click()
    until("the other comes by its tab", lambda: page.panes()[0].is_displayed())
    driver.get("about:blank")
    until("leaving the page ends what it began", lambda: all(one["pot"] == 64 for one in sessions(server)["data"]))


def refused(page, server, driver):
    driver.get(server.url + "/")
    until("the page is there", lambda: page.inside(".welcome"))
    page.type("the man and the sea", Keys.ENTER)
    until("a question is answered", lambda: page.idle() and page.said("answer"))
    said = page.text("log")
    page.part("settings").click()
    pot = 96
    while pot < 100000 and not page.id("end-first").is_displayed():  # until the old and the new do not fit together
        pot += pot // 4
        page.field("settings", "pot", pot)
        page.id("start-here").click()
        until(
            f"a pot of {pot} is answered",
            lambda: page.id("start-here").is_enabled() or not page.id("settings").is_displayed(),
        )
        if not page.id("settings").is_displayed():
            said = page.text("log")
            page.part("settings").click()
    check("for want of room one is refused", page.id("end-first").is_displayed(), page.id("settings-error").text)
    check("and the conversation stays", page.text("log") == said)
    page.id("end-first").click()
    until("the one before can be ended first", lambda: f"pot of {pot:,}" in page.text("facts"))
    check("there is one session", len(sessions(server)["data"]) == 1)


if __name__ == "__main__":
    main()

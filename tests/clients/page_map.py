#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The map of what is held in the page of `weir serve`, explored with mouse and keyboard in a real headless Chromium.

    tests/clients/page_map.py PROGRAM [MODEL] [--pictures FOLDER]

The model is the tests' tiny one. Needs what page.py needs; exits with 77 (skipped) where something is missing.
"""

from pathlib import Path

from page_driver import Keys, Page, arguments, browser, check, until
from selenium.webdriver.common.action_chains import ActionChains
from server import Server

MODEL = Path(__file__).resolve().parent.parent / "golden/models/llama.gguf"
FACT = "The lighthouse keeper of Varnholm was called Ottoline Quistgaard. "


def main():
    args = arguments(__doc__, ("model", str(MODEL)))
    flags = ["--pot", "96", "--policy", "streaming_llm", "-n", "12", "--recall", "words"]
    with Server(args.program, args.model, flags) as server, browser() as driver:
        page = Page(driver, args.pictures)
        driver.get(server.url + "/")
        until("the page is there", lambda: page.inside(".welcome"))
        page.put("The sea and the man. " + FACT + "The man and the sea. " * 300)
        page.part("read").click()
        until("a text is read", lambda: page.idle() and page.counter("tokens on disk") > 500)
        seen = page.counter("tokens seen")

        def value(name):
            return page.part("scrub").get_attribute("aria-" + name)

        def now():
            return int(value("valuenow"))

        def state():
            found = page.inside(".lens [data-state]")
            return found[0].get_attribute("data-state") if found else ""

        until("the axis has the whole stream", lambda: value("valuemax") == str(seen - 1))
        ActionChains(driver).move_to_element(page.part("map")).perform()
        until("the mouse shows a place", lambda: abs(now() - seen // 2) < seen // 6)
        until("that is on disk", lambda: state() == "on_disk")
        check("with its words", "The man and the sea" in page.text("lens"), page.text("lens"))
        check("and its age", "tokens ago (" in page.text("lens"), page.text("lens"))
        drawn = page.pixels("map")

        scrub = page.part("scrub")
        scrub.send_keys(Keys.END)
        until("End is the newest token", lambda: now() == seen - 1 and state() == "held")
        check("which layers hold", "layers" in page.text("lens"), page.text("lens"))
        scrub.send_keys(Keys.HOME)
        until("Home is the first, which streaming_llm holds, too", lambda: now() == 0 and state() == "held")
        scrub.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT, Keys.NULL)
        until("an arrow with Shift goes one token", lambda: now() == 1)
        scrub.send_keys(Keys.PAGE_DOWN)
        check("Page Down does not go below 0", now() >= 0)
        scrub.send_keys(Keys.PAGE_UP)
        until("Page Up goes far", lambda: now() > seen // 20)
        check("moving draws no chart", page.pixels("map") == drawn)
        until(
            "a screen reader hears the place and the words",
            lambda: "on disk" in value("valuetext") and ": " in value("valuetext"),
        )

        scrub.send_keys(Keys.HOME)
        for _ in range(6):
            page.part("zoom-in").click()
        until("it can be zoomed", lambda: page.text("range").startswith("tokens 0 to "))
        until("and is drawn anew", lambda: page.pixels("map") != drawn)
        until("up to single tokens", lambda: int(page.text("range").split()[-1]) <= 64)
        for _ in range(12):
            scrub.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT, Keys.NULL)
        until("there the fact is found", lambda: state() == "on_disk" and "Ottoline Quistgaard" in page.text("lens"))
        page.picture("map")
        scrub.send_keys("0")
        until("0 shows all again", lambda: not page.text("range"))
        page.content()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `weir serve` for everybody, in a real headless Chromium: without a finding of axe, with the keyboard
alone, on a phone, in the dark, without a network, and at once.

    tests/clients/page_access.py PROGRAM [MODEL MMPROJ] [--pictures FOLDER]

The models are the tiny pair of the tests. Needs what page.py needs, and the Python package `axe-playwright-python` or
`axe-selenium-python` for the file of axe in it; exits with 77 (skipped) where something is missing.
"""

import importlib.util
import json
from pathlib import Path

from page_driver import Keys, Page, arguments, browser, check, until
from server import Server, skip

VISION = Path(__file__).resolve().parent.parent / "golden/vision"
RIVER = "The river carries what the rain gives and keeps what it can hold. "
FIRST_PAINT_MS = 1000


def axe_file():
    for package in ("axe_playwright_python", "axe_selenium_python"):
        found = importlib.util.find_spec(package)
        for folder in found.submodule_search_locations if found else []:
            for path in Path(folder).rglob("axe.min.js"):
                return path.read_text(encoding="utf-8")
    skip("axe-playwright-python is not installed")


def main():
    args = arguments(__doc__, ("model", str(VISION / "llava.gguf")), ("mmproj", str(VISION / "clip.gguf")))
    axe = axe_file()
    flags = ["--pot", "320", "-n", "24", "--mmproj", args.mmproj, "--recall", "words"]
    with Server(args.program, args.model, flags) as server, browser() as driver:
        page = Page(driver, args.pictures)

        def findings(what):
            driver.execute_script(axe)
            found = driver.execute_async_script(
                "const done = arguments[0];"
                "axe.run().then((r) => done(r.violations.map((v) => [v.id, v.nodes.map((n) => n.target.join(' ') + "
                "': ' + n.failureSummary)])), (e) => done([String(e)]))"
            )
            check(f"axe finds nothing: {what}", not found, json.dumps(found, indent=1))

        def dark(on):
            value = "dark" if on else "light"
            driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": value}]}
            )

        driver.get(server.url + "/")
        until("the page is there", lambda: page.inside(".welcome"))
        driver.refresh()  # the first visit also warmed the browser itself up
        until("the page is there again", lambda: page.inside(".welcome"))
        paints = driver.execute_script("return performance.getEntriesByType('paint').map((p) => [p.name, p.startTime])")
        check("it is seen at once", paints and all(ms < FIRST_PAINT_MS for _, ms in paints), paints)
        findings("the opening")
        page.put(RIVER * 60)
        page.type(Keys.CONTROL, Keys.ENTER)
        until("a text is read", lambda: page.idle() and page.counter("tokens on disk") > 100)
        page.type("What does the river carry?", Keys.ENTER)
        until("a question is answered", lambda: page.idle() and page.said("answer"))
        page.part("when").send_keys("What? => a", Keys.ENTER)
        until("a rule watches", lambda: page.inside(".rules li"))
        page.part("scrub").send_keys(Keys.HOME)
        until("the lens is open", lambda: page.inside(".lens [data-state]"))
        findings("a conversation")
        dark(True)
        findings("in the dark")
        page.part("settings").click()
        findings("the settings")
        page.every("#settings [value=done]")[0].click()
        page.part("store").click()
        findings("the list of sessions")
        page.every("#store [value=done]")[0].click()

        # Charts have colours of their own: they change with the page, and with the button against the system.
        light = 'return arguments[0].getContext("2d").getImageData(arguments[0].width - 3, 3, 1, 1).data[0] > 127'
        until("charts are dark with the page", lambda: not driver.execute_script(light, page.part("memory-chart")))
        page.id("theme").click()
        until("one click is dark", lambda: page.id("theme").text == "Theme: dark")
        page.id("theme").click()
        until("another one light", lambda: driver.execute_script(light, page.part("memory-chart")))
        check(
            "with all of the page",
            driver.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)",
        )
        page.id("theme").click()
        until("a third is as the system says", lambda: not driver.execute_script(light, page.part("memory-chart")))
        page.picture("dark")
        dark(False)

        page.part("fork").click()
        until("a second session is beside", lambda: len(page.panes()) == 2)
        findings("two sessions")
        page.pane = 1
        page.part("close").click()
        page.pane = 0

        # The keyboard alone reaches every control that can be used, and sees where it is.
        reached = set()
        driver.execute_script("document.activeElement.blur()")
        for _ in range(60):
            driver.switch_to.active_element.send_keys(Keys.TAB)
            reached.add(
                driver.execute_script("const e = document.activeElement; return e.id || e.dataset.part || e.tagName")
            )
        wanted = {
            "new",
            "theme",
            "settings",
            "fork",
            "store",
            "close",
            "log",
            "text",
            "send",
            "attach",
            "scrub",
            "zoom-in",
            "when",
        }
        check("Tab reaches everything", wanted <= reached, wanted - reached)

        for width, height in ((360, 640), (412, 915)):
            driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True},
            )
            until("a phone shows the conversation alone", lambda: not page.part("memory").is_displayed())
            high = driver.execute_script("return [arguments[0].clientHeight, innerHeight]", page.part("log"))
            check(f"with most of the height of {height} pixels", high[0] > 0.55 * high[1], high)
            page.narrow()
            findings(f"a phone, {width} wide")
            page.part("show-memory").click()
            until("the memory comes by its button", lambda: page.part("memory").is_displayed())
            high = driver.execute_script("return arguments[0].clientHeight", page.part("log"))
            check("and leaves room to talk", high > 100, high)
            findings("a phone with its memory")
            page.picture(f"phone-{width}")
            page.part("show-memory").click()
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        loaded = driver.execute_script("return performance.getEntriesByType('resource').map((r) => r.name)")
        check("all of it comes from the server", all(name.startswith(server.url) for name in loaded), loaded)
        page.content()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `weir serve` in a real headless Chromium: the key, an answer, a long text, the map, and what is refused.

    tests/clients/page.py PROGRAM [MODEL] [--pictures FOLDER]

Needs the Python package `selenium`, `chromium` and `chromedriver`; exits with 77 (skipped) where one is missing.
What the tests of the page share is in page_driver.py.
"""

import time

from page_driver import Keys, Page, arguments, browser, check, until
from server import Server, model_or_skip

RIVER = "The river carries what the rain gives and keeps what it can hold. "
MARKDOWN = (
    "# T\n\n**b** *i* `c<d>`\n- one\n- two\n\n```\n<script>x()</script>\n```\n<b onclick=1>no</b> [l](javascript:x)"
)


def main():
    args = arguments(__doc__)
    flags = ["--pot", "256", "--policy", "streaming_llm", "--api-key", "secret", "-n", "24"]
    with Server(args.program, model_or_skip(args.model), flags) as server, browser() as driver:
        page = Page(driver, args.pictures)
        driver.get(server.url + "/")
        until("it asks for the key", lambda: page.id("key").is_displayed())
        page.id("key").send_keys("wrong", Keys.TAB)
        until(
            "and again, where it is wrong", lambda: page.id("key").is_displayed() and page.every("#panes [role=alert]")
        )
        page.id("key").clear()
        page.id("key").send_keys("secret", Keys.TAB)
        until("then it says what this is", lambda: "memory that does not grow" in page.text("log"))
        check("and what to do", len(page.every(".welcome .cards button")) == 3)
        page.picture("begin")

        page.type("Name a river. <img src=x onerror=\"document.title='broken'\">", Keys.ENTER)
        until(
            "an answer is written",
            lambda: page.idle() and page.said("answer") and page.said("answer")[0] not in ("", "…"),
        )
        check("the question is text, not markup", "<img src=x" in page.said("user")[0] and driver.title == "weir")
        check("the opening is gone", not page.every(".welcome"))
        # What a model might say, through the same way that its answers take.
        shown = page.module(
            "/page/markdown.js",
            "const d = document.createElement('div'); module.markdown(given, d);"
            "return [d.innerHTML, d.querySelectorAll('script, b, a, img').length]",
            MARKDOWN,
        )
        check(
            "Markdown is drawn",
            all(t in shown[0] for t in ("<strong>b</strong>", "<em>i</em>", "<li>one</li>", "<pre>")),
            shown,
        )
        check("and markup is not", shown[1] == 0, shown)

        check("nothing is forgotten yet", page.counter("tokens forgotten") == 0)
        before = page.pixels("map")
        page.put(RIVER * 60)
        page.part("text").send_keys(Keys.CONTROL, Keys.ENTER)
        until(
            "a long text is read and forgotten in part", lambda: page.idle() and page.counter("tokens forgotten") > 300
        )
        check("the map changed", page.pixels("map") != before)
        check("and holds no more than the pot", page.counter("tokens held") <= 256)
        label = page.part("memory-chart").get_attribute("aria-label")
        check("the memory chart says its figures", "tokens" in label and "MiB" in label, label)
        page.picture("forgotten")

        page.type("And then?", Keys.ENTER)
        until("it goes on answering", lambda: page.idle() and len(page.said("answer")) == 2)
        page.type("Count to a hundred.", Keys.ENTER)
        page.part("text").send_keys(Keys.ESCAPE)
        until("Escape gives the keyboard back", page.idle)

        page.put(RIVER * 3000)
        page.part("read").click()
        until("while a text is read a bar shows how far it is", lambda: 0 < page.progress() < 1)
        until("with figures", lambda: "tokens a second" in page.text("far") and " left" in page.text("far"))
        far = page.progress()
        until("and moves", lambda: page.progress() > far)
        page.part("stop").click()
        until("Stop ends it", lambda: page.idle() and not page.part("progress").is_displayed(), 10)
        check("and it is said", page.said("note")[-1] == "stopped", page.said("note"))
        time.sleep(1.5)
        seen = page.counter("tokens seen")
        page.type("Who?", Keys.ENTER)
        until("questions are answered after it", lambda: page.idle() and len(page.said("answer")) >= 3)
        check(
            "and nothing was read in between",
            page.counter("tokens seen") < seen + 200,
            (seen, page.counter("tokens seen")),
        )

        said = page.text("log")
        page.part("settings").click()
        page.field("settings", "pot", 60000000)
        page.id("start-here").click()
        until("a pot that is refused says why", lambda: "budget" in page.id("settings-error").text)
        check("and changes nothing", page.text("log") == said)
        page.choose("policy", "tova")
        page.field("settings", "pot", 128)
        page.id("start-here").click()
        until("another policy and pot begin another session", lambda: "tova, pot of 128" in page.text("facts"))
        until("that remembers nothing", lambda: page.counter("tokens seen") < 100 and not page.said("user"))
        page.put(RIVER * 40)
        page.part("text").send_keys(Keys.CONTROL, Keys.ENTER)
        until("layers choose by themselves", lambda: page.idle() and page.counter("selections") > 0)
        page.picture("layers")
        loaded = driver.execute_script("return performance.getEntriesByType('resource').map((r) => r.name)")
        check("it talks to its server alone", all(name.startswith(server.url) for name in loaded), loaded)
        page.content()


if __name__ == "__main__":
    main()

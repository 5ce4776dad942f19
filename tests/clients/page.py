#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `weir serve` in a real headless Chromium.

    tests/clients/page.py PROGRAM [MODEL] [--pictures FOLDER]

Needs the Python package `selenium`, `chromium` and `chromedriver`; exits with 77 (skipped) where one is missing.
"""

import argparse
import shutil
import time

from server import Server, model_or_skip, skip

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service  # by this name in Debian 12's selenium, too
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    skip("the Python package selenium is not installed")

WAIT_S = 300


def until(what, holds, wait_s=WAIT_S):
    end = time.monotonic() + wait_s
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"WRONG not within {wait_s} s: {what}")
        time.sleep(0.2)
    print("ok    " + what)


def check(what, holds, shown=""):
    print(("ok    " if holds else "WRONG ") + what + (f": {shown!r}" if not holds else ""))
    if not holds:
        raise SystemExit(1)


class Page:
    def __init__(self, driver):
        self.driver = driver

    def find(self, name):
        return self.driver.find_element(By.ID, name)

    def idle(self):
        return self.find("send").is_enabled()

    def counter(self, name):
        found = self.driver.find_elements(By.CSS_SELECTOR, f"dd[data-name='{name}']")
        return int(found[0].text) if found else -1

    def said(self, kind):
        return [e.text for e in self.driver.find_elements(By.CSS_SELECTOR, "#log > ." + kind)]

    def pixels(self, name):
        return self.driver.execute_script(
            "const c = document.getElementById(arguments[0]);"
            "return c.getContext('2d').getImageData(0, 0, c.width, c.height).data"
            ".reduce((a, b) => (a * 33 + b) % 1000000007, 1)",
            name,
        )

    def memory_line(self):
        """Bytes of this session, as the page has drawn them over time."""
        return self.driver.execute_script("return state.seen.map((p) => [p.seen, p.bytes, p.unbounded])")


def browser():
    """A headless Chromium; skips where there is none."""
    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver_path:
        skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,860",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=driver_path))
    driver.set_script_timeout(WAIT_S)
    return driver


def complaints(driver):
    return [e for e in driver.get_log("browser") if e["level"] == "SEVERE" and "401" not in e["message"]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--pictures", help="folder for screenshots")
    args = parser.parse_args()
    flags = ["--pot", "256", "--policy", "streaming_llm", "--api-key", "secret", "-n", "24"]
    with Server(args.program, model_or_skip(args.model), flags) as server, browser() as driver:
        page = Page(driver)

        def picture(name):
            if args.pictures:
                driver.save_screenshot(f"{args.pictures}/{name}.png")

        driver.get(server.url + "/")
        until("it asks for the key", lambda: page.find("key").is_displayed())
        page.find("key").send_keys("secret", Keys.TAB)
        until("then it names the policies", lambda: len(page.find("policy").find_elements(By.TAG_NAME, "option")) > 5)
        check("and the server's own is chosen", page.find("policy").get_attribute("value").startswith("streaming_llm"))

        check("an empty page says what to do", "read a file" in "".join(page.said("note")), page.said("note"))
        page.find("text").send_keys("Name a river. <img src=x onerror=\"document.title='broken'\">", Keys.ENTER)
        until(
            "an answer is written",
            lambda: page.idle() and page.said("answer") and page.said("answer")[0] not in ("", "…"),
        )
        check("the question is text, not markup", "<img src=x" in page.said("user")[0] and driver.title == "weir")
        # What a model might say, through the same way that its answers take.
        shown = driver.execute_script(
            "const d = document.createElement('div');"
            "markdown('# T\\n\\n**b** *i* `c<d>`\\n- one\\n- two\\n\\n```\\n<script>x()</script>\\n```\\n<b "
            "onclick=1>no</b> [l](javascript:x)', d);"
            "return [d.innerHTML, d.querySelectorAll('script, b, a, img').length]"
        )
        check(
            "Markdown is drawn",
            all(t in shown[0] for t in ("<strong>b</strong>", "<em>i</em>", "<li>one</li>", "<pre>")),
            shown,
        )
        check("and markup is not", shown[1] == 0, shown)

        dropped, before = page.counter("tokens forgotten"), page.pixels("map")
        check("nothing is forgotten yet", dropped == 0, dropped)
        picture("page-begin")
        driver.execute_script(
            "document.getElementById('text').value = arguments[0]",
            "The river carries what the rain gives and keeps what it can hold. " * 60,
        )
        page.find("text").send_keys(Keys.CONTROL, Keys.ENTER)
        until(
            "a long text is read and forgotten in part", lambda: page.idle() and page.counter("tokens forgotten") > 300
        )
        check("the map changed", page.pixels("map") != before)
        check("and holds no more than the pot", page.counter("tokens held") <= 256)
        line = page.memory_line()
        check("the memory line is flat", len({bytes_ for _, bytes_, _ in line}) == 1 and len(line) >= 2, line)
        check("while the other one climbs", line[-1][2] > line[0][2], line)
        picture("page-forgotten")

        page.find("text").send_keys("And then?", Keys.ENTER)
        until("it goes on answering", lambda: page.idle() and len(page.said("answer")) == 2)
        page.find("text").send_keys("Count to a hundred.", Keys.ENTER, Keys.ESCAPE)
        until("Escape gives the keyboard back", page.idle)

        driver.execute_script(  # while the page asks, slowly, what the session holds
            "window.quick = fetch;"
            "window.fetch = async (path, options) => {"
            "  if (path.endsWith('/held')) await new Promise((done) => setTimeout(done, 500));"
            "  return quick(path, options);"
            "};"
            "look();"
            "const p = document.getElementById('policy');"
            "p.value = [...p.options].find((o) => o.value === 'tova').value; p.dispatchEvent(new Event('change'))"
        )
        until(
            "another policy begins another session", lambda: page.idle() and any("tova" in t for t in page.said("note"))
        )
        driver.execute_script("window.fetch = quick")
        check("that remembers nothing", page.counter("tokens held") < 100)
        driver.execute_script(
            "document.getElementById('text').value = arguments[0]",
            "The river carries what the rain gives and keeps what it can hold. " * 40,
        )
        page.find("text").send_keys(Keys.CONTROL, Keys.ENTER)
        until("layers choose by themselves", lambda: page.idle() and page.counter("selections") > 0)
        picture("page-layers")

        driver.set_window_size(420, 800)
        wide = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        check("a narrow screen needs no scrolling sideways", wide[0] <= wide[1], wide)
        high = driver.execute_script("return [document.getElementById('log').clientHeight, innerHeight]")
        check("and most of it is the conversation", high[0] > 0.4 * high[1], high)
        ends = driver.execute_script(
            "return [document.getElementById('form').getBoundingClientRect().bottom, innerHeight,"
            "  document.querySelector('aside').getBoundingClientRect().top, document.documentElement.scrollHeight]"
        )
        check("with its buttons, and with the memory below", ends[0] <= ends[2] < ends[1] < ends[3], ends)
        picture("page-narrow")
        back = "return getComputedStyle(document.body).backgroundColor"
        light = driver.execute_script(back)
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        )
        check("a dark screen is dark", driver.execute_script(back) != light)
        first = "return document.getElementById('states').getContext('2d').getImageData(0, 0, 1, 1).data[0]"
        until("and its pictures, too", lambda: driver.execute_script(first) == 0x58)  # --held
        driver.set_window_size(1200, 860)
        picture("page-dark")
        driver.execute_script(
            "const p = document.getElementById('pot'); p.value = 128; p.dispatchEvent(new Event('change'))"
        )
        until(
            "another pot begins another session, too",
            lambda: page.idle() and any("a pot of 128" in t for t in page.said("note")),
        )
        loaded = driver.execute_script("return performance.getEntriesByType('resource').map((r) => r.name)")
        check("it talks to its server alone", all(name.startswith(server.url) for name in loaded), loaded)
        wrong = complaints(driver)
        check("the browser had nothing to complain about", not wrong, wrong)


if __name__ == "__main__":
    main()

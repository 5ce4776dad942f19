# SPDX-License-Identifier: Apache-2.0
"""What the browser tests of the page share: a headless Chromium, and the page's parts by their names."""

import argparse
import shutil
import time

from server import skip

try:
    from selenium import webdriver
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.chrome.service import Service  # by this name in Debian 12's selenium, too
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    skip("the Python package selenium is not installed")

__all__ = ["By", "Keys", "Page", "arguments", "browser", "check", "until"]

WAIT_S = 120


def until(what, holds, wait_s=WAIT_S):
    end = time.monotonic() + wait_s

    def held():
        try:
            return holds()
        except StaleElementReferenceException:  # the page drew it anew meanwhile
            return False

    while not held():
        if time.monotonic() > end:
            raise SystemExit(f"WRONG not within {wait_s} s: {what}")
        time.sleep(0.1)
    print("ok    " + what, flush=True)


def check(what, holds, shown=""):
    print(("ok    " if holds else "WRONG ") + what + (f": {shown!r}" if not holds else ""), flush=True)
    if not holds:
        raise SystemExit(1)


def arguments(about, *more):
    parser = argparse.ArgumentParser(description=about.split("\n", 1)[0])
    parser.add_argument("program")
    for name in more:
        parser.add_argument(name[0], nargs="?", default=name[1])
    if not more:
        parser.add_argument("model", nargs="?")
    parser.add_argument("--pictures", help="folder for screenshots")
    return parser.parse_args()


def browser(*flags, size=(1200, 860)):
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
        f"--window-size={size[0]},{size[1]}",
        *flags,
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(executable_path=driver_path))
    driver.set_script_timeout(WAIT_S)
    return driver


class Page:
    """`pane` is the session that its methods are about: 0 is the first on the page."""

    def __init__(self, driver, pictures=None):
        self.driver, self.pictures, self.pane = driver, pictures, 0

    def id(self, name):
        return self.driver.find_element(By.ID, name)

    def panes(self):
        return self.driver.find_elements(By.CSS_SELECTOR, "#panes > .pane")

    def every(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def inside(self, selector):
        panes = self.panes()
        return panes[self.pane].find_elements(By.CSS_SELECTOR, selector) if len(panes) > self.pane else []

    def part(self, name):
        return self.inside(f"[data-part='{name}']")[0]

    def text(self, name):
        found = self.inside(f"[data-part='{name}']")
        return found[0].text if found else ""

    def said(self, kind):
        return [e.text for e in self.inside(".log > ." + kind)]

    def idle(self):
        return self.part("send").is_enabled()

    def counter(self, name):
        found = self.inside(f"dd[data-name='{name}']")
        text = found[0].get_attribute("textContent") if found else ""
        return int(text) if text else -1

    def progress(self):
        return float(self.part("bar").get_attribute("value") or 0) if self.part("progress").is_displayed() else 0

    def type(self, *keys):
        self.part("text").send_keys(*keys)

    def put(self, text):
        """A long text, without typing it."""
        self.driver.execute_script("arguments[0].value = arguments[1]", self.part("text"), text)

    def field(self, form, name, value):
        """A field of a dialog."""
        element = self.driver.find_element(By.CSS_SELECTOR, f"#{form} [name='{name}']")
        element.clear()
        element.send_keys(str(value))

    def choose(self, name, text):
        self.driver.execute_script(
            "const s = document.querySelector('#settings [name=' + arguments[0] + ']');"
            "s.value = [...s.options].find((o) => o.textContent === arguments[1]).value;"
            "s.dispatchEvent(new Event('change'))",
            name,
            text,
        )

    def module(self, path, code, given=None):
        """Runs `code` with one of the page's modules as `module`, and `given`."""
        return self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1], given = arguments[1];"
            "import(arguments[0]).then((module) => { " + code + " }).then(done)",
            path,
            given,
        )

    def pixels(self, name):
        """A sum of a canvas's pixels, another one where it was drawn otherwise."""
        return self.driver.execute_script(
            "const c = arguments[0];"
            "return c.getContext('2d').getImageData(0, 0, c.width, c.height).data"
            ".reduce((a, b) => (a * 33 + b) % 1000000007, 1)",
            self.part(name),
        )

    def picture(self, name):
        if self.pictures:
            self.driver.save_screenshot(f"{self.pictures}/{name}.png")

    def narrow(self):
        """That nothing sticks out of the window."""
        # A phone's window grows with what sticks out (innerWidth).
        page = "document.documentElement"
        wide = self.driver.execute_script(f"return [{page}.scrollWidth, {page}.clientWidth]")
        check("nothing sticks out", wide[0] <= wide[1], wide)

    def content(self):
        """That the browser had nothing to complain about."""
        wrong = [
            e
            for e in self.driver.get_log("browser")
            if e["level"] == "SEVERE" and " 401 " not in e["message"] and " 400 " not in e["message"]
        ]
        check("the browser had nothing to complain about", not wrong, wrong)

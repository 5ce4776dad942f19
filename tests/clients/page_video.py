#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A video that plays in the page of `weir serve` while questions are asked, in a real headless Chromium.

    tests/clients/page_video.py PROGRAM [MODEL MMPROJ] [--pictures FOLDER]

Plays a real clip of the folder that WEIR_DATA names; the models are the tiny pair of the tests. Needs what page.py
needs; exits with 77 (skipped) where something is missing.
"""

import argparse
import os
from pathlib import Path

from page import Page, browser, check, complaints, until
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from server import Server, skip

VISION = Path(__file__).resolve().parent.parent / "golden/vision"


def data(name):
    path = Path(os.environ.get("WEIR_DATA", "")) / name
    if not os.environ.get("WEIR_DATA") or not path.is_file():
        skip(f"no {name} in the folder that WEIR_DATA names")
    return str(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model", nargs="?", default=str(VISION / "llava.gguf"))
    parser.add_argument("mmproj", nargs="?", default=str(VISION / "clip.gguf"))
    parser.add_argument("--pictures", help="folder for screenshots")
    args = parser.parse_args()
    clip, picture = data("video/bikes.mp4"), data("images/chelsea.png")
    flags = ["--pot", "320", "--policy", "streaming_llm", "-n", "24", "--mmproj", args.mmproj]
    with Server(args.program, args.model, flags) as server, browser() as driver:
        page = Page(driver)
        driver.get(server.url + "/")
        until("it names the policies", lambda: len(page.find("policy").find_elements(By.TAG_NAME, "option")) > 5)

        def playing():
            return driver.execute_script(
                "const v = document.getElementById('video'); return v.paused ? -1 : v.currentTime"
            )

        page.find("file").send_keys(clip)
        until("the clip plays", lambda: playing() > 0)
        until("frames of it are looked at", lambda: page.counter("frames looked at") >= 2)
        before = page.pixels("map")

        page.find("text").send_keys("What comes down the hill?", Keys.ENTER)
        check("it plays while the question is asked", playing() > 0)
        stamps = lambda: [
            int(e.get_attribute("data-ms")) for e in driver.find_elements(By.CSS_SELECTOR, "#log > .answer time")
        ]
        until("the answer says the moment it is about", lambda: page.idle() and len(stamps()) == 1)
        shown = driver.find_element(By.CSS_SELECTOR, "#log > .answer").text
        check("beside its words", shown.startswith("[0:0") and len(shown) > len("[0:00.0] "), shown)
        moment = driver.execute_script("return document.getElementById('video').currentTime")
        check("which the clip has shown", 0 < stamps()[0] <= moment * 1000, (stamps(), moment))

        driver.execute_script(
            "const f = document.getElementById('fps'); f.value = 4; f.dispatchEvent(new Event('change'));"
            "const v = document.getElementById('video'); v.loop = true; v.play()"
        )
        until("frames push others out", lambda: page.counter("tokens forgotten") > 100)
        check("the map changed", page.pixels("map") != before)
        check("and holds no more than the pot", page.counter("tokens held") <= 320, page.counter("tokens held"))
        line = page.memory_line()
        check("the memory line is flat", len({b for _, b, _ in line}) == 1 and len(line) > 3, line)
        check("while the other one climbs", line[-1][2] > line[0][2], line)
        text = lambda name: driver.find_element(By.CSS_SELECTOR, f"dd[data-name='{name}']").text
        check("frames a second are counted", float(text("frames a second")) > 0, text("frames a second"))
        check(
            "and what is held of the video",
            " to " in text("video held") and not text("video held").startswith("0:00.0"),
            text("video held"),
        )

        page.find("text").send_keys("And now?", Keys.ENTER)
        until(
            "a second answer is about a later moment",
            lambda: page.idle() and len(stamps()) == 2 and stamps()[1] > stamps()[0],
        )
        if args.pictures:
            driver.save_screenshot(f"{args.pictures}/page-video.png")
        page.find("unwatch").click()
        check("closed, it is gone", not page.find("stage").is_displayed())

        page.find("file").send_keys(picture)
        until(
            "a picture is looked at", lambda: page.idle() and driver.find_elements(By.CSS_SELECTOR, "#log > .note img")
        )
        driver.execute_script(  # and one that is dropped
            "const c = document.createElement('canvas'); c.width = c.height = 40;"
            "c.toBlob((b) => { const t = new DataTransfer(); t.items.add(new File([b], 'dropped.png', {type: "
            "'image/png'}));"
            "document.querySelector('main').dispatchEvent(new DragEvent('drop', {dataTransfer: t, bubbles: true})); })"
        )
        until(
            "a dropped one, too",
            lambda: page.idle() and len(driver.find_elements(By.CSS_SELECTOR, "#log > .note img")) == 2,
        )
        wide = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        check("nothing sticks out", wide[0] <= wide[1], wide)
        wrong = complaints(driver)
        check("the browser had nothing to complain about", not wrong, wrong)


if __name__ == "__main__":
    main()

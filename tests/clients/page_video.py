#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A video that plays in the page of `weir serve` while questions are asked, in a real headless Chromium.

    tests/clients/page_video.py PROGRAM [MODEL MMPROJ] [--pictures FOLDER]

Plays a real clip of the folder that WEIR_DATA names; the models are the tiny pair of the tests. Needs what page.py
needs; exits with 77 (skipped) where something is missing.
"""

import os
from pathlib import Path

from page_driver import Keys, Page, arguments, browser, check, until
from server import Server, skip

VISION = Path(__file__).resolve().parent.parent / "golden/vision"


def data(name):
    path = Path(os.environ.get("WEIR_DATA", "")) / name
    if not os.environ.get("WEIR_DATA") or not path.is_file():
        skip(f"no {name} in the folder that WEIR_DATA names")
    return str(path)


def main():
    args = arguments(__doc__, ("model", str(VISION / "llava.gguf")), ("mmproj", str(VISION / "clip.gguf")))
    clip, picture = data("video/bikes.mp4"), data("images/chelsea.png")
    flags = ["--pot", "320", "--policy", "streaming_llm", "-n", "24", "--mmproj", args.mmproj]
    with Server(args.program, args.model, flags) as server, browser() as driver:
        page = Page(driver, args.pictures)
        driver.get(server.url + "/")
        until("it says what to do", lambda: len(page.every(".welcome .cards button")) == 4)

        def playing():
            return driver.execute_script(
                "return arguments[0].paused ? -1 : arguments[0].currentTime", page.part("video")
            )

        def stamps():
            return [int(e.get_attribute("data-ms")) for e in page.inside(".log > .answer time")]

        def counted(name):
            return page.inside(f"dd[data-name='{name}']")[0].get_attribute("textContent")

        page.part("file").send_keys(clip)
        until("the clip plays", lambda: playing() > 0)
        until("frames of it are looked at", lambda: page.counter("frames looked at") >= 2)
        before = page.pixels("map")

        page.type("What comes down the hill?", Keys.ENTER)
        check("it plays while the question is asked", playing() > 0)
        until("the answer says the moment it is about", lambda: page.idle() and len(stamps()) == 1)
        shown = page.said("answer")[0]
        check("beside its words", shown.startswith("[0:0") and len(shown) > len("[0:00.0] "), shown)
        moment = driver.execute_script("return arguments[0].currentTime", page.part("video"))
        check("which the clip has shown", 0 < stamps()[0] <= moment * 1000, (stamps(), moment))

        driver.execute_script(
            "arguments[0].value = 4; arguments[0].dispatchEvent(new Event('change'));"
            "arguments[1].loop = true; arguments[1].play()",
            page.part("fps"),
            page.part("video"),
        )
        until("frames push others out", lambda: page.counter("tokens forgotten") > 100)
        check("the map changed", page.pixels("map") != before)
        check("and holds no more than the pot", page.counter("tokens held") <= 320, page.counter("tokens held"))
        check("frames a second are counted", float(counted("frames a second")) > 0, counted("frames a second"))
        held = counted("video held")
        check("and what is held of the video", " to " in held and not held.startswith("0:00.0"), held)

        page.type("And now?", Keys.ENTER)
        until(
            "a second answer is about a later moment",
            lambda: page.idle() and len(stamps()) == 2 and stamps()[1] > stamps()[0],
        )
        page.picture("video")
        # Questions and answers lie between the frames.
        scrub = page.part("scrub")
        scrub.send_keys(Keys.HOME)
        until(
            "the lens shows the frame under the cursor",
            lambda: page.inside(".lens img") or scrub.send_keys(Keys.PAGE_UP),
        )
        page.part("unwatch").click()
        check("closed, it is gone", not page.part("stage").is_displayed())

        page.part("file").send_keys(picture)
        until("a picture is looked at", lambda: page.idle() and page.inside(".log > .note img"))
        driver.execute_script(  # and one that is dropped
            "const c = document.createElement('canvas'); c.width = c.height = 40;"
            "c.toBlob((b) => { const t = new DataTransfer(); t.items.add(new File([b], 'dropped.png', {type: "
            "'image/png'}));"
            "document.querySelector('.talk').dispatchEvent(new DragEvent('drop', {dataTransfer: t, bubbles: true})); })"
        )
        until("a dropped one, too", lambda: page.idle() and len(page.inside(".log > .note img")) == 2)
        page.narrow()
        page.content()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""“Tell me when” in the page of `weir serve`, in a real headless Chromium: the generated clip, a rule, its scores and
events; and the camera, for which Chromium has one of its own making.

    tests/clients/page_rules.py PROGRAM [MODEL MMPROJ] [--pictures FOLDER]

The models are those of models/weir-tiny-llava. Needs what page.py needs; exits with 77 (skipped) where something is
missing.
"""

from pathlib import Path

from page_driver import Keys, Page, arguments, browser, check, until
from server import Server, skip

MODELS = Path(__file__).resolve().parents[2] / "models"
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


def main():
    model, mmproj = str(MODELS / "weir-tiny-llava.gguf"), str(MODELS / "mmproj-weir-tiny-llava.gguf")
    args = arguments(__doc__, ("model", model), ("mmproj", mmproj))
    if not Path(args.model).is_file():
        skip(f"no {args.model}")
    flags = ["--pot", "384", "--temp", "0", "--mmproj", args.mmproj]
    with Server(args.program, args.model, flags) as server, browser(*CAMERA, size=(1280, 1100)) as driver:
        page = Page(driver, args.pictures)
        driver.get(server.url + "/")
        until("the opening offers a clip", lambda: len(page.every(".welcome .cards button")) == 4)
        page.every(".welcome .cards button")[1].click()
        until("one click plays it", lambda: page.part("clip").is_displayed())
        until("its frames are looked at", lambda: page.counter("frames looked at") >= 1)
        until("and a rule watches", lambda: len(page.inside(".rules li")) == 1)
        page.part("pause").click()
        check("it can be paused", page.text("pause") == "Play")
        page.part("pause").click()
        until("the rule has a score", lambda: "learns" in page.text("rules") and "," in page.text("rules"))
        page.inside(".suggestions button")[0].click()
        until("a suggested question is answered", lambda: page.idle() and page.said("answer"))
        answer = page.said("answer")[0]
        colours = ("red", "blue", "yellow", "green", "white", "purple")
        check("with the clip's time and a colour", answer.startswith("[0:") and answer.split()[-1] in colours, answer)
        # The first shape is red, and all checks of it teach the rule; the sixth is red again, 25 s later.
        until(
            "an event comes when it is red again",
            lambda: "began: What colour is it? => red" in page.text("events"),
            180,
        )
        until("and another one when it is not", lambda: "ended: What colour is it? => red" in page.text("events"), 120)
        check(
            "the scores are drawn",
            page.part("score-chart").get_attribute("aria-label").startswith("Scores of 1 rules; "),
        )
        until("an event shows its picture", lambda: page.inside(".events img"))
        size = driver.execute_script(
            "const image = document.querySelector('.events img'); return [image.naturalWidth, image.naturalHeight];"
        )
        check("of the clip", size[0] == size[1] and 16 <= size[0] <= 181, str(size))
        page.picture("rules")
        page.inside(".events button")[-1].click()
        until("an event shows its place", lambda: page.part("cursor").is_displayed() and page.inside(".lens img"))

        page.part("when").send_keys("What shape is it? => circle", Keys.ENTER)
        until("a rule of one's own watches, too", lambda: len(page.inside(".rules li")) == 2)
        page.part("when").send_keys("what => ", Keys.ENTER)
        until("one that cannot be says why", lambda: page.part("rule-note").get_attribute("class") == "error")
        page.inside(".rules button")[0].click()
        until("a rule can be removed", lambda: len(page.inside(".rules li")) == 1)

        page.part("camera").click()
        until("the camera plays", lambda: "the camera" in page.text("watched"))
        check("in place of the clip", not page.part("clip").is_displayed() and page.part("video").is_displayed())
        looked = page.counter("frames looked at")
        until("and its frames are looked at", lambda: page.counter("frames looked at") > looked + 2)
        driver.set_window_size(390, 800)
        until("a phone shows the conversation alone", lambda: not page.part("memory").is_displayed())
        page.part("show-memory").click()
        until("and its memory", lambda: page.part("memory").is_displayed())
        form, memory = (page.part(name).rect for name in ("form", "memory"))
        check("below the message", form["y"] + form["height"] <= memory["y"] + 1, (form, memory))
        check("of which enough is seen", memory["height"] >= 120, memory)
        page.picture("rules-phone")
        page.part("unwatch").click()
        page.content()


if __name__ == "__main__":
    main()

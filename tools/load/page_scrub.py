#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frame times of the web page while the cursor moves along the map of a long session, in a real headless Chromium.

    tools/load/page_scrub.py PROGRAM MODEL [--tokens 1000000] [--seconds 10] [-- SERVE-FLAG...]

First the page is loaded six times, for the milliseconds to the first paint of its contents. Then it reads a text of at
least --tokens tokens, and the cursor goes to and fro over the whole map, one place a frame, for --seconds: first while
the session rests, zoomed in as well, then while it reads on. Prints a line of JSON for each: frames a second,
percentiles of the time between frames, frames that came late (more than 25 ms after the one before), and what the
page's own thread had to do for a frame. Needs what tests/clients/page.py needs.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/clients"))

from page_driver import Page, browser, until
from server import Server

WORDS = "river rain stone bridge mill boat winter harvest lantern market road island".split()
SCRUB = """
const [scrub, seconds, done] = arguments, box = scrub.getBoundingClientRect(), times = [];
const start = performance.now();
function frame(now) {
  times.push(now);
  if (now - start > seconds * 1000) return done(times);
  const phase = (now - start) / 2000 % 2, part = phase < 1 ? phase : 2 - phase;  // two seconds from end to end
  const at = { bubbles: true, clientX: box.left + part * box.width, clientY: box.top + 9 };
  scrub.dispatchEvent(new PointerEvent('pointermove', at));
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
"""


def text_of(n_words):
    return " ".join(WORDS[(i * i + i // 7) % len(WORDS)] + ("." if i % 11 == 10 else "") for i in range(n_words))


def busy_seconds(driver):
    found = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(m["value"] for m in found if m["name"] == "TaskDuration")


def first_paints(driver, url, n=6):
    asked = "return performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)"
    times = []
    for _ in range(n):
        driver.get(url)
        while not (told := driver.execute_script(asked)):
            time.sleep(0.05)
        times.append(round(told[0]))
    print(json.dumps(dict(what="first paint", ms=times)), flush=True)


def measure(page, what, seconds):
    before = busy_seconds(page.driver)
    times = page.driver.execute_async_script(SCRUB, page.part("scrub"), seconds)
    busy = busy_seconds(page.driver) - before
    gaps = sorted(b - a for a, b in zip(times, times[1:]))
    at = lambda part: round(gaps[min(len(gaps) - 1, int(part * len(gaps)))], 2)
    row = dict(
        what=what,
        tokens=page.counter("tokens seen"),
        frames=len(gaps),
        frames_per_s=round(1000 * len(gaps) / (times[-1] - times[0]), 1),
        median_ms=at(0.5),
        p95_ms=at(0.95),
        p99_ms=at(0.99),
        longest_ms=at(1),
        late=sum(gap > 25 for gap in gaps),
        work_ms_per_frame=round(1000 * busy / len(gaps), 2),
    )
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description="Frame times of the web page while the map of a long session is explored."
    )
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=1000000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("flags", nargs="*")
    args = parser.parse_args()
    flags = ["--pot", "1024", "--recall", "words", "--max-body", "64MiB", *args.flags]
    with (
        Server(args.program, args.model, flags) as server,
        browser() as driver,
        tempfile.TemporaryDirectory() as folder,
    ):
        driver.execute_cdp_cmd("Performance.enable", {})
        page = Page(driver)
        first_paints(driver, server.url + "/")
        until("the page is there", lambda: page.inside(".welcome"))
        path = Path(folder, "words.txt")
        path.write_text(text_of(args.tokens), encoding="utf-8")
        page.part("file").send_keys(str(path))
        until("the text is read", lambda: page.counter("tokens seen") >= args.tokens, 3600)
        until("and nothing goes on", page.idle, 600)
        measure(page, "at rest", args.seconds)
        for _ in range(3):
            page.part("zoom-in").click()
        measure(page, "at rest, zoomed in", args.seconds)
        page.part("zoom-all").click()
        page.put(text_of(args.tokens // 4))
        page.part("read").click()
        measure(page, "while it reads on", args.seconds)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Watches an hour of video through a fixed pot and draws the process's memory.

    tools/load/watch_hour.py --weir build/release/weir -m MODEL.gguf --mmproj MMPROJ.gguf --clip CLIP.mp4 [--out FOLDER]

The clip is looped to an hour at one frame a second (ffmpeg) and watched at full speed, with a question every five
minutes. An unbounded cache is measured in several runs: the first minute, five, ten ... of the same video with policy
`full` and room for exactly the tokens of that time, since a session allocates its memory when it starts.
Writes pot.jsonl and full.jsonl (the output of `weir watch --report 1m -o json`; for `full` the last report of each run)
and memory.svg. Exits 1 when resident memory changed by more than 2 MiB after minute 5, or a frame was dropped.
Needs ffmpeg and matplotlib.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.plot.rows import pyplot

MIB = 1 << 20


def make_hour(clip, seconds, side, path):
    """The clip at one frame a second, then its packets repeated."""
    once = path.with_suffix(".once.mp4")
    subprocess.run(
        [
            "ffmpeg",
            "-v",
            "error",
            "-y",
            "-i",
            clip,
            "-an",
            "-vf",
            f"fps=1,scale={side}:-2",
            "-c:v",
            "mpeg4",
            "-g",
            "1",
            "-q:v",
            "4",
            str(once),
        ],
        check=True,
    )
    subprocess.run(
        [
            "ffmpeg",
            "-v",
            "error",
            "-y",
            "-stream_loop",
            "-1",
            "-i",
            str(once),
            "-t",
            str(seconds),
            "-c",
            "copy",
            str(path),
        ],
        check=True,
    )
    once.unlink()


def watch(args, video, pot, policy, every):
    command = [
        args.weir,
        "watch",
        str(video),
        "-m",
        args.model,
        "--mmproj",
        args.mmproj,
        "--fps",
        "1",
        "--fast",
        "--pot",
        str(pot),
        "--policy",
        policy,
        "--ask",
        "What happens now?",
        "--every",
        every,
        "--report",
        "1m",
        "-n",
        "16",
        "--temp",
        "0",
        "--ignore-eos",
        "-t",
        str(args.threads),
        "-o",
        "json",
    ]
    command += ["--chat-template", args.chat_template] if args.chat_template else []
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"watch_hour: {run.stderr.strip().splitlines()[-1]}")
    return [json.loads(line) for line in run.stdout.splitlines()]


def never_forgets(args, rows, seconds):
    """The last report of a run over the video's first seconds (a minute at least), with room for every token of
    them."""
    seconds = max(seconds, 60)
    video = args.out / "part.mp4"
    subprocess.run(
        ["ffmpeg", "-v", "error", "-y", "-i", str(args.out / "hour.mp4"), "-t", str(seconds), "-c", "copy", str(video)],
        check=True,
    )
    # The tokens the bounded run had seen by then; the end of a video may be a frame early or late.
    seen = next((row["tokens_seen"] for row in rows if row["t_ms"] >= seconds * 1000), rows[-1]["tokens_seen"])
    last = watch(args, video, seen + 128, "full", "5m")[-1]
    video.unlink()
    return last


def draw(plt, args, rows, full):
    reports = [row for row in rows if row["type"] == "report"]
    minutes = [row["t_ms"] / 60000 for row in reports]
    resident = [row["resident_bytes"] / MIB for row in reports]
    fig, ax = plt.subplots(figsize=(8, 3.6))
    ax.plot(minutes, resident, lw=2.2, label=f"pot of {args.pot:,} tokens")
    ax.plot(
        [row["t_ms"] / 60000 for row in full],
        [row["resident_bytes"] / MIB for row in full],
        "o-",
        ms=3.5,
        color="tab:red",
        lw=1.5,
        label="a cache that never forgets: one run for each point",
    )
    ax.set_xlabel("minutes of video, one frame a second")
    ax.set_ylabel("memory of the process, MiB")
    ax.set_ylim(bottom=0)
    ax.grid(True, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    fig.tight_layout()
    fig.savefig(args.out / "memory.svg", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--mmproj", required=True)
    parser.add_argument("--clip", required=True)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--pot", type=int, default=1024)
    parser.add_argument("--policy", default="streaming_vlm")
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument(
        "--full-seconds",
        type=int,
        default=3600,
        help="how far the runs that never forget go; their time grows with the square",
    )
    parser.add_argument("--side", type=int, default=320, help="width of the looped video")
    parser.add_argument("--chat-template", help="for a model without one")
    parser.add_argument("-t", "--threads", type=int, default=1)
    args = parser.parse_args()
    plt = pyplot()  # needed only after an hour: report a missing module now
    args.out.mkdir(parents=True, exist_ok=True)
    video = args.out / "hour.mp4"
    make_hour(args.clip, args.seconds, args.side, video)
    rows = watch(args, video, args.pot, args.policy, "5m")
    full = [never_forgets(args, rows, seconds) for seconds in range(0, min(args.full_seconds, args.seconds) + 1, 300)]
    for name, run in (("pot", rows), ("full", full)):
        (args.out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in run))

    draw(plt, args, rows, full)
    reports = [row for row in rows if row["type"] == "report"]
    later = [row["resident_bytes"] for row in reports if row["t_ms"] >= 300_000]
    last = rows[-1]
    moved = max(later) - min(later) if later else 0
    print(
        json.dumps(
            {
                "frames": last["frames_looked_at"],
                "dropped": last["frames_dropped"],
                "tokens_seen": last["tokens_seen"],
                "tokens_kept": last["tokens_kept"],
                "resident_at_minute_5": later[0] if later else 0,
                "resident_at_the_end": last["resident_bytes"],
                "moved_bytes": moved,
                "session_bytes": last["session_bytes"],
                "full_resident": {round(row["t_ms"] / 60000): row["resident_bytes"] for row in full},
                "frames_per_s": last["frames_per_s"],
            }
        )
    )
    sys.exit(
        0 if moved <= 2 * MIB and last["frames_dropped"] == 0 and last["frames_looked_at"] >= args.seconds - 1 else 1
    )


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes held-out streams of the world in formats that any program can read, as input for evaluations.

    tools/train/make_streams.py OUT [--streams 1] [--clips 300] [--frames 2] [--rounds 1] [--kinds 1,1,1,1] [--seed 1]
                                [--horizon N] [--speed 7-10] [--size 1] [--asides N --every CLIPS --first CLIPS]
                                [--unnamed] [--data FOLDER]

OUT/STREAM/CLIP.FRAME.ppm are the frames (64 x 64, binary PPM), OUT/streams.jsonl has one round per line, in order:
  stream, clip      numbers from 0; number: the clip's name in texts, -1 if it has none
  frames            the clip's files, relative to OUT, in its first round; empty in later rounds
  lead, question    the user's turn is lead + the frames + question
  answer            the only right one
  kind, attribute   present, back, recall or order; the attribute in question
  distance          number of clips between its subject and the present one
  aside             true: ask without leaving a trace in the stream; otherwise absent
With --asides N, every --every clips N questions about the first --first clips are asked aside. With --unnamed clips
have no names. --kinds are the weights of the four kinds. The same numbers make the same files. Needs only numpy.
"""

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.train import draw, world


def asides(story, rng, n_first, n):
    """Up to n different questions about the first clips, phrased as of now."""
    found = {}
    for _ in range(8 * n):
        r = story.look_back(rng, n_first) if len(found) < n else None
        if r is not None:
            found.setdefault(r.question, r)
    return list(found.values())


def write_stream(out, stream, args, mix, digits, lines):
    folder = out / f"{stream:04d}"
    folder.mkdir(parents=True, exist_ok=True)
    story, rng = world.Story(mix), world.rng_of("held_out", args.seed, stream, 1)
    for i, clip in enumerate(world.stream_clips("held_out", args.seed, stream, mix, digits, story)):
        files = []
        for j, frame in enumerate(clip.frames):
            path = folder / f"{i:04d}.{j}.ppm"
            path.write_bytes(b"P6\n%d %d\n255\n" % (frame.shape[1], frame.shape[0]) + frame.tobytes())
            files.append(str(path.relative_to(out)))
        late = i >= args.first and (i - args.first) % args.every == args.every - 1
        looks_back = asides(story, rng, args.first, args.asides) if late else []
        for r, aside in [(r, False) for r in clip.rounds] + [(r, True) for r in looks_back]:
            lead = f"Clip {clip.number}:" if r.leads and clip.number >= 0 else ""
            line = dict(
                stream=stream,
                clip=i,
                number=clip.number,
                frames=files if r.leads else [],
                lead=lead,
                question=r.question,
                answer=r.answer,
                kind=r.kind,
                attribute=r.attribute,
                distance=r.distance,
            )
            lines.write(json.dumps(dict(line, aside=True) if aside else line) + "\n")


def span(number):
    """A type for argparse: `3` or `1-12` as (least, most)."""

    def parse(text):
        least, _, most = text.partition("-")
        return number(least), number(most or least)

    return parse


def main(argv=None):
    parser = argparse.ArgumentParser(description="Writes held-out streams of the world as pictures and rounds.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--clips", type=int, default=300, help="of a stream")
    parser.add_argument("--frames", type=span(int), default=(2, 2), help="of a clip: a number, or a range such as 1-12")
    parser.add_argument(
        "--speed", type=span(float), default=world.Mix.speed, help="pixels a frame of what moves: a range"
    )
    parser.add_argument("--size", type=float, default=1.0, help="of what is shown, as a multiple of the usual size")
    parser.add_argument("--rounds", type=int, default=1, help="of a clip")
    parser.add_argument("--kinds", default="1,1,1,1", help="weights of " + ", ".join(world.KINDS))
    parser.add_argument(
        "--horizon", type=int, default=1 << 30, help="memory questions reach back so many clips at most"
    )
    parser.add_argument("--asides", type=int, default=0, help="questions about the beginning, each time")
    parser.add_argument("--every", type=int, default=10, help="clips between those times")
    parser.add_argument("--first", type=int, default=30, help="clips that are the beginning")
    parser.add_argument(
        "--unnamed", action="store_true", help="clips without numbers, for questions about single pictures"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with image_qa/mnist (default: $WEIR_DATA)",
        default=os.environ.get("WEIR_DATA"),
    )
    args = parser.parse_args(argv)
    mix = world.Mix(
        clips=(args.clips,) * 2,
        frames=args.frames,
        speed=args.speed,
        size=args.size,
        rounds=(args.rounds,) * 2,
        numbered=0.0 if args.unnamed else 1.0,
        first=1,
        kinds=tuple(float(w) for w in args.kinds.split(",")),
        horizon=args.horizon,
    )
    args.out.mkdir(parents=True, exist_ok=True)
    digits = draw.Digits(args.data)
    with open(args.out / "streams.jsonl", "w", encoding="utf-8") as lines:
        for stream in range(args.streams):
            write_stream(args.out, stream, args, mix, digits, lines)


if __name__ == "__main__":
    main()

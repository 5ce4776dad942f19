# SPDX-License-Identifier: Apache-2.0
"""The inputs of record_behaviour.py: models, texts, pictures and questions, in one folder.

The folder is made once and used by every recording. Models are copied into it and names are relative to it, so that
the output does not depend on the location of the checkout or of files in it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

MADE = ".made"
PYTHON_WITH_NUMPY = "/usr/bin/python3"
WORDS = "the man and sea boat river old woman house rain was is in on of to a with they".split()


def copy_models(root: Path, out: Path, real_model: Path) -> None:
    for name, source in (("golden", "tests/golden/models"), ("vision", "tests/golden/vision"), ("models", "models")):
        (out / name).mkdir()
        for file in sorted((root / source).glob("*.gguf")):
            shutil.copyfile(file, out / name / file.name)
    (out / "models" / "smollm2.gguf").symlink_to(real_model.resolve())


def sentences(n_words: int, seed: int) -> str:
    """Words from the tiny models' vocabulary, the same on every machine."""
    rng = random.Random(seed)
    out = []
    for i in range(n_words):
        out.append(WORDS[int(rng.random() * len(WORDS))] + ("." if i % 13 == 12 else ""))
    return " ".join(out) + "\n"


def write_texts(root: Path, out: Path) -> None:
    (out / "words.txt").write_text(sentences(600, 1))
    (out / "long_words.txt").write_text(sentences(4000, 2))
    shutil.copyfile(root / "LICENSE", out / "licence.txt")
    book = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    (out / "book.txt").write_bytes(b"\n".join(file.read_bytes() for file in book))
    odd = (
        "Ünïcode: 東京, emoji \U0001f600, tabs\tand\r\nlines, <|im_start|> marks".encode() + b" broken \xff\xc3 bytes\n"
    )
    (out / "odd.txt").write_bytes(odd)


def write_longbench(out: Path) -> None:
    text = sentences(300, 3)
    rows = [
        {"dataset": "hotpotqa", "metric": "qa_f1", "answers": ["the sea", "a boat"]},
        {"dataset": "gov_report", "metric": "rouge", "answers": ["the man and the sea"]},
        {"dataset": "passage_count", "metric": "count", "answers": ["3"]},
        {"dataset": "passage_retrieval_en", "metric": "retrieval", "answers": ["Paragraph 2"]},
    ]
    with open(out / "longbench.jsonl", "w") as file:
        for row in rows:
            file.write(
                json.dumps({**row, "prompt": text + " Question: where is the boat? Answer:", "max_new_tokens": 12})
                + "\n"
            )


def ppm(width: int, height: int, shade: int) -> bytes:
    pixels = bytes(
        (7 * x + 3 * y + 85 * c + shade) % 256 for y in range(height) for x in range(width) for c in range(3)
    )
    return b"P6\n%d %d\n255\n" % (width, height) + pixels


def write_pictures(root: Path, out: Path) -> None:
    shutil.copyfile(root / "examples" / "world.png", out / "world.png")
    for i in range(4):
        (out / f"{i}.ppm").write_bytes(ppm(60 + 20 * i, 40, 50 * i))
    (out / "wide.ppm").write_bytes(ppm(300, 90, 11))
    (out / "no_picture.png").write_text("no picture\n")
    make = ["ffmpeg", "-nostdin", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc=size=96x64:rate=4:duration=5"]
    subprocess.run(
        [*make, "-c:v", "mpeg4", "-qscale:v", "3", "-fflags", "+bitexact", str(out / "clip.mp4")], check=True
    )
    subprocess.run([*make, "-pix_fmt", "yuv420p", str(out / "clip.y4m")], check=True)


def write_rounds(out: Path) -> None:
    """Two streams of four clips with questions, one of them aside, for the tiny pairs with random weights."""
    folder = out / "rounds"
    folder.mkdir()
    lines = []
    for i in range(4):
        shutil.copyfile(out / f"{i}.ppm", folder / f"{i}.ppm")
    for i in range(8):
        line = {
            "stream": i // 4,
            "clip": i % 4,
            "lead": f"Clip {i % 4}:",
            "frames": [f"{i % 4}.ppm"],
            "question": "the man",
            "answer": "sea",
            "kind": "back" if i % 2 else "present",
            "distance": i % 2,
        }
        lines.append(line)
        if i % 4 == 3:
            lines.append({**line, "frames": [], "lead": "", "kind": "recall", "distance": 3, "aside": True})
    (folder / "streams.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_worlds(root: Path, out: Path) -> None:
    """Held-out clips and pictures of the world that the small models were trained on."""
    sets = {
        "clips": "--streams 1 --clips 16 --frames 2 --kinds 2,1,2,1 --horizon 12 --seed 7000",
        "pictures": "--clips 12 --frames 1 --rounds 2 --kinds 1,0,0,0 --unnamed --seed 7001",
        "minute": "--streams 1 --clips 24 --frames 2 --kinds 1,0,0,0 --asides 2 --every 8 --first 8 --seed 7003",
    }
    environment = {key: value for key, value in os.environ.items() if key != "WEIR_DATA"}
    for name, flags in sets.items():
        make = [PYTHON_WITH_NUMPY, "-B", str(root / "tools/train/make_streams.py"), str(out / name), *flags.split()]
        subprocess.run(make, check=True, env=environment, stdout=subprocess.DEVNULL)


def make_inputs(root: Path, out: Path, real_model: Path) -> None:
    """Fills `out` unless it is already filled."""
    if (out / MADE).exists():
        return
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    copy_models(root, out, real_model)
    write_texts(root, out)
    write_longbench(out)
    write_pictures(root, out)
    write_rounds(out)
    write_worlds(root, out)
    (out / MADE).touch()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/*_video.golden: a short video as families read it that merge two frames into one.

    tools/golden/video.py [--out tests/golden/vision]

qwen2vl_video.golden, qwen25vl_video.golden, qwen3vl_video.golden, qwen35_video.golden
    results in `transformers`, in float64, of the models that qwen2vl.py, qwen25vl.py, qwen3vl.py and qwen35.py make;
    token ids, coordinates and pixels are those of the families' own processors

Format as in tiny_models.py. Frame i of the video is `frame` below, at i / FPS seconds; the last one has no partner.
  frame.I        what the processor makes of frame I, [3 * height, width]
  rows           the encoder's rows of the whole video
  ids, pos, logits   words, the video, words; rows of the video are -1. Coordinates are [3, n]
  before         [1, 1]: how many tokens come before the video

Needs torch, torchvision, transformers, pillow.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.golden import qwen2vl, qwen3vl, qwen25vl, qwen35, tiny_models
from tools.golden.vision import picture, write

# Sides that are multiples of a square's: nothing is resized. As many columns as the longest time axis is long.
WIDTH, HEIGHT, N_FRAMES, FPS = 50, 30, 5, 2
SEED = 20240607
MARKED, BARE = "<|vision_start|><|video_pad|><|vision_end|>", "<|video_pad|>"
HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)


def frame(i):
    return picture(WIDTH, HEIGHT) + np.uint8(37 * i)


def rows_of(model, values, grid):
    with torch.no_grad():
        out = model.model.get_video_features(values, grid)
    parts = [out.pooler_output, *(getattr(out, "deepstack_features", None) or [])]
    return np.concatenate([part[0].numpy() for part in parts], axis=1)


def frames_of(values, grid):
    """The processor's output as its frames; every pair has the two it merges."""
    pairs, lines, columns = (int(n) for n in grid)
    patch, merge = qwen2vl.PATCH, qwen2vl.MERGE
    x = values.reshape(pairs, lines // merge, columns // merge, merge, merge, 3, 2, patch, patch)
    return x.transpose(0, 6, 5, 1, 3, 7, 2, 4, 8).reshape(2 * pairs, 3 * lines * patch, columns * patch)


def record(path, build, processor_of, video, text):
    model = build(SEED).double()
    with tempfile.TemporaryDirectory() as folder:
        tiny_models.write_tokenizer(Path(folder), qwen2vl.SPECIALS)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    images = Qwen2VLImageProcessorPil(patch_size=qwen2vl.PATCH)
    processor = processor_of(image_processor=images, tokenizer=tokenizer, video_processor=video)
    metadata = VideoMetadata(
        total_num_frames=N_FRAMES, fps=float(FPS), width=WIDTH, height=HEIGHT, frames_indices=list(range(N_FRAMES))
    )
    before = "what is"
    shown = processor(
        text=[before + text + " in the end?"],
        videos=[np.stack([frame(i) for i in range(N_FRAMES)])],
        video_metadata=[metadata],
        do_sample_frames=False,
        return_tensors="pt",
    )
    ids, grid = shown["input_ids"], shown["video_grid_thw"]
    values = shown["pixel_values_videos"]
    more = {"second_per_grid_ts": torch.as_tensor(shown["second_per_grid_ts"])} if "second_per_grid_ts" in shown else {}
    kinds = shown["mm_token_type_ids"]
    with torch.no_grad():
        pos, _ = model.model.get_rope_index(ids, mm_token_type_ids=kinds, video_grid_thw=grid, **more)
        out = model(
            input_ids=ids,
            pixel_values_videos=values.double(),
            video_grid_thw=grid,
            mm_token_type_ids=kinds,
            attention_mask=torch.ones_like(ids),
            **more,
        )
    frames = frames_of(values.numpy(), grid[0])
    assert len(frames) == N_FRAMES + 1 and (frames[-1] == frames[-2]).all()
    entries = {f"frame.{i}": frames[i] for i in range(N_FRAMES)}
    entries["rows"] = rows_of(model, values.double(), grid)
    entries["ids"] = np.where(ids[0].numpy() == qwen2vl.VIDEO, -1, ids[0].numpy()).reshape(-1, 1)
    entries["pos"] = pos[:, 0].numpy()
    entries["logits"] = out.logits[0].numpy()
    entries["before"] = np.array([[len(tokenizer(before)["input_ids"])]])
    print(tokenizer.convert_ids_to_tokens([i for i in ids[0].tolist() if i != qwen2vl.VIDEO]))
    write(path, entries)


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/*_video.golden.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    out = parser.parse_args().out
    torch.set_num_threads(1)  # one order of summation
    sizes = dict(patch_size=qwen2vl.PATCH, size=dict(shortest_edge=100, longest_edge=10**6))
    qwen2, qwen3 = Qwen2VLVideoProcessor(**sizes), Qwen3VLVideoProcessor(**sizes, **HALF)
    record(out / "qwen2vl_video.golden", qwen2vl.build, transformers.Qwen2VLProcessor, qwen2, MARKED)
    record(out / "qwen25vl_video.golden", qwen25vl.build, transformers.Qwen2_5_VLProcessor, qwen2, MARKED)
    # The processor puts its own marks around every pair.
    record(out / "qwen3vl_video.golden", qwen3vl.build, transformers.Qwen3VLProcessor, qwen3, BARE)
    record(out / "qwen35_video.golden", qwen35.build, transformers.Qwen3VLProcessor, qwen3, BARE)


if __name__ == "__main__":
    main()

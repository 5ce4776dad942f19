#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/gemma3*: a tiny random Gemma 3 with pictures and its reference numbers.

    tools/golden/gemma3_vision.py [--out tests/golden/vision] [--images FOLDER]

gemma3_vision.gguf   the encoder made by `transformers` from a fixed seed, converted by hf_to_gguf.py to F32
gemma3_text.gguf     its language model, five of six layers with a window of little more than a picture
gemma3_vision.golden  their results in `transformers`, in float64
gemma3_vision_files.golden   `once.NAME`: its image processor's output for the PNG files of FOLDER, if given

Format as in tiny_models.py. Besides the intermediates of one picture of random numbers (`pixels`):
  once.WxH    what Gemma 3's own image processor makes of the synthetic picture of vision.py, [3 * SIZE, SIZE]
  rows.WxH    the projector's rows
  talk.ids, talk.logits   words, the pictures of `talk.pictures` (width, height), words between and after them; the
              pictures' rows are -1. A picture's rows see each other, as its masks have it
  causal.logits   the same with every row seeing only what came before it: what a reader without two-way attention gets

Needs torch, transformers, gguf, pillow.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.golden import tiny_models
from tools.golden.eyes import Watch, randomise, words
from tools.golden.vision import picture, write

# 6 patches along a side, 3 rows: sizes that are not multiples of any vector length.
SIZE, PATCH, SCALE = 30, 5, 2
N_ROWS = (SIZE // PATCH // SCALE) ** 2
VISION = dict(
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=3,
    num_attention_heads=3,
    image_size=SIZE,
    patch_size=PATCH,
    vision_use_head=False,
)
TEXT = dict(
    vocab_size=320,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    query_pre_attn_scalar=16,
    max_position_embeddings=512,
    sliding_window=14,
)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<start_of_image>", "<end_of_image>", "<image_soft_token>")
OPEN, CLOSE, IMAGE = range(3, 6)
PIXELS = ((90, 61), (200, 20), (1, 50), (30, 30), (97, 333), (7, 5))
TALK = ((61, 45), (20, 33))


def build(seed):
    config = transformers.Gemma3Config(
        vision_config=VISION,
        text_config=TEXT,
        image_token_id=IMAGE,
        boi_token_id=OPEN,
        eoi_token_id=CLOSE,
        mm_tokens_per_image=N_ROWS,
    )
    # sdpa: its softmax stays in float64.
    model = transformers.Gemma3ForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    randomise(model, seed)
    g = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            # Norms of this family multiply by one more than their weight.
            if "norm" in name and name.endswith("weight") and "vision_tower" not in name:
                p.copy_(0.2 * torch.randn(p.shape, generator=g))
    return model


def run(model, pixels):
    """Every named intermediate, [rows, cols]."""
    tower, projector = model.model.vision_tower, model.model.multi_modal_projector
    tower = getattr(tower, "vision_model", tower)
    with Watch() as watch, torch.no_grad():
        watch.keep("v.embd", tower.embeddings)
        watch.keep("v.post_ln", tower.post_layernorm)
        watch.keep("mm.pool", projector.mm_soft_emb_norm, before=True)
        watch.keep("mm.norm", projector.mm_soft_emb_norm)
        for i, layer in enumerate(tower.encoder.layers):
            to, att = f"v.blk.{i}.", layer.self_attn
            watch.keep(to + "ln1", layer.layer_norm1)
            for name, module in (("q", att.q_proj), ("k", att.k_proj), ("v", att.v_proj)):
                watch.keep(to + name, module)
            watch.keep(to + "mix", att.out_proj, before=True)
            watch.keep(to + "mid", layer.layer_norm2, before=True)
            watch.keep(to + "ln2", layer.layer_norm2)
            watch.keep(to + "out", layer)
        rows = model.model.get_image_features(pixels[None]).pooler_output
    watch.seen["mm.fc"] = rows.reshape(-1, rows.shape[-1]).numpy()
    return watch.seen


def pixels_of(processor, image):
    return processor(image, return_tensors="pt")["pixel_values"]


def talk(model, processor, tokenizer, rng):
    """Words and pictures: ids and logits, with and without two-way attention."""
    more = lambda n: words(rng, n, len(SPECIALS), TEXT["vocab_size"])
    (gap,) = tokenizer("\n\n", add_special_tokens=False)["input_ids"]
    shown, ids = [], more(4)
    for size in TALK:
        shown.append(pixels_of(processor, Image.fromarray(picture(*size))))
        ids += [gap, OPEN] + [IMAGE] * N_ROWS + [CLOSE, gap] + more(3)
    ids = torch.tensor([ids])
    call = dict(input_ids=ids, pixel_values=torch.cat(shown).double(), attention_mask=torch.ones_like(ids))
    with torch.no_grad():
        two_way = model(**call, token_type_ids=(ids == IMAGE).long()).logits[0].numpy()
        causal = model(**call).logits[0].numpy()
    return {
        "talk.ids": np.where(ids[0].numpy() == IMAGE, -1, ids[0].numpy()).reshape(-1, 1),
        "talk.logits": two_way,
        "talk.pictures": np.array(TALK),
        "causal.logits": causal,
    }


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/gemma3*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--images", type=Path, help="folder of PNG files")
    parser.add_argument("--seed", type=int, default=20250325)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    size = dict(height=SIZE, width=SIZE)
    processor = Gemma3ImageProcessorPil(size=size, image_seq_length=N_ROWS)
    pixels = rng.standard_normal((3, SIZE, SIZE)).astype(np.float32)
    model = build(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
        # Two newlines are one token, as in the real vocabulary.
        tiny_models.write_tokenizer(Path(folder), SPECIALS, first_merges=("Ċ Ċ",))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
        called = "tiny random gemma3"
        hf_to_gguf.convert_folder(folder, args.out / "gemma3_vision.gguf", "f32", name=called, mmproj=True)
        hf_to_gguf.convert_folder(folder, args.out / "gemma3_text.gguf", "f32", name=called, pre="qwen2")
    model = model.double()
    entries = {"pixels": pixels.reshape(-1, SIZE), **run(model, torch.tensor(pixels).double())}
    for width, height in PIXELS:
        shown = pixels_of(processor, Image.fromarray(picture(width, height)))
        entries[f"once.{width}x{height}"] = shown.reshape(-1, SIZE).numpy()
        with torch.no_grad():
            rows = model.model.get_image_features(shown.double()).pooler_output
        entries[f"rows.{width}x{height}"] = rows.reshape(-1, rows.shape[-1]).numpy()
    entries.update(talk(model, processor, tokenizer, rng))
    write(args.out / "gemma3_vision.golden", entries)
    if args.images:
        files = {
            f"once.{path.name}": pixels_of(processor, Image.open(path)).reshape(-1, SIZE).numpy()
            for path in sorted(args.images.glob("*.png"))
        }
        write(args.out / "gemma3_vision_files.golden", files)


if __name__ == "__main__":
    main()

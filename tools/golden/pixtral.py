#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/pixtral* and mistral3*: tiny random encoders of Mistral's with their reference numbers.

    tools/golden/pixtral.py [--out tests/golden/vision] [--images FOLDER]

mistral3_pixtral.gguf   the encoder of a Mistral 3 made by `transformers` from a fixed seed, squares of 2 x 2 patches
                        merged, converted by hf_to_gguf.py to F32
mistral3_text.gguf      its language model, with the words of pictures
mistral3_pixtral.golden their results in `transformers`, in float64
pixtral.gguf, pixtral.golden   an encoder as Pixtral 12B's: no merging, biases, another gate; its intermediates
pixtral_files.golden    `once.NAME`: the image processor's output for the PNG files of FOLDER, if given

Format as in tiny_models.py. q and k have the order of our rotation: in each half of a head the pairs of one axis.
Besides the intermediates of one picture of random numbers (`pixels`):
  once.WxH    what the image processor makes of the synthetic picture of vision.py, [3 * height, width]
  rows.WxH    the projector's rows, the word of a line's end behind every line but the last
  talk.ids, talk.logits   words, the pictures of `talk.pictures` (width, height), words between and after them; the
              pictures' rows, line ends included, are -1

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
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.golden import tiny_models
from tools.golden.eyes import Watch, randomise, words
from tools.golden.vision import picture, write

# At most 8 patches along a side: sizes that are not multiples of any vector length.
SIZE, PATCH, MERGE = 40, 5, 2
VISION = dict(
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=3,
    num_attention_heads=3,
    image_size=SIZE,
    patch_size=PATCH,
)
TEXT = dict(
    vocab_size=320,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=3,
    head_dim=16,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    sliding_window=None,
    tie_word_embeddings=False,
)
SPECIALS = ("<unk>", "<s>", "</s>", "[IMG]", "[IMG_BREAK]", "[IMG_END]")
IMAGE, BREAK, END = range(3, 6)
PIXELS = ((90, 61), (200, 20), (3, 50), (30, 30), (97, 333), (17, 5), (40, 41))
TALK = ((61, 45), (20, 33))


def build(kind, seed, vision, **more):
    config = dict(Mistral3=transformers.Mistral3Config, Llava=transformers.LlavaConfig)[kind](
        vision_config=transformers.PixtralVisionConfig(**{**VISION, **vision}),
        text_config=transformers.MistralConfig(**TEXT),
        image_token_index=IMAGE,
        image_token_id=IMAGE,
        vision_feature_layer=-1,
        tie_word_embeddings=False,
        **more,
    )
    model = getattr(transformers, f"{kind}ForConditionalGeneration")
    # sdpa: its softmax stays in float64.
    return randomise(model._from_config(config, attn_implementation="sdpa"), seed)


def by_axis(rows):
    """Heads' numbers in the order of our rotation: pairs of lines, then those of columns, each half-split."""
    n_heads = VISION["num_attention_heads"]
    quarters = rows.reshape(len(rows), n_heads, 4, -1)
    return quarters[:, :, [0, 2, 1, 3]].reshape(rows.shape)


def features(model, pixels):
    sizes = torch.tensor([pixels.shape[-2:]])
    out = model.model.get_image_features(pixels[None], image_sizes=sizes).pooler_output
    return (out[0] if isinstance(out, (list, tuple)) else out).reshape(-1, TEXT["hidden_size"])


def lines(model, rows, n_columns):
    """Rows with the word of a line's end behind every line but the last."""
    end = model.get_input_embeddings().weight[BREAK][None]
    parts = []
    for line in rows.split(n_columns):
        parts += [line, end]
    return torch.cat(parts[:-1]).detach().numpy()


def run(model, pixels, merge):
    """Every named intermediate, [rows, cols]."""
    tower, projector = model.model.vision_tower, model.model.multi_modal_projector
    with Watch() as watch, torch.no_grad():
        watch.keep("v.embd", tower.ln_pre, before=True)
        watch.keep("v.pre_ln", tower.ln_pre)
        if merge > 1:
            watch.keep("mm.norm", projector.norm)
            watch.keep("mm.merge", projector.patch_merger)
        watch.keep("mm.1", projector.linear_1)
        for i, layer in enumerate(tower.transformer.layers):
            to, att = f"v.blk.{i}.", layer.attention
            watch.keep(to + "ln1", layer.attention_norm)
            for name, module in (("q", att.q_proj), ("k", att.k_proj), ("v", att.v_proj)):
                watch.keep(to + name, module)
            watch.keep(to + "mix", att.o_proj, before=True)
            watch.keep(to + "mid", layer.ffn_norm, before=True)
            watch.keep(to + "ln2", layer.ffn_norm)
            watch.keep(to + "out", layer)
        rows = features(model, pixels)
    for i in range(VISION["num_hidden_layers"]):
        for name in "qk":
            watch.seen[f"v.blk.{i}.{name}"] = by_axis(watch.seen[f"v.blk.{i}.{name}"])
    watch.seen["mm.rows"] = lines(model, rows, pixels.shape[-1] // PATCH // merge)
    return watch.seen


def processor_of(merge):
    side = PATCH * merge
    return PixtralImageProcessorPil(size=dict(longest_edge=SIZE), patch_size=dict(height=side, width=side))


def pixels_of(processor, image):
    return processor(image, return_tensors="pt")["pixel_values"][0]


def talk(model, processor, rng):
    """Words and pictures: ids and logits."""
    more = lambda n: words(rng, n, len(SPECIALS), TEXT["vocab_size"])
    shown, sizes, ids = [], [], more(4)
    for size in TALK:
        pixels = pixels_of(processor, Image.fromarray(picture(*size)))
        shown.append(pixels)
        sizes.append(pixels.shape[-2:])
        n_lines, n_columns = (side // (PATCH * MERGE) for side in pixels.shape[-2:])
        line = [IMAGE] * n_columns + [BREAK]
        ids += (line * n_lines)[:-1] + [END] + more(3)
    ids = torch.tensor([ids])
    most = [max(size[i] for size in sizes) for i in (0, 1)]
    padded = torch.stack(
        [torch.nn.functional.pad(p, (0, most[1] - p.shape[2], 0, most[0] - p.shape[1])) for p in shown]
    )
    with torch.no_grad():
        out = model(
            input_ids=ids,
            pixel_values=padded.double(),
            image_sizes=torch.tensor(sizes),
            attention_mask=torch.ones_like(ids),
        )
    plain = ids[0].numpy()
    return {
        "talk.ids": np.where((plain == IMAGE) | (plain == BREAK), -1, plain).reshape(-1, 1),
        "talk.logits": out.logits[0].numpy(),
        "talk.pictures": np.array(TALK),
    }


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/pixtral* and mistral3*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--images", type=Path, help="folder of PNG files")
    parser.add_argument("--seed", type=int, default=20241009)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    merged = dict(hidden_act="silu"), dict(spatial_merge_size=MERGE, multimodal_projector_bias=False)
    plain = dict(hidden_act="gelu"), dict(multimodal_projector_bias=True, vision_feature_select_strategy="full")
    for kind, name, merge, (vision, more) in (
        ("Mistral3", "mistral3_pixtral", MERGE, merged),
        ("Llava", "pixtral", 1, plain),
    ):
        model, processor = build(kind, args.seed, vision, **more), processor_of(merge)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            processor.save_pretrained(folder)
            tiny_models.write_tokenizer(Path(folder), SPECIALS)
            called = "tiny random pixtral"
            hf_to_gguf.convert_folder(folder, args.out / f"{name}.gguf", "f32", name=called, mmproj=True)
            if merge > 1:
                to = args.out / "mistral3_text.gguf"
                hf_to_gguf.convert_folder(folder, to, "f32", name=called, pre="tekken")
        model = model.double()
        # Wider than high, so that lines and columns are not mistaken for each other.
        pixels = rng.standard_normal((3, 3 * PATCH * 2, 2 * PATCH * 2)).astype(np.float32)
        entries = {"pixels": pixels.reshape(-1, pixels.shape[-1]), **run(model, torch.tensor(pixels).double(), merge)}
        if merge > 1:
            for width, height in PIXELS:
                shown = pixels_of(processor, Image.fromarray(picture(width, height)))
                entries[f"once.{width}x{height}"] = shown.reshape(-1, shown.shape[-1]).numpy()
                with torch.no_grad():
                    rows = features(model, shown.double())
                entries[f"rows.{width}x{height}"] = lines(model, rows, shown.shape[-1] // PATCH // merge)
            entries.update(talk(model, processor, rng))
        write(args.out / f"{name}.golden", entries)
    if args.images:
        processor = processor_of(MERGE)
        files = {}
        for path in sorted(args.images.glob("*.png")):
            shown = pixels_of(processor, Image.open(path))
            files[f"once.{path.name}"] = shown.reshape(-1, shown.shape[-1]).numpy()
        write(args.out / "pixtral_files.golden", files)


if __name__ == "__main__":
    main()

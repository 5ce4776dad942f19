#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the goldens of tests/golden/vision: a tiny random vision encoder and preprocessed pictures.

    tools/golden/vision.py [--out tests/golden/vision] [--images FOLDER]

clip.gguf, clip.golden   A random LLaVA-1.5 (CLIP encoder, projector) made by `transformers` from a fixed seed,
                         converted by hf_to_gguf.py to F32, run by `transformers` in float64 on one picture of random
                         numbers.
llava.gguf, llava.golden A random language model for that encoder, as hf_to_gguf.py writes it, with the tokenizer of
                         tiny_models.py; logits of the pair, by `transformers` in float64, for tokens, a picture
                         and more tokens.
clip_next.gguf, next.golden  The same encoder as LLaVA-1.6 with tiles: `tiles.WIDTHxHEIGHT`, what its image processor
                         makes of a synthetic picture, [3 * SIZE * n, SIZE]; `rows.WIDTHxHEIGHT`, what `transformers`
                         makes of that, in float64, newline rows included.
preprocess.golden        The output of transformers' own image processors for synthetic pictures.
preprocess_files.golden  The same for the PNG files of FOLDER, if given.

Format as in tiny_models.py: entries of a line `name rows cols\\n` and rows * cols little-endian float32 values. An
entry of the preprocess files is called FIT.FILTER.SIZE.PICTURE, with [3 * SIZE, SIZE] values; a synthetic PICTURE is
WIDTHxHEIGHT, and `picture` below defines its pixels. Needs torch, transformers, gguf, pillow.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.golden import tiny_models

# 49 = 7 * 7: sizes that are not multiples of any vector length.
VISION = dict(
    hidden_size=40,
    intermediate_size=72,
    num_hidden_layers=4,
    num_attention_heads=5,
    image_size=37,
    patch_size=7,
    hidden_act="quick_gelu",
    layer_norm_eps=1e-5,
)
TEXT = dict(
    vocab_size=320,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=3,
    num_key_value_heads=3,
    head_dim=16,
    max_position_embeddings=512,
)
SIZES = (
    (37, 23),
    (23, 37),
    (64, 64),
    (31, 31),
    (1, 1),
    (1, 50),
    (50, 1),
    (333, 97),
    (97, 333),
    (640, 479),
    (5, 7),
    (48, 47),
    (200, 3),
    (255, 256),
    (24, 100),
    (101, 24),
    (24, 24),
    (719, 13),
    (90, 91),
    (127, 63),
)
FILES_SIZE, SYNTHETIC_SIZE = 40, 24
NEXT_SIZES = ((37, 23), (100, 41), (41, 100), (90, 91), (200, 9), (333, 97), (97, 333))


def write(path, entries):
    with open(path, "wb") as f:
        for name, values in entries.items():
            f.write(f"{name} {values.shape[0]} {values.shape[1]}\n".encode("ascii"))
            f.write(np.ascontiguousarray(values, dtype="<f4").tobytes())
    print(f"{path}: {len(entries)} entries, {path.stat().st_size} bytes")


def picture(width, height):
    """[height, width, 3]: noise where width + height is odd, a slope with edges where it is even."""
    y, x, c = np.meshgrid(
        np.arange(height, dtype=np.uint32),
        np.arange(width, dtype=np.uint32),
        np.arange(3, dtype=np.uint32),
        indexing="ij",
    )
    if (width + height) % 2:
        h = x * np.uint32(374761393) + y * np.uint32(668265263) + c * np.uint32(2147483647)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(1274126177)
        return ((h >> np.uint32(16)) & np.uint32(255)).astype(np.uint8)
    return ((x * 5 + y * 3 + c * 40 + ((x // 9 + y // 5) % 2) * 100) % 256).astype(np.uint8)


def processors(size):
    """(name, processor) for each way of making a picture square."""
    filters = (("bicubic", Image.Resampling.BICUBIC), ("bilinear", Image.Resampling.BILINEAR))
    for name, resample in filters:
        common = dict(resample=resample, crop_size=dict(height=size, width=size))
        yield f"crop.{name}.{size}", CLIPImageProcessorPil(size=dict(shortest_edge=size), **common)
        yield f"pad.{name}.{size}", LlavaImageProcessorPil(size=dict(shortest_edge=size), do_pad=True, **common)
        yield f"stretch.{name}.{size}", CLIPImageProcessorPil(size=dict(height=size, width=size), **common)


def preprocess(pictures, size):
    out = {}
    for i, (name, image) in enumerate(pictures):
        for j, (how, processor) in enumerate(processors(size)):
            if (i + j) % 3 == 0 or how.startswith(("crop.bicubic", "pad.bicubic")):
                values = processor(image, return_tensors="np")["pixel_values"][0]
                out[f"{how}.{name}"] = np.asarray(values, dtype=np.float32).reshape(3 * size, size)
    return out


def build(seed, **text):
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        text_config=transformers.LlamaConfig(**{**TEXT, **text}),
        image_token_index=7,
    )
    model = transformers.LlavaForConditionalGeneration(config).eval()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if "norm" in name and name.endswith("weight"):
                p.copy_(1.0 + 0.2 * torch.randn(p.shape, generator=g))
            elif name.endswith("bias"):
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
            else:
                wide = 2.0 if "q_proj" in name or "k_proj" in name else 1.0
                p.copy_(wide / p[0].numel() ** 0.5 * torch.randn(p.shape, generator=g))
    return model


def run(model, pixels):
    """Every named intermediate, [rows, cols]."""
    seen = {}

    def keep(name, module, before=False):
        def hook(m, inputs, output=None):
            value = inputs[0] if before else output[0] if isinstance(output, tuple) else output
            seen[name] = value.reshape(-1, value.shape[-1]).detach().numpy().copy()

        module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook)

    tower, projector = model.model.vision_tower, model.model.multi_modal_projector
    tower = getattr(tower, "vision_model", tower)
    keep("v.embd", tower.embeddings)
    keep("v.pre_ln", tower.pre_layrnorm)
    for i, layer in enumerate(tower.encoder.layers[:-1]):
        att = layer.self_attn
        for name, module in (
            ("ln1", layer.layer_norm1),
            ("q", att.q_proj),
            ("k", att.k_proj),
            ("v", att.v_proj),
            ("ln2", layer.layer_norm2),
            ("out", layer),
        ):
            keep(f"v.blk.{i}.{name}", module)
        keep(f"v.blk.{i}.mix", att.out_proj, before=True)
        keep(f"v.blk.{i}.mid", layer.layer_norm2, before=True)
    keep("mm.0", projector.linear_1)
    keep("mm.2", projector.linear_2)
    with torch.no_grad():
        model.model.get_image_features(pixel_values=pixels)
    return seen


def make_encoder(out, seed):
    model = build(seed)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        LlavaImageProcessorPil(size=dict(shortest_edge=VISION["image_size"])).save_pretrained(folder)
        hf_to_gguf.convert_folder(folder, out / "clip.gguf", "f32", name="tiny random clip", mmproj=True)
    side = VISION["image_size"]
    pixels = torch.tensor(np.random.default_rng(seed).standard_normal((1, 3, side, side)), dtype=torch.float32)
    entries = {"pixels": pixels[0].reshape(3 * side, side).numpy()}
    entries.update(run(model.double(), pixels.double()))
    write(out / "clip.golden", entries)


def make_pair(out, seed):
    """The encoder of make_encoder() and a deeper language model: its logits after tokens, a picture, tokens."""
    model = build(seed, num_hidden_layers=2)
    model.model.vision_tower.load_state_dict(build(seed).model.vision_tower.state_dict())
    model.model.multi_modal_projector.load_state_dict(build(seed).model.multi_modal_projector.state_dict())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tiny_models.write_tokenizer(Path(folder))
        hf_to_gguf.convert_folder(folder, out / "llava.gguf", "f32", name="tiny random llava")
    rng = np.random.default_rng(seed + 1)
    side, image = VISION["image_size"], model.config.image_token_index
    n_rows = (side // VISION["patch_size"]) ** 2
    pixels = torch.tensor(rng.standard_normal((1, 3, side, side)), dtype=torch.float32)
    before, after = rng.integers(image + 1, TEXT["vocab_size"], (2, 9)).tolist()
    ids = torch.tensor([before + [image] * n_rows + after])
    with torch.no_grad():
        logits = model.double()(
            input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels.double()
        ).logits[0]
    column = lambda values: np.array(values).reshape(-1, 1)
    write(
        out / "llava.golden",
        {
            "before": column(before),
            "pixels": pixels[0].reshape(3 * side, side).numpy(),
            "after": column(after),
            "logits": logits.numpy(),
        },
    )


def make_next(out, seed):
    side = VISION["image_size"]
    grids = [[side, 2 * side], [2 * side, side], [2 * side, 2 * side], [3 * side, side], [side, 3 * side]]
    config = transformers.LlavaNextConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        image_token_index=7,
        text_config=transformers.LlamaConfig(**TEXT),
        image_grid_pinpoints=grids,
    )
    model, plain = transformers.LlavaNextForConditionalGeneration(config).eval(), build(seed)
    model.model.vision_tower.load_state_dict(plain.model.vision_tower.state_dict())
    model.model.multi_modal_projector.load_state_dict(plain.model.multi_modal_projector.state_dict())
    with torch.no_grad():
        model.model.image_newline.copy_(torch.randn(TEXT["hidden_size"], generator=torch.Generator().manual_seed(seed)))
    processor = LlavaNextImageProcessorPil(
        size=dict(shortest_edge=side), crop_size=dict(height=side, width=side), image_grid_pinpoints=grids
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
        hf_to_gguf.convert_folder(folder, out / "clip_next.gguf", "f32", name="tiny random clip in tiles", mmproj=True)
    model, entries = model.double(), {}
    for width, height in NEXT_SIZES:
        inputs = processor(Image.fromarray(picture(width, height)), return_tensors="pt")
        pixels = inputs["pixel_values"].double()
        with torch.no_grad():
            rows = model.model.get_image_features(pixels, inputs["image_sizes"]).pooler_output
        if width * height < 9000:
            entries[f"tiles.{width}x{height}"] = pixels[0].reshape(-1, side).numpy()
        entries[f"rows.{width}x{height}"] = rows[0].numpy()
    write(out / "next.golden", entries)


def main():
    parser = argparse.ArgumentParser(description="Builds the goldens of tests/golden/vision.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--images", type=Path, help="folder of PNG files")
    parser.add_argument("--seed", type=int, default=20240607)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    write(
        args.out / "preprocess.golden",
        preprocess([(f"{w}x{h}", Image.fromarray(picture(w, h))) for w, h in SIZES], SYNTHETIC_SIZE),
    )
    if args.images:
        files = [(path.name, Image.open(path)) for path in sorted(args.images.glob("*.png"))]
        write(args.out / "preprocess_files.golden", preprocess(files, FILES_SIZE))
    make_encoder(args.out, args.seed)
    make_pair(args.out, args.seed)
    make_next(args.out, args.seed)


if __name__ == "__main__":
    main()

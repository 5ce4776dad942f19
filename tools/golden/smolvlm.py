#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/idefics3.gguf and smolvlm*: a tiny random SmolVLM with its reference numbers.

    tools/golden/smolvlm.py [--out tests/golden/vision] [--images FOLDER]

idefics3.gguf    the encoder and its connector made by `transformers` from a fixed seed, converted to F32 by
                 hf_to_gguf.py
smolvlm.gguf     its language model, with a vocabulary that has the words around pictures
smolvlm.golden   their results in `transformers`, in float64
smolvlm_files.golden   `squares.NAME`: its image processor's output for the PNG files of FOLDER, if given

Format as in tiny_models.py. Besides the intermediates of one square of random numbers (`pixels`):
  squares.WxH   what SmolVLM's own image processor makes of the synthetic picture of vision.py,
                [squares * 3 * SIZE, SIZE], the whole picture last
  rows.WxH      the connector's rows of all of them
  once.WxH      the same processor without splitting, as frames of a video are looked at
  ids.WxH       a chat turn of this picture and words, as its processor spells it; the picture's rows are -1
  logits.WxH    after the last token of that turn, [1, vocab]

Needs torch, transformers, gguf, jinja2, pillow.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import DEFAULT_CHAT_TEMPLATE, get_image_prompt_string

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.golden import tiny_models
from tools.golden.vision import picture, write

# 6 patches along a side, 3 rows: sizes that are not multiples of any vector length.
VISION = dict(
    hidden_size=40, intermediate_size=72, num_hidden_layers=3, num_attention_heads=5, image_size=36, patch_size=6
)
TEXT = dict(
    model_type="llama",
    vocab_size=320,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=3,
    head_dim=16,
    max_position_embeddings=512,
)
SCALE, LONGEST, FILES_SIZE = 2, 3 * VISION["image_size"], 20
SPECIALS = (
    "<|im_start|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    *(f"<row_{y}_col_{x}>" for y in (1, 2, 3) for x in (1, 2, 3)),
)
IMAGE = SPECIALS.index("<image>")
SIZES = ((90, 61), (61, 90), (200, 20), (1, 50), (36, 36), (109, 108), (333, 97), (7, 5))
WORDS = "the man and the"


def build(seed):
    config = transformers.SmolVLMConfig(
        vision_config=VISION, text_config=TEXT, scale_factor=SCALE, image_token_id=IMAGE
    )
    model = transformers.SmolVLMForConditionalGeneration(config).eval()
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

        return module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook)

    tower, connector = model.model.vision_model, model.model.connector
    hooks = [
        keep("v.embd", tower.embeddings),
        keep("v.post_ln", tower.post_layernorm),
        keep("mm.shuffle", connector.modality_projection, before=True),
        keep("mm.fc", connector.modality_projection),
    ]
    for i, layer in enumerate(tower.encoder.layers):
        att = layer.self_attn
        for name, module in (
            ("ln1", layer.layer_norm1),
            ("q", att.q_proj),
            ("k", att.k_proj),
            ("v", att.v_proj),
            ("ln2", layer.layer_norm2),
            ("out", layer),
        ):
            hooks.append(keep(f"v.blk.{i}.{name}", module))
        hooks.append(keep(f"v.blk.{i}.mix", att.out_proj, before=True))
        hooks.append(keep(f"v.blk.{i}.mid", layer.layer_norm2, before=True))
    with torch.no_grad():
        model.model.get_image_features(pixels[None, None])
    for hook in hooks:
        hook.remove()
    return seen


def processor_of(size, longest, **more):
    return SmolVLMImageProcessorPil(
        size=dict(longest_edge=longest),
        max_image_size=dict(longest_edge=size),
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        **more,
    )


def squares(processor, image):
    """[squares * 3 * size, size], and the numbers of rows and columns of squares."""
    out = processor(image, return_tensors="np", return_row_col_info=True)
    pixels = np.asarray(out["pixel_values"][0], dtype=np.float32)
    return pixels, out["rows"][0][0], out["cols"][0][0]


def turn(tokenizer, n_lines, n_columns):
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": WORDS}]}]
    text = tokenizer.apply_chat_template(
        messages, chat_template=DEFAULT_CHAT_TEMPLATE, add_generation_prompt=True, tokenize=False
    )
    n_rows = (VISION["image_size"] // VISION["patch_size"] // SCALE) ** 2
    shown = get_image_prompt_string(
        n_lines,
        n_columns,
        n_rows,
        fake_token_around_image=SPECIALS[2],
        image_token=SPECIALS[IMAGE],
        global_image_token=SPECIALS[4],
    )
    assert text.count(SPECIALS[IMAGE]) == 1
    return tokenizer(text.replace(SPECIALS[IMAGE], shown), add_special_tokens=False)["input_ids"]


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/idefics3.gguf and smolvlm*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--images", type=Path, help="folder of PNG files")
    parser.add_argument("--seed", type=int, default=20240607)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    model, side = build(args.seed), VISION["image_size"]
    processor = processor_of(side, LONGEST)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
        # Two newlines are one token, as in the real vocabulary: llama.cpp looks that token up.
        tiny_models.write_tokenizer(Path(folder), SPECIALS, SPECIALS[1], DEFAULT_CHAT_TEMPLATE, ("Ċ Ċ",))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
        hf_to_gguf.convert_folder(folder, args.out / "idefics3.gguf", "f32", name="tiny random smolvlm", mmproj=True)
        hf_to_gguf.convert_folder(folder, args.out / "smolvlm.gguf", "f32", name="tiny random smolvlm")
    model = model.double()
    pixels = torch.tensor(np.random.default_rng(args.seed).standard_normal((3, side, side)), dtype=torch.float32)
    entries = {"pixels": pixels.reshape(3 * side, side).numpy(), **run(model, pixels.double())}
    once = processor_of(side, LONGEST, do_image_splitting=False)
    for width, height in SIZES:
        image = Image.fromarray(picture(width, height))
        values, n_lines, n_columns = squares(processor, image)
        name = f"{width}x{height}"
        if len(values) <= 7:
            entries[f"squares.{name}"] = values.reshape(-1, side)
        entries[f"once.{name}"] = squares(once, image)[0].reshape(-1, side)
        ids = torch.tensor([turn(tokenizer, n_lines, n_columns)])
        shown = torch.tensor(values[None], dtype=torch.float64)
        with torch.no_grad():
            entries[f"rows.{name}"] = model.model.get_image_features(shown).pooler_output[0].numpy()
            out = model(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=shown)
        entries[f"ids.{name}"] = np.where(ids[0].numpy() == IMAGE, -1, ids[0].numpy()).reshape(-1, 1)
        entries[f"logits.{name}"] = out.logits[0, -1:].numpy()
    write(args.out / "smolvlm.golden", entries)
    if args.images:
        small = processor_of(FILES_SIZE, 3 * FILES_SIZE)
        files = {
            f"squares.{path.name}": squares(small, Image.open(path))[0].reshape(-1, FILES_SIZE)
            for path in sorted(args.images.glob("*.png"))
        }
        write(args.out / "smolvlm_files.golden", files)


if __name__ == "__main__":
    main()

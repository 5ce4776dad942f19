#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/blip2*: a tiny random BLIP-2 with its reference numbers.

    tools/golden/blip2.py [--out tests/golden/vision]

blip2.gguf       the encoder (vision transformer, Q-Former, projection) made by `transformers` from a fixed seed,
                 converted by hf_to_gguf.py to F32
blip2_opt.gguf   its language model
blip2.golden     what `transformers` makes of one picture of random numbers, in float64

Format as in tiny_models.py. Besides the named intermediates:
  signal.mass, signal.self.L, signal.cross.L   attention weights, recomputed here from the library's queries and
                   keys: received by each image token in the last block [1, n]; of the Q-Former's layers
                   [heads * queries, n]
  tokens, logits   a prompt after the picture's rows, and the logits of each of its tokens
  picture.WxH      what BLIP's own image processor makes of the synthetic picture of vision.py

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
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.golden.vision import picture, write

# 37 = 5 * 7 + 2: sizes that are not multiples of any vector length.
VISION = dict(
    hidden_size=40, intermediate_size=72, num_hidden_layers=3, num_attention_heads=5, image_size=37, patch_size=7
)
QFORMER = dict(
    vocab_size=8,
    hidden_size=24,
    num_hidden_layers=4,
    num_attention_heads=3,
    intermediate_size=56,
    encoder_hidden_size=VISION["hidden_size"],
    cross_attention_frequency=2,
)
TEXT = dict(
    model_type="opt",
    vocab_size=320,
    hidden_size=32,
    ffn_dim=72,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    dropout=0.0,
)
N_QUERIES, IMAGE_TOKEN, PROMPT = 12, 319, (2, 17, 45, 203, 9, 118)
PICTURES = ((90, 61), (31, 120), (37, 37), (1, 3))


def build(seed):
    config = transformers.Blip2Config(
        vision_config=VISION,
        qformer_config=QFORMER,
        text_config=TEXT,
        num_query_tokens=N_QUERIES,
        image_token_index=IMAGE_TOKEN,
    )
    model = transformers.Blip2ForConditionalGeneration(config).eval()
    g = torch.Generator().manual_seed(seed)
    width = VISION["hidden_size"]
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if "norm" in name.lower() and name.endswith("weight"):
                p.copy_(1.0 + 0.2 * torch.randn(p.shape, generator=g))
            elif name.endswith("qkv.bias"):
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
                p[width : 2 * width] = 0  # the library's models have no bias on keys
            elif name.endswith("bias"):
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
            elif name == "query_tokens" or "embedding" in name and p.ndim == 3:
                p.copy_(torch.randn(p.shape, generator=g))
            else:
                # Large enough that attention picks a few keys instead of averaging all of them.
                wide = 2.0 if any(part in name for part in ("query.", "key.", "qkv", "q_proj", "k_proj")) else 1.0
                p.copy_(wide / p[0].numel() ** 0.5 * torch.randn(p.shape, generator=g))
    return model


def parts(model):
    """(name, module, whether its input is meant) of every intermediate."""
    tower, qformer = model.vision_model, model.qformer
    yield "v.embd", tower.embeddings, False
    for i, layer in enumerate(tower.encoder.layers):
        for name, module, before in (
            ("ln1", layer.layer_norm1, False),
            ("qkv", layer.self_attn.qkv, False),
            ("mix", layer.self_attn.projection, True),
            ("mid", layer.layer_norm2, True),
            ("ln2", layer.layer_norm2, False),
            ("out", layer, False),
        ):
            yield f"v.blk.{i}.{name}", module, before
    yield "v.post_ln", tower.encoder, None
    yield "v.proj_norm", qformer.layernorm, False
    for i, layer in enumerate(qformer.encoder.layer):
        for kind, block in (("self", layer.attention), ("cross", getattr(layer, "crossattention", None))):
            if block is None:
                continue
            for name, module, before in (
                ("q", block.attention.query, False),
                ("k", block.attention.key, False),
                ("v", block.attention.value, False),
                ("mix", block.output.dense, True),
                ("out", block.output, False),
            ):
                yield f"v.proj_blk.{i}.{kind}_{name}", module, before
        yield f"v.proj_blk.{i}.out", layer, False
    yield "v.proj_linear", model.language_projection, False


def run(model, pixels):
    seen, hooks = {}, []

    def keep(name, module, before):
        def hook(m, inputs, output=None):
            value = inputs[0] if before else output[0] if isinstance(output, tuple) else output
            seen[name] = value.reshape(-1, value.shape[-1]).detach().numpy().copy()

        hooks.append(module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook))

    for name, module, before in parts(model):
        if before is not None:
            keep(name, module, before)
    ids = torch.tensor([[IMAGE_TOKEN] * N_QUERIES + list(PROMPT)])
    with torch.no_grad():
        # The norm after the last block runs a second time, for a pooled row that is not used here.
        seen["v.post_ln"] = model.vision_model(pixels).last_hidden_state[0].numpy()
        out = model(pixel_values=pixels, input_ids=ids, attention_mask=torch.ones_like(ids))
    for h in hooks:
        h.remove()
    return seen, out.logits[0, N_QUERIES:].numpy()


def weights(q, k, n_heads):
    """[heads, rows, columns]: softmax of scaled products."""
    head = lambda x: x.reshape(len(x), n_heads, -1).transpose(1, 0, 2)
    z = head(q) @ head(k).transpose(0, 2, 1) / (q.shape[1] // n_heads) ** 0.5
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def signals(seen):
    q, k, _ = np.split(seen[f"v.blk.{VISION['num_hidden_layers'] - 1}.qkv"], 3, axis=1)
    out = {"signal.mass": weights(q, k, VISION["num_attention_heads"]).sum(axis=(0, 1))[None, :]}
    for kind in ("self", "cross"):
        layers = [i for i in range(QFORMER["num_hidden_layers"]) if f"v.proj_blk.{i}.{kind}_q" in seen]
        for n, i in enumerate(layers):
            p = weights(
                seen[f"v.proj_blk.{i}.{kind}_q"], seen[f"v.proj_blk.{i}.{kind}_k"], QFORMER["num_attention_heads"]
            )
            out[f"signal.{kind}.{n}"] = p.reshape(-1, p.shape[-1])
    return out


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/blip2*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--seed", type=int, default=20240607)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    model, side = build(args.seed), VISION["image_size"]
    processor = BlipImageProcessorPil(size=dict(height=side, width=side))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
        hf_to_gguf.convert_folder(folder, args.out / "blip2.gguf", "f32", name="tiny random blip2", mmproj=True)
        hf_to_gguf.convert_folder(
            folder, args.out / "blip2_opt.gguf", "f32", name="tiny random blip2 opt", with_vocab=False
        )
    pixels = torch.tensor(np.random.default_rng(args.seed).standard_normal((1, 3, side, side)), dtype=torch.float32)
    seen, logits = run(model.double(), pixels.double())
    entries = {
        "pixels": pixels[0].reshape(3 * side, side).numpy(),
        **seen,
        **signals(seen),
        "tokens": np.array(PROMPT).reshape(-1, 1),
        "logits": logits,
    }
    for width, height in PICTURES:
        values = processor(Image.fromarray(picture(width, height)), return_tensors="np")["pixel_values"][0]
        entries[f"picture.{width}x{height}"] = np.asarray(values, dtype=np.float32).reshape(3 * side, side)
    write(args.out / "blip2.golden", entries)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Qwen (first generation) and Qwen-VL: GGUF architecture `qwen`; with --mmproj Qwen-VL's vision transformer and
resampler (GGUF architecture `clip`, projector `qwenvl_resampler`; src/vision/qwenvl_resampler.cc defines the names,
which no other program has).
"""

import numpy as np

from ..source import ConvertError
from . import llama

GGUF_ARCH = "qwen"
HF_NAMES = ("QWenLMHeadModel",)
MMPROJ_ARCH = "clip"

# The published code's defaults for keys that config.json may omit.
DEFAULTS = dict(
    layer_norm_epsilon=1e-6, max_position_embeddings=8192, rotary_emb_base=10000, rotary_pct=1.0, no_bias=True
)
N_QUERIES, EPS = 256, 1e-6
RESAMPLER_HEAD_DIM = 128
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)))
PICTURE_SPECIALS = ("<ref>", "</ref>", "<box>", "</box>", "<quad>", "</quad>", "<img>", "</img>", "<imgpad>")
# The turn markers of the published code; its folders have no template.
CHATML = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% "
    "endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

RENAMES = (
    ("transformer.visual.", "visual."),
    ("transformer.wte.", "model.embed_tokens."),
    ("transformer.ln_f.", "model.norm."),
    ("transformer.h.", "model.layers."),
)
# w1 is the half that is not gated.
LAYER = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.w2": "ffn_gate",
    "mlp.w1": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
BLOCK = {"ln_1": "ln1", "ln_2": "ln2", "attn.out_proj": "attn_out", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    config = source.config = {**DEFAULTS, **source.config}
    source.rename(RENAMES)
    source.special_tokens = SPECIALS + (PICTURE_SPECIALS if "visual" in config else ())
    if mmproj:
        if "visual" not in config:
            raise ConvertError("config.json: no `visual`: this is the language model alone")
        source.ignore_prefix("model.", "lm_head.")
        return
    source.ignore_prefix("visual.")
    source.ignore("attn.masked_bias")
    if not config["no_bias"]:
        raise ConvertError("config.json: no_bias=false has no GGUF form for qwen")
    config["rms_norm_eps"] = config["layer_norm_epsilon"]
    # The only place in a folder that defines the end of a turn.
    source.chat = source.optional_json("generation_config.json").get("chat_format") == "chatml"
    config.setdefault("eos_token", "<|im_end|>" if source.chat else "<|endoftext|>")


def metadata(source, writer, say):
    config, trained = source.config, source.get("seq_length", source.need("max_position_embeddings"))
    if source.get("kv_channels", source.head_dim()) != source.head_dim():
        raise ConvertError(f"config.json: kv_channels {config['kv_channels']} for heads of {source.head_dim()}")
    if source.get("use_dynamic_ntk") or source.get("use_logn_attn"):
        # Both apply only beyond the trained context and have no GGUF form; up to there the file is exact.
        if trained < source.need("max_position_embeddings"):
            say(
                f"use_dynamic_ntk, use_logn_attn: the file has neither and is exact up to {trained} tokens, which it "
                f"says"
            )
        config["max_position_embeddings"] = min(trained, source.need("max_position_embeddings"))
    llama.decoder_metadata(source, writer, say)
    if source.chat and not source.optional_json("tokenizer_config.json").get("chat_template"):
        writer.add_chat_template(CHATML)


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)


def resized(table, n):
    """[rows, columns] of positions, row by row in a square, for a square of n: cubic convolution (a = -0.75) of the
    lines, then of the columns, edges repeated."""
    side, to = int(round(len(table) ** 0.5)), int(round(n**0.5))
    if side * side != len(table):
        raise ConvertError(f"{len(table)} positions are no square")
    if side == to:
        return table
    a, weights = -0.75, np.zeros((to, side))
    for i in range(to):
        at = (i + 0.5) * side / to - 0.5
        first = int(np.floor(at))
        for j in range(first - 1, first + 3):
            x = abs(at - j)
            w = ((a + 2) * x - (a + 3)) * x * x + 1 if x <= 1 else ((x - 5) * x + 8) * x * a - 4 * a
            weights[i, min(max(j, 0), side - 1)] += w
    square = np.asarray(table, np.float64).reshape(side, side, -1)
    return np.einsum("iy,jx,yxc->ijc", weights, weights, square).reshape(n, -1).astype(np.float32)


def n_patches(source):
    visual = source.config["visual"]
    return (visual["image_size"] // visual["patch_size"]) ** 2


def mmproj_metadata(source, writer, say):
    visual = source.config["visual"]
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("qwenvl_resampler")
    writer.add_vision_projection_dim(visual["output_dim"])
    writer.add_vision_image_size(visual["image_size"])
    writer.add_vision_patch_size(visual["patch_size"])
    writer.add_vision_embedding_length(visual["width"])
    writer.add_vision_feed_forward_length(len(source.tensor("visual.transformer.resblocks.0.mlp.c_fc.bias")))
    writer.add_vision_block_count(visual["layers"])
    writer.add_vision_head_count(visual["heads"])
    writer.add_vision_attention_layernorm_eps(EPS)
    writer.add_vision_image_mean(CLIP_MEAN)
    writer.add_vision_image_std(CLIP_STD)
    key = "clip.vision.resampler."
    writer.add_uint32(f"{key}query_count", visual.get("n_queries", N_QUERIES))
    writer.add_uint32(f"{key}attention.head_count", visual["output_dim"] // RESAMPLER_HEAD_DIM)


def mmproj_tensors(source):
    both = lambda hf, name: ((f"{name}.{kind}", source.tensor(f"visual.{hf}.{kind}")) for kind in ("weight", "bias"))
    n_heads, n = source.config["visual"]["heads"], n_patches(source)
    yield "v.patch_embd.weight", source.tensor("visual.conv1.weight")
    yield "v.position_embd.weight", resized(source.tensor("visual.positional_embedding"), n)
    yield from both("ln_pre", "v.pre_ln")
    for i in range(source.config["visual"]["layers"]):
        block, to = f"transformer.resblocks.{i}.", f"v.blk.{i}."
        for hf, name in BLOCK.items():
            yield from both(block + hf, to + name)
        for kind in ("weight", "bias"):
            # q, k and v of each head are adjacent.
            qkv = source.tensor(f"visual.{block}attn.in_proj.{kind}")
            parts = qkv.reshape(n_heads, 3, -1, *qkv.shape[1:])
            for j, name in enumerate("qkv"):
                yield f"{to}attn_{name}.{kind}", parts[:, j].reshape(-1, *qkv.shape[1:])
    pool, positions = "visual.attn_pool.", source.tensor("visual.attn_pool.pos_embed")
    yield "resampler.query", source.tensor(f"{pool}query")
    yield "resampler.pos_embed", positions
    yield "resampler.pos_embed_k", resized(positions, n)
    yield "resampler.kv.weight", source.tensor(f"{pool}kv_proj.weight")
    yield from both("attn_pool.ln_q", "resampler.ln_q")
    yield from both("attn_pool.ln_kv", "resampler.ln_kv")
    for kind in ("weight", "bias"):
        for name, part in zip("qkv", np.split(source.tensor(f"{pool}attn.in_proj_{kind}"), 3)):
            yield f"resampler.attn.{name}.{kind}", part
    yield from both("attn_pool.attn.out_proj", "resampler.attn.out")
    yield from both("ln_post", "resampler.ln_post")
    yield "resampler.proj.weight", source.tensor("visual.proj").T  # the published code multiplies from the left

# SPDX-License-Identifier: Apache-2.0
"""Qwen2.5-VL: its vision transformer and merger to llama.cpp's `mmproj` file (GGUF architecture `clip`, projector
`qwen2.5vl_merger`), and the language model to a separate file of Qwen2-VL's architecture.

With --mmproj the encoder is converted, without it the language model.
"""

from ..source import ConvertError
from . import qwen2vl

GGUF_ARCH = qwen2vl.GGUF_ARCH
HF_NAMES = ("Qwen2_5_VLForConditionalGeneration",)
MMPROJ_ARCH = "clip"

VISION_DEFAULTS = dict(
    depth=32,
    hidden_size=1280,
    intermediate_size=3420,
    num_heads=16,
    patch_size=14,
    window_size=112,
    fullatt_block_indexes=(7, 15, 23, 31),
    tokens_per_second=4,
)
FIXED = dict(qwen2vl.FIXED, hidden_act="silu")
BLOCK = {
    "norm1": "ln1",
    "norm2": "ln2",
    "attn.proj": "attn_out",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def prepare(source, mmproj):
    qwen2vl.prepare_half(source, mmproj, VISION_DEFAULTS, FIXED)


metadata, tensors = qwen2vl.metadata, qwen2vl.tensors


def mmproj_metadata(source, writer, say):
    qwen2vl.write_mmproj(
        source, writer, "qwen2.5vl_merger", source.need("hidden_size"), source.need("intermediate_size")
    )
    full = list(source.need("fullatt_block_indexes"))
    every = full[0] + 1 if full else 0
    if not full or full != [i for i in range(source.need("depth")) if (i + 1) % every == 0]:
        raise ConvertError(f"config.json: fullatt_block_indexes {full}; this encoder is defined with every n-th block")
    writer.add_vision_use_silu(True)
    writer.add_vision_n_wa_pattern(every)
    writer.add_uint32("clip.vision.window_size", source.need("window_size"))
    writer.add_uint32("clip.vision.tokens_per_second", source.need("tokens_per_second"))


def mmproj_tensors(source):
    yield from qwen2vl.vit_tensors(source, BLOCK, qwen2vl.MERGER)

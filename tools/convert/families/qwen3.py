# SPDX-License-Identifier: Apache-2.0
"""Qwen3 (dense): GGUF architecture `qwen3`."""

from ..source import ConvertError
from . import llama

GGUF_ARCH = "qwen3"
HF_NAMES = ("Qwen3ForCausalLM",)

LAYER = {**llama.LAYER, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


def metadata(source, writer, say):
    if source.get("use_sliding_window", False):
        raise ConvertError("config.json: use_sliding_window is not converted for this architecture")
    llama.decoder_metadata(source, writer, say)


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)

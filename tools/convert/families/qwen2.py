# SPDX-License-Identifier: Apache-2.0
"""Qwen2 and Qwen2.5: GGUF architecture `qwen2`. RoPE halves as in Hugging Face, so no row moves."""

from ..source import ConvertError
from . import llama

GGUF_ARCH = "qwen2"
HF_NAMES = ("Qwen2ForCausalLM",)


def metadata(source, writer, say):
    if source.get("use_sliding_window", False):
        raise ConvertError("config.json: use_sliding_window=true has no GGUF form for qwen2")
    llama.decoder_metadata(source, writer, say)


def tensors(source):
    yield from llama.decoder_tensors(source, llama.LAYER)

# SPDX-License-Identifier: Apache-2.0
"""Seed-OSS: GGUF architecture `seed_oss`, which names the second norm as if it came after attention."""

from . import llama

GGUF_ARCH = "seed_oss"
HF_NAMES = ("SeedOssForCausalLM",)

LAYER = {**llama.LAYER, "post_attention_layernorm": "post_attention_norm"}


def metadata(source, writer, say):
    llama.decoder_metadata(source, writer, say)


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)

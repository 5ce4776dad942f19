# SPDX-License-Identifier: Apache-2.0
"""Arcee Foundation Models: GGUF architecture `arcee`."""

from . import llama

GGUF_ARCH = "arcee"
HF_NAMES = ("ArceeForCausalLM",)

LAYER = {hf: name for hf, name in llama.LAYER.items() if hf != "mlp.gate_proj"}


def metadata(source, writer, say):
    llama.decoder_metadata(source, writer, say, act="relu2")


def tensors(source):
    yield from llama.interleaved_tensors(source, LAYER)

# SPDX-License-Identifier: Apache-2.0
"""Gemma, the first: GGUF architecture `gemma`."""

from . import gemma2, llama

GGUF_ARCH = "gemma"
HF_NAMES = ("GemmaForCausalLM",)


def metadata(source, writer, say):
    # Early folders say gelu and mean this.
    if source.get("hidden_activation") is None:
        source.config["hidden_activation"] = "gelu_pytorch_tanh"
    llama.decoder_metadata(source, writer, say, act="gelu_pytorch_tanh")


def tensors(source):
    yield from gemma2.tensors(source, llama.LAYER)

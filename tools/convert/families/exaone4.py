# SPDX-License-Identifier: Apache-2.0
"""EXAONE 4.0: GGUF architecture `exaone4`."""

from . import llama, olmo2

GGUF_ARCH = "exaone4"
HF_NAMES = ("Exaone4ForCausalLM",)


def metadata(source, writer, say):
    llama.decoder_metadata(source, writer, say)
    llama.window_metadata(source, writer, every=4)


def tensors(source):
    yield from llama.decoder_tensors(source, olmo2.LAYER)

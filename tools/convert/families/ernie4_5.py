# SPDX-License-Identifier: Apache-2.0
"""ERNIE 4.5, dense: GGUF architecture `ernie4_5`. Both formats rotate interleaved pairs, so no row moves."""

from . import llama

GGUF_ARCH = "ernie4_5"
HF_NAMES = ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM")


def metadata(source, writer, say):
    llama.decoder_metadata(source, writer, say)


def tensors(source):
    yield from llama.decoder_tensors(source, llama.LAYER, tied=True)

# SPDX-License-Identifier: Apache-2.0
"""Nemotron-4 and Minitron: GGUF architecture `nemotron`, whose norms hold their weights plus one."""

from . import arcee, llama

GGUF_ARCH = "nemotron"
HF_NAMES = ("NemotronForCausalLM",)


def metadata(source, writer, say):
    source.config.setdefault("partial_rotary_factor", 0.5)
    llama.decoder_metadata(source, writer, say, act="relu2", eps="norm_eps")


def tensors(source):
    for name, array in llama.decoder_tensors(source, arcee.LAYER):
        yield name, array + 1 if name.endswith("norm.weight") else array

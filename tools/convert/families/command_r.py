# SPDX-License-Identifier: Apache-2.0
"""Command R and Aya: GGUF architecture `command-r`."""

from . import cohere2

GGUF_ARCH = "command-r"
HF_NAMES = ("CohereForCausalLM",)

metadata, tensors = cohere2.decoder_metadata, cohere2.tensors

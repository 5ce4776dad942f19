# SPDX-License-Identifier: Apache-2.0
"""dots.llm1: GGUF architecture `dots1`."""

from .. import experts
from ..source import ConvertError
from . import llama, qwen3

GGUF_ARCH = "dots1"
HF_NAMES = ("Dots1ForCausalLM",)


def metadata(source, writer, say):
    if "sliding_attention" in (source.get("layer_types") or []):
        raise ConvertError("config.json: layer_types with windows have no GGUF form for dots1")
    llama.decoder_metadata(source, writer, say)
    experts.write_sigmoid(source, writer)


def tensors(source):
    yield from llama.decoder_tensors(source, llama.without_mlp(qwen3.LAYER))
    yield from experts.behind_dense(source, source.get("first_k_dense_replace", 0))

# SPDX-License-Identifier: Apache-2.0
"""Qwen3-VL, dense, language model: GGUF architecture `qwen3vl`. The vision encoder is left out."""

from . import qwen3

GGUF_ARCH = "qwen3vl"
HF_NAMES = ("Qwen3VLForConditionalGeneration",)


def prepare(source, mmproj):
    """Keeps only the language model."""
    text = source.config.get("text_config")
    if text is not None:
        source.config = {"tie_word_embeddings": source.get("tie_word_embeddings", False), **text}
    source.rename((("model.language_model.", "model."),))
    source.ignore_prefix("model.visual.")


def write_sections(source, writer):
    params = source.rope()[1]
    sections = params.get("mrope_section") or source.need("mrope_section")
    writer.add_rope_dimension_sections([*sections, 0])


def metadata(source, writer, say):
    qwen3.metadata(source, writer, say)
    write_sections(source, writer)


tensors = qwen3.tensors

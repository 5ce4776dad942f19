# SPDX-License-Identifier: Apache-2.0
"""Ministral 3 and others saved like it: GGUF architecture `mistral3`. A vision encoder is left out."""

from ..source import ConvertError
from . import llama

GGUF_ARCH = "mistral3"
HF_NAMES = ("Ministral3ForCausalLM", "Mistral3ForConditionalGeneration")

RENAMES = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
)


def prepare(source, mmproj):
    """Keeps only the language model of a folder that also has a vision encoder."""
    text = source.config.get("text_config")
    if text is None:
        return
    source.config = {"tie_word_embeddings": source.get("tie_word_embeddings", False), **text}
    if (kind := source.get("model_type", "ministral3")) not in ("ministral3", "mistral"):
        raise ConvertError(f"config.json: language model `{kind}`; this architecture is converted with ministral3")
    source.rename(RENAMES)
    source.ignore_prefix(
        "vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."
    )


def metadata(source, writer, say):
    if source.get("sliding_window"):
        raise ConvertError("config.json: sliding_window is not converted for this architecture")
    llama.decoder_metadata(source, writer, say)
    if beta := source.rope()[1].get("llama_4_scaling_beta"):
        writer.add_attn_temperature_scale(float(beta))


tensors = llama.tensors

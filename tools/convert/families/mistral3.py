# SPDX-License-Identifier: Apache-2.0
"""Ministral 3 and others saved like it: GGUF architecture `mistral3`; with --mmproj the vision encoder, Pixtral's."""

from .. import pixtral_tower
from ..source import ConvertError
from . import llama

GGUF_ARCH = "mistral3"
MMPROJ_ARCH = "clip"
HF_NAMES = ("Ministral3ForCausalLM", "Mistral3ForConditionalGeneration")

RENAMES = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
    ("model.vision_tower.", "vision_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
)


def prepare(source, mmproj):
    """Makes a folder with both halves look like the one that is being converted."""
    whole = source.whole_config = source.config
    text = whole.get("text_config")
    if text is None:
        if mmproj:
            raise ConvertError("config.json: this model has no vision encoder")
        return
    if mmproj:
        source.rename(RENAMES)
        source.config = {**pixtral_tower.DEFAULTS, **(whole.get("vision_config") or {})}
        if (kind := source.get("model_type", "pixtral")) != "pixtral" or whole.get("vision_feature_layer", -1) != -1:
            raise ConvertError(
                f"config.json: vision encoder `{kind}`, vision_feature_layer {whole.get('vision_feature_layer')}; this "
                "architecture is defined with the last layer of pixtral"
            )
        source.ignore_prefix("model.", "lm_head.")
        return
    source.config = {"tie_word_embeddings": source.get("tie_word_embeddings", False), **text}
    if (kind := source.get("model_type", "ministral3")) not in ("ministral3", "mistral"):
        raise ConvertError(f"config.json: language model `{kind}`; this architecture is converted with ministral3")
    source.rename(RENAMES)
    source.ignore_prefix("vision_tower.", "multi_modal_projector.")


def metadata(source, writer, say):
    if source.get("sliding_window"):
        raise ConvertError("config.json: sliding_window is not converted for this architecture")
    llama.decoder_metadata(source, writer, say)
    if beta := source.rope()[1].get("llama_4_scaling_beta"):
        writer.add_attn_temperature_scale(float(beta))


tensors = llama.tensors


def mmproj_metadata(source, writer, say):
    text = source.whole_config["text_config"]
    n_embd = source.shape("multi_modal_projector.linear_2.weight")[0]
    merge = source.whole_config.get("spatial_merge_size", 2)
    pixtral_tower.metadata(source, writer, merge, n_embd, text.get("rms_norm_eps", pixtral_tower.NORM_EPS))


mmproj_tensors = pixtral_tower.tensors

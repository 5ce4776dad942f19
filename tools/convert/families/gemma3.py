# SPDX-License-Identifier: Apache-2.0
"""Gemma 3, language model: GGUF architecture `gemma3`. The vision encoder that most sizes have is omitted."""

from ..source import ConvertError
from . import gemma2

GGUF_ARCH = "gemma3"
HF_NAMES = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")

# transformers' defaults for keys that the text part of config.json may omit.
TEXT_DEFAULTS = dict(
    vocab_size=262208,
    hidden_size=2304,
    intermediate_size=9216,
    num_hidden_layers=26,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=256,
    max_position_embeddings=131072,
    rms_norm_eps=1e-6,
    rope_theta=1000000.0,
    query_pre_attn_scalar=256,
    sliding_window=4096,
)

LAYER = {**gemma2.LAYER, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


def prepare(source, mmproj):
    """Keeps only the language model of a folder that also has a vision encoder."""
    text = source.config.get("text_config")
    if text is not None:
        source.config = {**TEXT_DEFAULTS, **text}
        source.rename(
            (
                ("language_model.model.", "model."),
                ("language_model.lm_head.", "lm_head."),
                ("model.language_model.", "model."),
            )
        )
        source.ignore_prefix(
            "vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."
        )


def metadata(source, writer, say):
    gemma2.decoder_metadata(source, writer, say, 6)
    if source.get("attn_logit_softcapping"):
        raise ConvertError("config.json: attn_logit_softcapping; this architecture is defined without")
    if cap := source.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(cap)
    local = (source.get("rope_parameters") or {}).get("sliding_attention", {})
    if local.get("rope_type", "default") != "default":
        raise ConvertError("config.json: window layers with scaled RoPE are not converted")
    base = local.get("rope_theta") or source.get("rope_local_base_freq", 10000.0)
    if base != 10000.0:  # assumed by every reader
        writer.add_rope_freq_base_swa(base)


def tensors(source):
    yield from gemma2.tensors(source, LAYER)

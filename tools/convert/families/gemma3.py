# SPDX-License-Identifier: Apache-2.0
"""Gemma 3: the language model to GGUF architecture `gemma3`; with --mmproj the vision encoder that most sizes have to
llama.cpp's `mmproj` file (architecture `clip`, projector `gemma3`)."""

from ..source import ConvertError
from . import gemma2, smolvlm

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

# Of the vision part.
VISION_DEFAULTS = dict(
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=12,
    num_attention_heads=12,
    image_size=224,
    patch_size=16,
    hidden_act="gelu_pytorch_tanh",
    layer_norm_eps=1e-6,
)
MMPROJ_ARCH = "clip"
BILINEAR = 2
USUAL_SCALE = 4  # what a file without the key means

LAYER = {**gemma2.LAYER, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


VISION_PREFIXES = ("vision_tower.", "multi_modal_projector.")


def prepare(source, mmproj):
    """Makes a folder with both halves look like the one that is being converted."""
    whole = source.whole_config = source.config
    text = whole.get("text_config")
    if text is None:
        if mmproj:
            raise ConvertError("config.json: this model has no vision encoder")
        return
    source.rename(
        (
            ("language_model.model.", "model."),
            ("language_model.lm_head.", "lm_head."),
            ("model.language_model.", "model."),
            *((f"model.{prefix}", prefix) for prefix in VISION_PREFIXES),
            ("vision_tower.vision_model.", "vision_tower."),
            ("vision_tower.", "vision_model."),
        )
    )
    if mmproj:
        source.config = {**VISION_DEFAULTS, **(whole.get("vision_config") or {})}
        if (act := source.config["hidden_act"]) != "gelu_pytorch_tanh":
            raise ConvertError(f"config.json: hidden_act `{act}`; this encoder is defined with gelu_pytorch_tanh")
        source.ignore_prefix("model.", "lm_head.", "vision_model.head.")
    else:
        source.config = {**TEXT_DEFAULTS, **text}
        source.ignore_prefix("vision_model.", "multi_modal_projector.")


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


def mmproj_metadata(source, writer, say):
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    size, patch = source.need("image_size"), source.need("patch_size")
    sides = processor.get("size") or {}
    if (sides.get("height", size), sides.get("width", size)) != (size, size) or processor.get(
        "resample", BILINEAR
    ) != BILINEAR:
        raise ConvertError(f"preprocessor_config.json: size {sides}; this encoder is defined with bilinear {size}")
    if processor.get("do_pan_and_scan"):
        say("pan and scan, which the processor asks for, is not done: a picture is shown as a whole")
    n_side = round(source.whole_config.get("mm_tokens_per_image", 256) ** 0.5)
    scale = size // patch // n_side
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("gemma3")
    writer.add_vision_use_gelu(True)
    writer.add_vision_projection_dim(source.shape("multi_modal_projector.mm_input_projection_weight")[1])
    if scale != USUAL_SCALE:
        writer.add_vision_projector_scale_factor(scale)
    writer.add_vision_image_size(size)
    writer.add_vision_patch_size(patch)
    writer.add_vision_embedding_length(source.need("hidden_size"))
    writer.add_vision_feed_forward_length(source.need("intermediate_size"))
    writer.add_vision_block_count(source.need("num_hidden_layers"))
    writer.add_vision_head_count(source.need("num_attention_heads"))
    writer.add_vision_attention_layernorm_eps(source.need("layer_norm_eps"))
    writer.add_vision_image_mean(processor.get("image_mean", smolvlm.HALF))
    writer.add_vision_image_std(processor.get("image_std", smolvlm.HALF))


def mmproj_tensors(source):
    yield from smolvlm.siglip_tensors(source)
    yield "mm.input_projection.weight", source.tensor("multi_modal_projector.mm_input_projection_weight")
    # Stored as an offset from 1, as all norms of the language model.
    yield "mm.soft_emb_norm.weight", source.tensor("multi_modal_projector.mm_soft_emb_norm.weight") + 1.0

# SPDX-License-Identifier: Apache-2.0
"""LLaVA-1.5 and LLaVA-1.6 (LLaVA-NeXT): a CLIP encoder and its projector to llama.cpp's `mmproj` file (GGUF
architecture `clip`), and the language model to a separate `llama` file. Pixtral 12B's folder has the same name.

With --mmproj the encoder is converted, without it the language model.
"""

from .. import clip_tower, pixtral_tower
from ..source import ConvertError
from . import llama

GGUF_ARCH = "llama"
HF_NAMES = ("LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration")
MMPROJ_ARCH = "clip"

# transformers' defaults for keys that config.json may omit.
TEXT_DEFAULTS = dict(
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
    rms_norm_eps=1e-6,
    vocab_size=32000,
)
VISION_DEFAULTS = dict(clip_tower.DEFAULTS, image_size=336)
GRIDS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))

# Current tensor names <- older names.
RENAMES = (
    ("model.image_newline", "image_newline"),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
    ("model.vision_tower.", "vision_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
    ("vision_tower.vision_model.", "vision_tower."),
)


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    source.whole_config = source.config
    source.rename(RENAMES)
    source.pixtral = (source.config.get("vision_config") or {}).get("model_type") == "pixtral"
    if mmproj and source.pixtral:
        source.config = {**pixtral_tower.DEFAULTS, **source.config["vision_config"]}
        if (layer := source.whole_config.get("vision_feature_layer", -1)) != -1:
            raise ConvertError(f"config.json: vision_feature_layer {layer}; Pixtral is defined with the last one")
        source.ignore_prefix("model.", "lm_head.")
    elif mmproj:
        source.config = {**VISION_DEFAULTS, **(source.config.get("vision_config") or {})}
        if (kind := source.config.get("model_type", "clip_vision_model")) != "clip_vision_model":
            raise ConvertError(
                f"config.json: vision encoder `{kind}`; this architecture is defined with clip_vision_model"
            )
        source.ignore_prefix("model.", "lm_head.")
    else:
        tied = bool(source.config.get("tie_word_embeddings"))
        source.config = {**TEXT_DEFAULTS, "tie_word_embeddings": tied, **(source.config.get("text_config") or {})}
        wanted = "mistral" if source.pixtral else "llama"
        if (kind := source.config.get("model_type", "llama")) != wanted:
            raise ConvertError(f"config.json: language model `{kind}`; this architecture is converted with {wanted}")
        source.ignore_prefix("vision_tower.", "multi_modal_projector.", "image_newline")


metadata, tensors = llama.metadata, llama.tensors


def feature_layer(source):
    return clip_tower.feature_layer(source, source.whole_config.get("vision_feature_layer", -2))


def mmproj_metadata(source, writer, say):
    config = source.whole_config
    if (act := config.get("projector_hidden_act", "gelu")) != "gelu":
        raise ConvertError(f"config.json: projector_hidden_act `{act}`; this projector is defined with gelu")
    if source.pixtral:
        if (strategy := config.get("vision_feature_select_strategy", "full")) != "full":
            raise ConvertError(f"config.json: vision_feature_select_strategy `{strategy}`; Pixtral has no class token")
        return pixtral_tower.metadata(source, writer, None, source.shape("multi_modal_projector.linear_2.weight")[0])
    if (strategy := config.get("vision_feature_select_strategy", "default")) != "default":
        raise ConvertError(
            f"config.json: vision_feature_select_strategy `{strategy}`; only `default` drops the class token"
        )
    text = {**TEXT_DEFAULTS, **(config.get("text_config") or {})}
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    clip_tower.metadata(source, writer, "mlp", feature_layer(source), processor, text["hidden_size"])
    if source.has("image_newline"):
        # The source has (height, width) pairs, GGUF has (width, height).
        pairs = config.get("image_grid_pinpoints", GRIDS)
        writer.add_array(
            "clip.vision.image_grid_pinpoints", [side for height, width in pairs for side in (width, height)]
        )
        writer.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")
    # The folder's processor decides how non-square pictures are handled; LLaVA-1.5 itself pads them.
    pads = processor.get("do_pad") or not processor.get("do_center_crop")
    writer.add_string("weir.vision.fit", "pad" if pads else "crop")


def mmproj_tensors(source):
    if source.pixtral:
        yield from pixtral_tower.tensors(source)
        return
    if source.has("image_newline"):
        yield "model.image_newline", source.tensor("image_newline").reshape(-1)
    yield from clip_tower.tensors(source, feature_layer(source))
    for hf, name in (("linear_1", "mm.0"), ("linear_2", "mm.2")):
        yield f"{name}.weight", source.tensor(f"multi_modal_projector.{hf}.weight")
        if source.has(f"multi_modal_projector.{hf}.bias"):
            yield f"{name}.bias", source.tensor(f"multi_modal_projector.{hf}.bias")

# SPDX-License-Identifier: Apache-2.0
"""LFM2-VL, LFM2.5-VL: the encoder to llama.cpp's `mmproj` file (GGUF architecture `clip`, projector `lfm2`), and the
language model to a separate `lfm2` file.

With --mmproj the encoder is converted, without it the language model.
"""

from ..source import ConvertError
from . import lfm2, smolvlm

GGUF_ARCH = lfm2.GGUF_ARCH
HF_NAMES = ("Lfm2VlForConditionalGeneration",)
MMPROJ_ARCH = "clip"

VISION_DEFAULTS = dict(
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=12,
    num_attention_heads=12,
    patch_size=16,
    num_patches=256,
    hidden_act="gelu_pytorch_tanh",
    layer_norm_eps=1e-6,
)
# Of the released processors, which readers assume: what differs is written.
USUAL = dict(min_image_tokens=64, max_image_tokens=256, min_tiles=2, max_tiles=10, tile_size=512)
TOLERANCE, BILINEAR = 2.0, 2

RENAMES = (
    ("model.language_model.", "model."),
    ("language_model.", "model."),
    ("model.vision_tower.", "vision_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
    ("vision_tower.vision_model.", "vision_tower."),
    ("vision_tower.", "vision_model."),
)


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    whole = source.whole_config = source.config
    source.rename(RENAMES)
    if mmproj:
        source.config = {**VISION_DEFAULTS, **(whole.get("vision_config") or {})}
        acts = source.config["hidden_act"], whole.get("projector_hidden_act", "gelu")
        if acts != ("gelu_pytorch_tanh", "gelu") or whole.get("vision_feature_layer", -1) != -1:
            raise ConvertError(
                f"config.json: hidden_act {acts}, vision_feature_layer {whole.get('vision_feature_layer')}; this "
                "encoder is defined with gelu_pytorch_tanh, gelu and the last layer"
            )
        source.ignore_prefix("model.", "lm_head.", "vision_model.head.")
        return
    text = whole.get("text_config") or {}
    if (kind := text.get("model_type", "lfm2")) != "lfm2":
        raise ConvertError(f"config.json: language model `{kind}`; this architecture is converted with lfm2")
    source.config = {**text, "tie_word_embeddings": not source.has("lm_head.weight")}
    source.ignore_prefix("vision_model.", "multi_modal_projector.")


metadata, tensors = lfm2.metadata, lfm2.tensors


def mmproj_metadata(source, writer, say):
    whole = source.whole_config
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    says = {key: processor.get(key, usual) for key, usual in USUAL.items()}
    scale, patch = whole.get("downsample_factor", 2), source.need("patch_size")
    asked = (processor.get("max_pixels_tolerance", TOLERANCE), processor.get("resample", BILINEAR))
    shape = processor.get("downsample_factor", scale), processor.get("encoder_patch_size", patch)
    if asked != (TOLERANCE, BILINEAR) or shape != (scale, patch) or not processor.get("use_thumbnail", True):
        raise ConvertError(
            f"preprocessor_config.json: max_pixels_tolerance and resample {asked}, downsample_factor and "
            f"encoder_patch_size {shape}; this encoder is defined with {(TOLERANCE, BILINEAR)}, {(scale, patch)} and a "
            "thumbnail"
        )
    if not processor.get("do_image_splitting", True):
        says["min_tiles"] = says["max_tiles"] = 1
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("lfm2")
    writer.add_vision_use_gelu(True)
    writer.add_vision_projection_dim(source.shape("multi_modal_projector.linear_2.weight")[0])
    writer.add_vision_projector_scale_factor(scale)
    writer.add_vision_image_size(patch * round(source.need("num_patches") ** 0.5))
    writer.add_vision_patch_size(patch)
    writer.add_vision_embedding_length(source.need("hidden_size"))
    writer.add_vision_feed_forward_length(source.need("intermediate_size"))
    writer.add_vision_block_count(source.need("num_hidden_layers"))
    writer.add_vision_head_count(source.need("num_attention_heads"))
    writer.add_vision_attention_layernorm_eps(source.need("layer_norm_eps"))
    writer.add_vision_image_mean(processor.get("image_mean", smolvlm.HALF))
    writer.add_vision_image_std(processor.get("image_std", smolvlm.HALF))
    # llama.cpp has no keys for these.
    for key, name in (
        ("min_image_tokens", "weir.vision.min_rows"),
        ("max_image_tokens", "weir.vision.max_rows"),
        ("tile_size", "weir.vision.tile_size"),
        ("min_tiles", "clip.vision.preproc_min_tiles"),
        ("max_tiles", "clip.vision.preproc_max_tiles"),
    ):
        if says[key] != USUAL[key]:
            writer.add_uint32(name, says[key])


def mmproj_tensors(source):
    patch = source.need("patch_size")
    for name, array in smolvlm.siglip_tensors(source):
        if name == "v.patch_embd.weight":
            # Of a linear layer over line, column and colour; a convolution's has colours first.
            array = array.reshape(-1, patch, patch, 3).transpose(0, 3, 1, 2)
        yield name, array
    for hf, name in (("layer_norm", "mm.input_norm"), ("linear_1", "mm.1"), ("linear_2", "mm.2")):
        for kind in ("weight", "bias"):
            if source.has(tensor := f"multi_modal_projector.{hf}.{kind}"):
                yield f"{name}.{kind}", source.tensor(tensor)

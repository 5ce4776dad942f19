"""LLaVA-1.5 and LLaVA-1.6 (LLaVA-NeXT): a CLIP encoder and its projector to llama.cpp's `mmproj` file (GGUF architecture `clip`), and the language model
beside it to a `llama` file of its own.

With --mmproj the encoder is converted, without it the language model.
"""

from . import llama
from .source import ConvertError

GGUF_ARCH = "llama"
HF_NAMES = ("LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration")
MMPROJ_ARCH = "clip"

# What a config.json may leave out because it is transformers' default.
TEXT_DEFAULTS = dict(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
                     max_position_embeddings=2048, rms_norm_eps=1e-6, vocab_size=32000)
VISION_DEFAULTS = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, image_size=336,
                       patch_size=14, hidden_act="quick_gelu", layer_norm_eps=1e-5)
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
GRIDS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))

# Names of today's files <- names of older ones.
RENAMES = (("model.image_newline", "image_newline"), ("language_model.model.", "model."), ("language_model.lm_head.", "lm_head."), ("model.language_model.", "model."),
           ("model.vision_tower.", "vision_tower."), ("model.multi_modal_projector.", "multi_modal_projector."),
           ("vision_tower.vision_model.", "vision_tower."))

LAYER = {"layer_norm1": "ln1", "layer_norm2": "ln2", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}


def prepare(source, mmproj):
    """Makes the folder look like the half of it that is converted."""
    source.whole_config = source.config
    source.rename(RENAMES)
    if mmproj:
        source.config = {**VISION_DEFAULTS, **(source.config.get("vision_config") or {})}
        if (kind := source.config.get("model_type", "clip_vision_model")) != "clip_vision_model":
            raise ConvertError(f"config.json: vision encoder `{kind}`; this architecture is defined with clip_vision_model")
        source.ignore_prefix("model.", "lm_head.")
    else:
        tied = bool(source.config.get("tie_word_embeddings"))
        source.config = {**TEXT_DEFAULTS, "tie_word_embeddings": tied, **(source.config.get("text_config") or {})}
        if (kind := source.config.get("model_type", "llama")) != "llama":
            raise ConvertError(f"config.json: language model `{kind}`; this architecture is converted with llama")
        source.ignore_prefix("vision_tower.", "multi_modal_projector.", "image_newline")


metadata, tensors = llama.metadata, llama.tensors


def feature_layer(source):
    """How many blocks run: -1 is the last one's output, -2 the one's before it."""
    layer = source.whole_config.get("vision_feature_layer", -2)
    if not isinstance(layer, int):
        raise ConvertError(f"config.json: vision_feature_layer {layer}; one layer is converted")
    n = source.need("num_hidden_layers")
    return layer if layer >= 0 else n + 1 + layer


def mmproj_metadata(source, writer, say):
    config = source.whole_config
    if (strategy := config.get("vision_feature_select_strategy", "default")) != "default":
        raise ConvertError(f"config.json: vision_feature_select_strategy `{strategy}`; only `default` drops the class token")
    if (act := config.get("projector_hidden_act", "gelu")) != "gelu":
        raise ConvertError(f"config.json: projector_hidden_act `{act}`; this projector is defined with gelu")
    if (act := source.need("hidden_act")) not in ("gelu", "quick_gelu"):
        raise ConvertError(f"config.json: vision hidden_act `{act}` is not converted")
    text = {**TEXT_DEFAULTS, **(config.get("text_config") or {})}
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("mlp")
    writer.add_bool("clip.has_llava_projector", True)
    writer.add_bool("clip.use_gelu", act == "gelu")
    writer.add_vision_projection_dim(text["hidden_size"])
    writer.add_vision_image_size(source.need("image_size"))
    writer.add_vision_patch_size(source.need("patch_size"))
    writer.add_vision_embedding_length(source.need("hidden_size"))
    writer.add_vision_feed_forward_length(source.need("intermediate_size"))
    # Blocks behind the chosen layer are left out.
    writer.add_vision_block_count(feature_layer(source))
    writer.add_vision_head_count(source.need("num_attention_heads"))
    writer.add_vision_attention_layernorm_eps(source.need("layer_norm_eps"))
    writer.add_vision_image_mean(processor.get("image_mean", CLIP_MEAN))
    writer.add_vision_image_std(processor.get("image_std", CLIP_STD))
    writer.add_array("clip.vision.feature_layer", [feature_layer(source)])
    if source.has("image_newline"):
        # Pairs of height and width there, of width and height here.
        pairs = config.get("image_grid_pinpoints", GRIDS)
        writer.add_array("clip.vision.image_grid_pinpoints", [side for height, width in pairs for side in (width, height)])
        writer.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")
    # The folder's own processor decides what becomes of pictures that are no squares; LLaVA-1.5 itself pads them.
    pads = processor.get("do_pad") or not processor.get("do_center_crop")
    writer.add_string("weir.vision.fit", "pad" if pads else "crop")


def mmproj_tensors(source):
    tower = "vision_tower."
    if source.has("image_newline"):
        yield "model.image_newline", source.tensor("image_newline").reshape(-1)
    yield "v.class_embd", source.tensor(f"{tower}embeddings.class_embedding").reshape(-1)
    yield "v.patch_embd.weight", source.tensor(f"{tower}embeddings.patch_embedding.weight")
    yield "v.position_embd.weight", source.tensor(f"{tower}embeddings.position_embedding.weight")
    for kind in ("weight", "bias"):
        yield f"v.pre_ln.{kind}", source.tensor(f"{tower}pre_layrnorm.{kind}")
    n_used = feature_layer(source)
    for i in range(source.need("num_hidden_layers")):
        for hf, name in LAYER.items():
            for kind in ("weight", "bias"):
                array = source.tensor(f"{tower}encoder.layers.{i}.{hf}.{kind}")
                if i < n_used:
                    yield f"v.blk.{i}.{name}.{kind}", array
    source.ignore("post_layernorm.weight")
    source.ignore("post_layernorm.bias")
    source.ignore("position_ids")
    for hf, name in (("linear_1", "mm.0"), ("linear_2", "mm.2")):
        yield f"{name}.weight", source.tensor(f"multi_modal_projector.{hf}.weight")
        if source.has(f"multi_modal_projector.{hf}.bias"):
            yield f"{name}.bias", source.tensor(f"multi_modal_projector.{hf}.bias")

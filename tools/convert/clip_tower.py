# SPDX-License-Identifier: Apache-2.0
"""CLIP's vision transformer in a `clip` file: shared by LLaVA and families built like it."""

import json

from .source import ConvertError

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
# Defaults: ViT-L/14.
DEFAULTS = dict(
    hidden_size=1024,
    intermediate_size=4096,
    num_hidden_layers=24,
    num_attention_heads=16,
    image_size=224,
    patch_size=14,
    hidden_act="quick_gelu",
    layer_norm_eps=1e-5,
)

LAYER = {
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}


def require(source, fixed):
    """Rejects a folder whose settings differ from those that an encoder is defined with."""
    for key, value in fixed.items():
        if source.whole_config.get(key, value) != value:
            raise ConvertError(f"config.json: {key} `{source.whole_config[key]}`; this encoder is defined with {value}")


def beside(source):
    """For families whose folder names the encoder (`mm_vision_tower`) and may not hold it: reads it from
    FOLDER/vision_tower. The encoder's tensors are then named vision_tower.*; its settings are in source.config, the
    full settings in source.whole_config."""
    source.whole_config, source.config = source.config, dict(DEFAULTS)
    source.rename((("model.vision_tower.vision_tower.vision_model.", "vision_tower."),))
    folder = source.folder / "vision_tower"
    if source.has("vision_tower.embeddings.class_embedding"):
        pass
    elif (folder / "config.json").is_file():
        for shard in sorted(folder.glob("*.safetensors")):
            source.index(shard)
        source.rename((("vision_model.", "vision_tower."),))
        source.ignore_prefix("text_model.", "text_projection.", "visual_projection.", "logit_scale")
    else:
        raise ConvertError(
            f"{source.folder} does not hold its vision encoder: download "
            f"{source.whole_config.get('mm_vision_tower')} to {folder}"
        )
    if (folder / "config.json").is_file():
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        source.config.update(config.get("vision_config") or config)


def feature_layer(source, layer):
    """Number of blocks to run: -1 is the output of the last one, -2 of the one before it."""
    if not isinstance(layer, int):
        raise ConvertError(f"config.json: vision_feature_layer {layer}; one layer is converted")
    return layer if layer >= 0 else source.need("num_hidden_layers") + 1 + layer


def metadata(source, writer, projector, n_used, processor, n_out):
    if (act := source.need("hidden_act")) not in ("gelu", "quick_gelu"):
        raise ConvertError(f"config.json: vision hidden_act `{act}` is not converted")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(projector)
    if projector == "mlp":
        writer.add_bool("clip.has_llava_projector", True)
    writer.add_bool("clip.use_gelu", act == "gelu")
    writer.add_vision_projection_dim(n_out)
    writer.add_vision_image_size(source.need("image_size"))
    writer.add_vision_patch_size(source.need("patch_size"))
    writer.add_vision_embedding_length(source.need("hidden_size"))
    writer.add_vision_feed_forward_length(source.need("intermediate_size"))
    # Blocks after the chosen layer are omitted.
    writer.add_vision_block_count(n_used)
    writer.add_vision_head_count(source.need("num_attention_heads"))
    writer.add_vision_attention_layernorm_eps(source.need("layer_norm_eps"))
    writer.add_vision_image_mean(processor.get("image_mean", CLIP_MEAN))
    writer.add_vision_image_std(processor.get("image_std", CLIP_STD))
    writer.add_array("clip.vision.feature_layer", [n_used])


def tensors(source, n_used):
    tower = "vision_tower."
    yield "v.class_embd", source.tensor(f"{tower}embeddings.class_embedding").reshape(-1)
    yield "v.patch_embd.weight", source.tensor(f"{tower}embeddings.patch_embedding.weight")
    yield "v.position_embd.weight", source.tensor(f"{tower}embeddings.position_embedding.weight")
    for kind in ("weight", "bias"):
        yield f"v.pre_ln.{kind}", source.tensor(f"{tower}pre_layrnorm.{kind}")
    for i in range(source.need("num_hidden_layers")):
        for hf, name in LAYER.items():
            for kind in ("weight", "bias"):
                array = source.tensor(f"{tower}encoder.layers.{i}.{hf}.{kind}")
                if i < n_used:
                    yield f"v.blk.{i}.{name}.{kind}", array
    source.ignore("post_layernorm.weight")
    source.ignore("post_layernorm.bias")
    source.ignore("position_ids")

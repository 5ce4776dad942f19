# SPDX-License-Identifier: Apache-2.0
"""InternVL 2.5, 3 and 3.5: the encoder to llama.cpp's `mmproj` file (GGUF architecture `clip`, projector `internvl`),
and the language model to a file of its own architecture. Folders of both forms: the authors' and that of transformers.

With --mmproj the encoder is converted, without it the language model.
"""

import numpy as np

from ..source import ConvertError
from . import internlm2, llama, qwen2, qwen3, qwen3moe

HF_NAMES = ("InternVLForConditionalGeneration", "InternVLChatModel")
MMPROJ_ARCH = "clip"
LANGUAGE = {family.GGUF_ARCH: family for family in (internlm2, llama, qwen2, qwen3)} | {"qwen3_moe": qwen3moe}

VISION_DEFAULTS = dict(
    hidden_size=1024,
    intermediate_size=4096,
    num_hidden_layers=24,
    num_attention_heads=16,
    image_size=448,
    patch_size=14,
    hidden_act="gelu",
    layer_norm_eps=1e-6,
)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BICUBIC = 3

# The authors' names on the right.
RENAMES = (
    ("model.language_model.", "language_model.model."),
    ("lm_head.", "language_model.lm_head."),
    ("model.vision_tower.", "vision_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
    ("multi_modal_projector.layer_norm.", "mlp1.0."),
    ("multi_modal_projector.linear_1.", "mlp1.1."),
    ("multi_modal_projector.linear_2.", "mlp1.3."),
    ("vision_tower.embeddings.cls_token", "vision_model.embeddings.class_embedding"),
    ("vision_tower.embeddings.patch_embeddings.projection.", "vision_model.embeddings.patch_embedding."),
    ("vision_tower.embeddings.position_embeddings", "vision_model.embeddings.position_embedding"),
    ("vision_tower.encoder.layer.", "vision_model.encoder.layers."),
)
# Those of transformers on the right.
LAYER_NAMES = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.projection_layer",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
LAYER = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}


def one(value):
    """Sizes may be a number or a pair of equal ones."""
    sides = value if isinstance(value, (list, tuple)) else [value]
    if len(set(sides)) != 1:
        raise ConvertError(f"config.json: {sides} pixels; this encoder is defined with squares")
    return int(sides[0])


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    whole = source.whole_config = source.config
    if (form := whole.get("ps_version", "v2")) != "v2":
        raise ConvertError(f"config.json: ps_version `{form}`; this encoder is defined with v2")
    source.rename(RENAMES)
    if mmproj:
        source.config = {**VISION_DEFAULTS, **(whole.get("vision_config") or {})}
        if (act := source.config["hidden_act"]) != "gelu":
            raise ConvertError(f"config.json: hidden_act `{act}`; this encoder is defined with gelu")
        source.ignore_prefix("language_model.")
        return
    text = whole.get("text_config") or whole.get("llm_config") or {}
    source.family = LANGUAGE.get(kind := text.get("model_type", "qwen2"))
    if source.family is None:
        raise ConvertError(f"config.json: language model `{kind}` is not converted; known: {', '.join(LANGUAGE)}")
    source.config = {**text, "tie_word_embeddings": not source.has("language_model.lm_head.weight")}
    source.ignore_prefix("vision_model.", "vision_tower.", "mlp1.")
    source.rename((("language_model.", ""),))
    if kind == "internlm2":
        source.config["tie_word_embeddings"] = False
        internlm2.prepare(source, False)


def gguf_arch(source):
    return source.family.GGUF_ARCH


def metadata(source, writer, say):
    source.family.metadata(source, writer, say)


def tensors(source):
    yield from source.family.tensors(source)


def mmproj_metadata(source, writer, say):
    whole = source.whole_config
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    size = one(source.need("image_size"))
    sides = processor.get("size") or {}
    if (sides.get("height", size), sides.get("width", size), processor.get("resample", BICUBIC)) != (
        size,
        size,
        BICUBIC,
    ):
        raise ConvertError(f"preprocessor_config.json: tiles of {sides}; this encoder is defined with bicubic {size}")
    most = whole.get("max_dynamic_patch") or processor.get("max_patches", 12)
    least = whole.get("min_dynamic_patch") or processor.get("min_patches", 1)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("internvl")
    writer.add_vision_use_gelu(True)
    writer.add_vision_projection_dim(source.shape("mlp1.3.weight")[0])
    writer.add_vision_projector_scale_factor(round(1 / whole.get("downsample_ratio", 0.5)))
    writer.add_vision_image_size(size)
    writer.add_vision_preproc_min_tiles(least)
    writer.add_vision_preproc_max_tiles(most)
    writer.add_vision_patch_size(one(source.need("patch_size")))
    writer.add_vision_embedding_length(source.need("hidden_size"))
    writer.add_vision_feed_forward_length(source.need("intermediate_size"))
    writer.add_vision_block_count(source.need("num_hidden_layers"))
    writer.add_vision_head_count(source.need("num_attention_heads"))
    writer.add_vision_attention_layernorm_eps(source.need("layer_norm_eps"))
    writer.add_vision_image_mean(processor.get("image_mean", MEAN))
    writer.add_vision_image_std(processor.get("image_std", STD))


def both(source, hf, name):
    yield f"{name}.weight", source.tensor(f"{hf}.weight")
    if source.has(f"{hf}.bias"):
        yield f"{name}.bias", source.tensor(f"{hf}.bias")


def block(source, hf, to):
    """A block under the authors' names, or under those of transformers."""
    if source.has(f"{hf}.attn.qkv.weight"):
        for kind in ("weight", "bias"):
            if source.has(f"{hf}.attn.qkv.{kind}"):
                for name, part in zip("qkv", np.split(source.tensor(f"{hf}.attn.qkv.{kind}"), 3)):
                    yield f"{to}.attn_{name}.{kind}", part
        names, scales, norms = {}, ("ls1", "ls2"), "attn"
    else:
        for name in "qkv":
            yield from both(source, f"{hf}.attention.{name}_proj", f"{to}.attn_{name}")
        names, scales, norms = LAYER_NAMES, ("lambda_1", "lambda_2"), "attention"
    for authors, name in LAYER.items():
        yield from both(source, f"{hf}.{names.get(authors, authors)}", f"{to}.{name}")
    for scale, name in zip(scales, ("ls1", "ls2")):
        yield f"{to}.{name}.weight", source.tensor(f"{hf}.{scale}")
    for name in "qk":
        if source.has(norm := f"{hf}.{norms}.{name}_norm.weight"):
            yield f"{to}.attn_{name}_norm.weight", source.tensor(norm)


def mmproj_tensors(source):
    yield "v.class_embd", source.tensor("vision_model.embeddings.class_embedding").reshape(-1)
    yield from both(source, "vision_model.embeddings.patch_embedding", "v.patch_embd")
    positions = source.tensor("vision_model.embeddings.position_embedding")
    yield "v.position_embd.weight", positions.reshape(positions.shape[-2:])
    for i in range(source.need("num_hidden_layers")):
        yield from block(source, f"vision_model.encoder.layers.{i}", f"v.blk.{i}")
    for layer in (0, 1, 3):
        yield from both(source, f"mlp1.{layer}", f"mm.model.mlp.{layer}")

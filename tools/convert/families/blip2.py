# SPDX-License-Identifier: Apache-2.0
"""BLIP-2: EVA's ViT-g and the Q-Former to an encoder file (GGUF architecture `clip`, projector `qformer`), and the OPT
language model to a separate file. src/vision/blip2.cc defines the names, which no other program has.

With --mmproj the encoder is converted, without it the language model.
"""

from ..source import ConvertError
from . import opt

GGUF_ARCH = "opt"
HF_NAMES = ("Blip2ForConditionalGeneration", "Blip2Model")
MMPROJ_ARCH = "clip"

# transformers' defaults for keys that config.json may omit.
VISION_DEFAULTS = dict(
    hidden_size=1408,
    intermediate_size=6144,
    num_hidden_layers=39,
    num_attention_heads=16,
    image_size=224,
    patch_size=14,
    hidden_act="gelu",
    layer_norm_eps=1e-6,
)
QFORMER_DEFAULTS = dict(
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=12,
    num_attention_heads=12,
    hidden_act="gelu",
    layer_norm_eps=1e-12,
    cross_attention_frequency=2,
    use_qformer_text_input=False,
)
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

# Current tensor names <- other names.
RENAMES = (
    ("model.vision_model.", "vision_model."),
    ("model.qformer.", "qformer."),
    ("model.query_tokens", "query_tokens"),
    ("model.language_projection.", "language_projection."),
    ("language_model.lm_head.", "lm_head."),
    ("language_model.model.decoder.", opt.DECODER),
    ("model.language_model.decoder.", opt.DECODER),
)

BLOCK = {
    "layer_norm1": "ln1",
    "self_attn.qkv": "attn_qkv",
    "self_attn.projection": "attn_out",
    "layer_norm2": "ln2",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
ATTENTION = {
    "attention.query": "q",
    "attention.key": "k",
    "attention.value": "v",
    "output.dense": "out",
    "output.LayerNorm": "norm",
}
QUERY_FFN = {
    "intermediate_query.dense": "ffn_up",
    "output_query.dense": "ffn_down",
    "output_query.LayerNorm": "ffn_norm",
}


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    source.whole_config = source.config
    source.rename(RENAMES)
    if mmproj:
        source.config = {**VISION_DEFAULTS, **(source.config.get("vision_config") or {})}
        source.qformer = {**QFORMER_DEFAULTS, **(source.whole_config.get("qformer_config") or {})}
        if source.qformer["use_qformer_text_input"]:
            raise ConvertError("config.json: a Q-Former that reads text is another model")
        for where in (source.config, source.qformer):
            if where["hidden_act"] != "gelu":
                raise ConvertError(
                    f"config.json: hidden_act `{where['hidden_act']}`; this encoder is defined with gelu"
                )
        source.ignore_prefix("model.", "lm_head.")
    else:
        source.config = dict(source.config.get("text_config") or {})
        if (kind := source.config.get("model_type", "opt")) != "opt":
            raise ConvertError(f"config.json: language model `{kind}`; this architecture is converted with opt")
        opt.prepare(source, mmproj)
        source.ignore_prefix("vision_model.", "qformer.", "query_tokens", "language_projection.")


metadata, tensors = opt.metadata, opt.tensors


def mmproj_metadata(source, writer, say):
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    size = source.need("image_size")
    wanted = processor.get("size", size)
    if not isinstance(wanted, dict):  # written by old processors
        wanted = {"height": wanted, "width": wanted}
    if wanted.get("height") != size or wanted.get("width") != size or processor.get("resample", 3) != 3:
        raise ConvertError(
            f"preprocessor_config.json: size {wanted}, resample {processor.get('resample')}; this encoder is "
            f"defined with bicubic squares of {size}"
        )
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("qformer")
    # Other language models name their width differently (T5: d_model), so it is read from the tensor.
    writer.add_vision_projection_dim(source.tensor("language_projection.weight").shape[0])
    writer.add_vision_image_size(size)
    writer.add_vision_patch_size(source.need("patch_size"))
    writer.add_vision_embedding_length(source.need("hidden_size"))
    writer.add_vision_feed_forward_length(source.need("intermediate_size"))
    writer.add_vision_block_count(source.need("num_hidden_layers"))
    writer.add_vision_head_count(source.need("num_attention_heads"))
    writer.add_vision_attention_layernorm_eps(source.need("layer_norm_eps"))
    writer.add_vision_image_mean(processor.get("image_mean", CLIP_MEAN))
    writer.add_vision_image_std(processor.get("image_std", CLIP_STD))
    qformer, key = source.qformer, "clip.vision.qformer."
    writer.add_uint32(f"{key}query_count", source.tensor("query_tokens").shape[-2])
    writer.add_uint32(f"{key}embedding_length", qformer["hidden_size"])
    writer.add_uint32(f"{key}feed_forward_length", qformer["intermediate_size"])
    writer.add_uint32(f"{key}block_count", qformer["num_hidden_layers"])
    writer.add_uint32(f"{key}attention.head_count", qformer["num_attention_heads"])
    writer.add_float32(f"{key}attention.layer_norm_epsilon", qformer["layer_norm_eps"])


def both(source, hf, name):
    yield f"{name}.weight", source.tensor(f"{hf}.weight")
    if source.has(f"{hf}.bias"):
        yield f"{name}.bias", source.tensor(f"{hf}.bias")


def mmproj_tensors(source):
    embeddings = "vision_model.embeddings."
    yield "v.class_embd", source.tensor(f"{embeddings}class_embedding").reshape(-1)
    position = source.tensor(f"{embeddings}position_embedding")
    yield "v.position_embd.weight", position.reshape(position.shape[-2:])
    yield from both(source, f"{embeddings}patch_embedding", "v.patch_embd")
    for i in range(source.need("num_hidden_layers")):
        for hf, name in BLOCK.items():
            yield from both(source, f"vision_model.encoder.layers.{i}.{hf}", f"v.blk.{i}.{name}")
    yield from both(source, "vision_model.post_layernorm", "v.post_ln")
    queries = source.tensor("query_tokens")
    yield "v.proj_query", queries.reshape(queries.shape[-2:])
    yield from both(source, "qformer.layernorm", "v.proj_norm")
    for i in range(source.qformer["num_hidden_layers"]):
        layer, to = f"qformer.encoder.layer.{i}.", f"v.proj_blk.{i}."
        for hf, name in ATTENTION.items():
            yield from both(source, f"{layer}attention.{hf}", f"{to}self_attn_{name}")
        if i % source.qformer["cross_attention_frequency"] == 0:
            for hf, name in ATTENTION.items():
                yield from both(source, f"{layer}crossattention.{hf}", f"{to}cross_attn_{name}")
        for hf, name in QUERY_FFN.items():
            yield from both(source, f"{layer}{hf}", f"{to}{name}")
    yield from both(source, "language_projection", "v.proj_linear")
    source.ignore_prefix("qformer.embeddings.")
    source.ignore("position_ids")

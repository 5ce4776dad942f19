# SPDX-License-Identifier: Apache-2.0
"""Pixtral's vision encoder, which Pixtral 12B and Mistral 3 have, to llama.cpp's `mmproj` file."""

from .families import llama
from .source import ConvertError

# transformers' defaults for keys that config.json may omit.
DEFAULTS = dict(
    hidden_size=1024,
    intermediate_size=4096,
    num_hidden_layers=24,
    num_attention_heads=16,
    image_size=1024,
    patch_size=16,
    hidden_act="gelu",
    rope_theta=10000.0,
)
NORM_EPS = 1e-5  # of all norms; config.json has no key
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
BICUBIC = 3
LINE_END = "[IMG_BREAK]"

LAYER = {
    "attention_norm": "ln1",
    "ffn_norm": "ln2",
    "attention.v_proj": "attn_v",
    "attention.o_proj": "attn_out",
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
}


def one(value):
    """Sizes may be a number, a pair of equal ones, or named sides."""
    sides = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
    if len(set(sides)) != 1:
        raise ConvertError(f"config.json: {value} pixels; this encoder is defined with squares")
    return int(next(iter(sides)))


def line_end(source):
    """The number of the word behind each line of a picture."""
    for token in source.optional_json("tokenizer.json").get("added_tokens", []):
        if token["content"] == LINE_END:
            return token["id"]
    raise ConvertError(f"tokenizer.json: no token {LINE_END}, which ends the lines of pictures")


def metadata(source, writer, merge, n_embd, text_eps=NORM_EPS):
    """`source.config` is the encoder's; `merge`: patches along a side of what becomes one row."""
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    size, act = one(source.need("image_size")), source.need("hidden_act")
    longest = (processor.get("size") or {}).get("longest_edge", size)
    if longest != size or processor.get("resample", BICUBIC) != BICUBIC:
        raise ConvertError(
            f"preprocessor_config.json: size {longest}, resample {processor.get('resample')}; this encoder is defined "
            f"with bicubic pictures of at most {size}"
        )
    theta = (source.get("rope_parameters") or {}).get("rope_theta", source.get("rope_theta"))
    if act not in ("silu", "gelu") or theta != DEFAULTS["rope_theta"] or text_eps != NORM_EPS:
        raise ConvertError(
            f"config.json: hidden_act `{act}`, rope_theta {theta}, rms_norm_eps {text_eps}; this encoder is defined "
            f"with silu or gelu, {DEFAULTS['rope_theta']:g} and {NORM_EPS:g}"
        )
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("pixtral")
    (writer.add_vision_use_silu if act == "silu" else writer.add_vision_use_gelu)(True)
    writer.add_vision_projection_dim(n_embd)
    if merge is not None:
        writer.add_vision_spatial_merge_size(merge)
    writer.add_vision_image_size(size)
    writer.add_vision_patch_size(one(source.need("patch_size")))
    writer.add_vision_embedding_length(source.need("hidden_size"))
    writer.add_vision_feed_forward_length(source.need("intermediate_size"))
    writer.add_vision_block_count(source.need("num_hidden_layers"))
    writer.add_vision_head_count(source.need("num_attention_heads"))
    writer.add_vision_attention_layernorm_eps(NORM_EPS)
    writer.add_vision_image_mean(processor.get("image_mean", MEAN))
    writer.add_vision_image_std(processor.get("image_std", STD))


def tensors(source):
    """Of names as transformers has them, without `model.` in front; rows of q and k as llama.cpp interleaves them."""
    yield "v.patch_embd.weight", source.tensor("vision_tower.patch_conv.weight")
    yield "v.pre_ln.weight", source.tensor("vision_tower.ln_pre.weight")
    n_heads = source.need("num_attention_heads")
    for i in range(source.need("num_hidden_layers")):
        hf, to = f"vision_tower.transformer.layers.{i}", f"v.blk.{i}"
        for name in "qk":
            rows = source.tensor(f"{hf}.attention.{name}_proj.weight")
            yield f"{to}.attn_{name}.weight", llama.interleave(rows, n_heads)
        for name, short in LAYER.items():
            yield f"{to}.{short}.weight", source.tensor(f"{hf}.{name}.weight")
    if source.has("multi_modal_projector.patch_merger.merging_layer.weight"):
        yield "mm.input_norm.weight", source.tensor("multi_modal_projector.norm.weight")
        yield "mm.patch_merger.weight", source.tensor("multi_modal_projector.patch_merger.merging_layer.weight")
    for hf, name in (("linear_1", "mm.1"), ("linear_2", "mm.2")):
        for kind in ("weight", "bias"):
            if source.has(tensor := f"multi_modal_projector.{hf}.{kind}"):
                yield f"{name}.{kind}", source.tensor(tensor)
    yield "v.token_embd.img_break", source.tensor("model.embed_tokens.weight")[line_end(source)]

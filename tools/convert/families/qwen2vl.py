# SPDX-License-Identifier: Apache-2.0
"""Qwen2-VL: its vision transformer and merger to llama.cpp's `mmproj` file (GGUF architecture `clip`, projector
`qwen2vl_merger`), and the language model to a separate `qwen2vl` file.

With --mmproj the encoder is converted, without it the language model.
"""

from ..source import ConvertError
from . import llama, qwen2

GGUF_ARCH = "qwen2vl"
HF_NAMES = ("Qwen2VLForConditionalGeneration",)
MMPROJ_ARCH = "clip"

# transformers' defaults for keys that config.json may omit.
VISION_DEFAULTS = dict(
    depth=32,
    embed_dim=1280,
    num_heads=16,
    mlp_ratio=4,
    patch_size=14,
    spatial_merge_size=2,
    temporal_patch_size=2,
    hidden_act="quick_gelu",
)
FIXED = dict(spatial_merge_size=2, temporal_patch_size=2, hidden_act="quick_gelu", in_channels=3)
SECTIONS = (16, 24, 24)
MIN_PIXELS, MAX_PIXELS = 56 * 56, 28 * 28 * 1280
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
EPS = 1e-6

RENAMES = (("model.language_model.", "model."), ("model.visual.", "visual."))
BLOCK = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    source.rename(RENAMES)
    # Older configurations keep the language model's settings at the top level, next to the encoder's.
    text = {**source.config, **(source.config.get("text_config") or {})}
    if mmproj:
        source.text = text
        source.config = {**VISION_DEFAULTS, **(source.config.get("vision_config") or {})}
        for key, value in FIXED.items():
            if source.config.get(key, value) != value:
                raise ConvertError(f"config.json: {key} {source.config[key]}; this encoder is defined with {value}")
        source.ignore_prefix("model.", "lm_head.")
    else:
        source.config = {**text, "tie_word_embeddings": not source.has("lm_head.weight")}
        source.ignore_prefix("visual.")


def metadata(source, writer, say):
    qwen2.metadata(source, writer, say)
    sections = list(source.rope()[1].get("mrope_section", SECTIONS))
    if len(sections) != 3 or sum(sections) != source.n_rot() // 2:
        raise ConvertError(f"config.json: mrope_section {sections} for {source.n_rot() // 2} rotated pairs")
    writer.add_rope_dimension_sections(sections + [0])


def tensors(source):
    yield from llama.decoder_tensors(source, llama.LAYER)


def mmproj_metadata(source, writer, say):
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    size = processor.get("size") or {}
    if processor.get("resample", 3) != 3:
        raise ConvertError(
            f"preprocessor_config.json: resample {processor['resample']}; this encoder is defined with bicubic"
        )
    width = source.need("embed_dim")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("qwen2vl_merger")
    writer.add_vision_projection_dim(source.text["hidden_size"])
    writer.add_vision_image_size(source.get("image_size", 560))  # some readers require one; any size works
    writer.add_vision_min_pixels(processor.get("min_pixels") or size.get("shortest_edge") or MIN_PIXELS)
    writer.add_vision_max_pixels(processor.get("max_pixels") or size.get("longest_edge") or MAX_PIXELS)
    writer.add_vision_patch_size(source.need("patch_size"))
    writer.add_vision_embedding_length(width)
    writer.add_vision_feed_forward_length(int(width * source.need("mlp_ratio")))
    writer.add_vision_block_count(source.need("depth"))
    writer.add_vision_head_count(source.need("num_heads"))
    writer.add_vision_attention_layernorm_eps(EPS)
    writer.add_vision_image_mean(processor.get("image_mean", CLIP_MEAN))
    writer.add_vision_image_std(processor.get("image_std", CLIP_STD))


def mmproj_tensors(source):
    both = lambda hf, name: ((f"{name}.{kind}", source.tensor(f"{hf}.{kind}")) for kind in ("weight", "bias"))
    kernel = source.tensor("visual.patch_embed.proj.weight")  # [width, colours, frames, patch, patch]
    yield "v.patch_embd.weight", kernel[:, :, 0]
    yield "v.patch_embd.weight.1", kernel[:, :, 1]
    for i in range(source.need("depth")):
        block, to = f"visual.blocks.{i}.", f"v.blk.{i}."
        for hf, name in BLOCK.items():
            yield from both(block + hf, to + name)
        for kind in ("weight", "bias"):
            qkv = source.tensor(f"{block}attn.qkv.{kind}")
            for j, name in enumerate("qkv"):
                yield f"{to}attn_{name}.{kind}", qkv[j * len(qkv) // 3 : (j + 1) * len(qkv) // 3]
    yield from both("visual.merger.ln_q", "v.post_ln")
    yield from both("visual.merger.mlp.0", "mm.0")
    yield from both("visual.merger.mlp.2", "mm.2")
    source.ignore("rotary_pos_emb.inv_freq")

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
FIXED = dict(spatial_merge_size=2, hidden_act="quick_gelu", in_channels=3)
FRAMES = (1, 2)  # that a patch may cover
SECTIONS = (16, 24, 24)
MIN_PIXELS, MAX_PIXELS = 56 * 56, 28 * 28 * 1280
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)
EPS = 1e-6

RENAMES = (("model.language_model.", "model."), ("model.visual.", "visual."))
MERGER = {"ln_q": "v.post_ln", "mlp.0": "mm.0", "mlp.2": "mm.2"}
BLOCK = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    prepare_half(source, mmproj, VISION_DEFAULTS, FIXED)


def prepare_half(source, mmproj, defaults, fixed):
    source.rename(RENAMES)
    # Older configurations keep the language model's settings at the top level, next to the encoder's.
    text = {**source.config, **(source.config.get("text_config") or {})}
    if mmproj:
        source.text = text
        source.config = {**defaults, **(source.config.get("vision_config") or {})}
        for key, value in fixed.items():
            if source.config.get(key, value) != value:
                raise ConvertError(f"config.json: {key} {source.config[key]}; this encoder is defined with {value}")
        if (frames := source.get("temporal_patch_size", 2)) not in FRAMES:
            raise ConvertError(
                f"config.json: temporal_patch_size {frames}; a patch of this encoder covers one frame or two"
            )
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


def write_mmproj(
    source,
    writer,
    projector,
    width,
    n_ff,
    bounds=(MIN_PIXELS, MAX_PIXELS),
    most=None,
    say=None,
    mean=CLIP_MEAN,
    std=CLIP_STD,
):
    """What the encoders of Qwen2-VL and its successors have in common. `bounds`: pixels of a picture whose processor
    says none; `most`: what the file says instead of more."""
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    size = processor.get("size") or {}
    if processor.get("resample", 3) != 3:
        raise ConvertError(
            f"preprocessor_config.json: resample {processor['resample']}; this encoder is defined with bicubic"
        )
    smallest = processor.get("min_pixels") or size.get("shortest_edge") or bounds[0]
    largest = processor.get("max_pixels") or size.get("longest_edge") or bounds[1]
    if most is not None and largest > most:
        say(f"pictures of up to {largest} pixels: the file says {most}, so that less memory is set aside")
        largest = most
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(projector)
    writer.add_vision_projection_dim(source.text["hidden_size"])
    writer.add_vision_image_size(source.get("image_size", 560))  # some readers require one; any size works
    writer.add_vision_min_pixels(smallest)
    writer.add_vision_max_pixels(largest)
    writer.add_vision_patch_size(source.need("patch_size"))
    writer.add_vision_embedding_length(width)
    writer.add_vision_feed_forward_length(n_ff)
    writer.add_vision_block_count(source.need("depth"))
    writer.add_vision_head_count(source.need("num_heads"))
    writer.add_vision_attention_layernorm_eps(EPS)
    writer.add_vision_image_mean(processor.get("image_mean", mean))
    writer.add_vision_image_std(processor.get("image_std", std))
    if source.get("temporal_patch_size", 2) == 1:
        writer.add_uint32("clip.vision.temporal_patch_size", 1)


def mmproj_metadata(source, writer, say):
    width = source.need("embed_dim")
    write_mmproj(source, writer, "qwen2vl_merger", width, int(width * source.need("mlp_ratio")))


def both(source, hf, name):
    for kind in ("weight", "bias"):
        if source.has(f"{hf}.{kind}"):
            yield f"{name}.{kind}", source.tensor(f"{hf}.{kind}")


def vit_tensors(source, names, merger, fused=False):
    """Patches, blocks and the merger's parts, both by pairs of a name in the folder and one in the file; `fused`:
    queries, keys and values stay one tensor."""
    kernel = source.tensor("visual.patch_embed.proj.weight")  # [width, colours, frames, patch, patch]
    yield "v.patch_embd.weight", kernel[:, :, 0]
    # A patch of one frame has a second part of zeros: every reader of these files knows two.
    yield "v.patch_embd.weight.1", kernel[:, :, 1] if kernel.shape[2] > 1 else 0 * kernel[:, :, 0]
    if source.has(bias := "visual.patch_embed.proj.bias"):
        yield "v.patch_embd.bias", source.tensor(bias)
    for i in range(source.need("depth")):
        block, to = f"visual.blocks.{i}.", f"v.blk.{i}."
        for hf, name in names.items():
            yield from both(source, block + hf, to + name)
        if fused:
            yield from both(source, f"{block}attn.qkv", f"{to}attn_qkv")
            continue
        for kind in ("weight", "bias"):
            qkv = source.tensor(f"{block}attn.qkv.{kind}")
            for j, name in enumerate("qkv"):
                yield f"{to}attn_{name}.{kind}", qkv[j * len(qkv) // 3 : (j + 1) * len(qkv) // 3]
    for hf, name in merger.items():
        yield from both(source, f"visual.merger.{hf}", name)
    source.ignore("rotary_pos_emb.inv_freq")


def mmproj_tensors(source):
    yield from vit_tensors(source, BLOCK, MERGER)

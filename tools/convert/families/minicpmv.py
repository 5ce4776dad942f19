# SPDX-License-Identifier: Apache-2.0
"""MiniCPM-V 2.5, 2.6, 4.0 and 4.5: the encoder to llama.cpp's `mmproj` file (GGUF architecture `clip`, projector
`resampler`), and the language model to a file of its own architecture.

With --mmproj the encoder is converted, without it the language model.
"""

import numpy as np

from ..source import ConvertError
from . import llama, qwen2, qwen3, smolvlm

HF_NAMES = ("MiniCPMV",)
MMPROJ_ARCH = "clip"
# llama.cpp's numbers of the generations.
VERSIONS = {"2.5": 2, "2.6": 3, "4.0": 5, "4.5": 6}

VISION_DEFAULTS = dict(
    hidden_size=1152,
    intermediate_size=4304,
    num_hidden_layers=27,
    num_attention_heads=16,
    image_size=980,
    patch_size=14,
    hidden_act="gelu_pytorch_tanh",
    layer_norm_eps=1e-6,
)
USUAL_SLICES = 9  # what a file without the key means
HEAD = 128  # of the resampler; files have no key


def version(source):
    named = str(float(source.whole_config.get("version", 2.6)))
    if named not in VERSIONS:
        raise ConvertError(f"config.json: version {named}; converted are {', '.join(VERSIONS)}")
    return VERSIONS[named]


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    whole = source.whole_config = source.config
    version(source)
    if mmproj:
        source.config = {**VISION_DEFAULTS, **(whole.get("vision_config") or {})}
        if (act := source.config["hidden_act"]) != "gelu_pytorch_tanh":
            raise ConvertError(f"config.json: hidden_act `{act}`; this encoder is defined with gelu_pytorch_tanh")
        # SigLIP's names in other families.
        source.rename((("vpm.vision_model.", "vpm."), ("vpm.", "vision_model.")))
        source.ignore_prefix("llm.", "vision_model.head.")
        source.ignore("position_ids")
        return
    # config.json names the whole; the language model is known by its tensors.
    first = "llm.model.layers.0.self_attn."
    kinds = {qwen3: f"{first}q_norm.weight", qwen2: f"{first}q_proj.bias"}
    source.family = next((family for family, tensor in kinds.items() if source.has(tensor)), llama)
    source.config = {**whole, "tie_word_embeddings": not source.has("llm.lm_head.weight")}
    source.ignore_prefix("vpm.", "resampler.")
    source.rename((("llm.", ""),))


def gguf_arch(source):
    return source.family.GGUF_ARCH


def metadata(source, writer, say):
    source.family.metadata(source, writer, say)


def tensors(source):
    yield from source.family.tensors(source)


def mmproj_metadata(source, writer, say):
    whole, processor = source.whole_config, source.optional_json("preprocessor_config.json")
    size, patch = processor.get("scale_resolution", whole.get("image_size", 448)), source.need("patch_size")
    if processor.get("patch_size", patch) != patch:
        raise ConvertError(
            f"preprocessor_config.json: patches of {processor['patch_size']}, the encoder's have {patch}"
        )
    n_queries, width = source.shape("resampler.query")
    if width % HEAD != 0:
        raise ConvertError(f"a resampler of {width} columns; heads have {HEAD}")
    slices = processor.get("max_slice_nums", USUAL_SLICES) if processor.get("slice_mode", True) else 1
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("resampler")
    writer.add_int32("clip.minicpmv_version", version(source))
    writer.add_uint32("clip.minicpmv_query_num", n_queries)
    writer.add_vision_use_gelu(True)
    writer.add_vision_projection_dim(width)
    writer.add_vision_image_size(size)
    writer.add_vision_patch_size(patch)
    writer.add_vision_embedding_length(source.need("hidden_size"))
    writer.add_vision_feed_forward_length(source.need("intermediate_size"))
    # The last one is in the file and not read where the config drops it.
    writer.add_vision_block_count(n_blocks(source))
    writer.add_vision_head_count(source.need("num_attention_heads"))
    writer.add_vision_attention_layernorm_eps(source.need("layer_norm_eps"))
    writer.add_vision_image_mean(processor.get("norm_mean", smolvlm.HALF))
    writer.add_vision_image_std(processor.get("norm_std", smolvlm.HALF))
    if slices != USUAL_SLICES:
        writer.add_uint32("weir.vision.max_slices", slices)  # llama.cpp has no key


def n_blocks(source):
    return source.need("num_hidden_layers") - bool(source.whole_config.get("drop_vision_last_layer", False))


def mmproj_tensors(source):
    n_used = n_blocks(source)
    for name, array in smolvlm.siglip_tensors(source):
        if not name.startswith("v.blk.") or int(name.split(".")[2]) < n_used:
            yield name, array
    resampler = lambda name: source.tensor(f"resampler.{name}")
    width = source.shape("resampler.query")[1]
    yield "resampler.query", resampler("query")
    # llama.cpp asks for this table and computes it itself: positions of a square picture.
    source.ignore("resampler.pos_embed")
    side = round((source.shape("vision_model.embeddings.position_embedding.weight")[0]) ** 0.5)
    yield "resampler.pos_embed_k", places(width, side)
    yield "resampler.kv.weight", resampler("kv_proj.weight")
    for norm in ("ln_q", "ln_kv", "ln_post"):
        for kind in ("weight", "bias"):
            yield f"resampler.{norm}.{kind}", resampler(f"{norm}.{kind}")
    for kind in ("weight", "bias"):
        for name, part in zip("qkv", np.split(resampler(f"attn.in_proj_{kind}"), 3)):
            yield f"resampler.attn.{name}.{kind}", part
        yield f"resampler.attn.out.{kind}", resampler(f"attn.out_proj.{kind}")
    yield "resampler.proj.weight", resampler("proj").T


def places(width, side):
    """Sines and cosines of columns, then of lines, of a square of patches."""
    angles = np.outer(np.arange(side), 10000.0 ** -(np.arange(width // 4) / (width // 4)))
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.concatenate([np.tile(waves, (side, 1)), np.repeat(waves, side, axis=0)], axis=1).astype(np.float32)

# SPDX-License-Identifier: Apache-2.0
"""Flash-VStream (the LLaVA one): CLIP, its projector and the learned weights of its STAR memory to a `clip` file
(projector `flash_vstream`; src/vision/flash_vstream.cc defines the names), and the language model to a separate
`llama` file.

With --mmproj the encoder is converted, without it the language model.
"""

from .. import clip_tower
from . import llama

GGUF_ARCH = "llama"
HF_NAMES = ("VStreamLlamaForCausalLM",)
MMPROJ_ARCH = "clip"

# GGUF key <- config.json key, with the published model's value as the default.
KEYS = {
    "spatial_side": ("compress_size", 8),
    "spatial_count": ("video_current_memory_length", 1),
    "temporal_side": ("compress_long_memory_size", 4),
    "temporal_count": ("video_long_memory_length", 25),
    "abstract_side": ("compress_Turing_memory_size", 1),
    "abstract_count": ("video_Turing_memory_length", 25),
}
FIXED = {
    "video_sample_type": "weighted_kmeans",
    "compress_type": "mean",
    "mm_projector_type": "mlp2x_gelu",
    "mm_use_4_vision_tokens": False,
    "mm_use_im_start_end": False,
    "mm_vision_select_feature": "patch",
}
RETRIEVED = 3  # hard-coded in the published code
BUFFER = 300  # retrievable frames; the published code keeps all of them, which no fixed budget allows


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    if mmproj:
        clip_tower.beside(source)
        clip_tower.require(source, FIXED)
        # Value and output layers belong to a memory variant that no model uses.
        source.ignore_prefix(
            "model.layers.",
            "model.embed_tokens.",
            "model.norm.",
            "lm_head.",
            "model.attention_model.v_proj.",
            "model.attention_model.out_",
        )
    else:
        source.ignore_prefix("model.vision_tower.", "model.mm_projector.", "model.attention_model.")


metadata, tensors = llama.metadata, llama.tensors


def n_used(source):
    return clip_tower.feature_layer(source, source.whole_config.get("mm_vision_select_layer", -2))


def mmproj_metadata(source, writer, say):
    config = source.whole_config
    clip_tower.metadata(source, writer, "flash_vstream", n_used(source), {}, config["hidden_size"])
    writer.add_string("weir.vision.fit", "crop")
    key = "clip.vision.frames."
    for name, (there, default) in KEYS.items():
        writer.add_uint32(key + name, config.get(there, default))
    writer.add_uint32(f"{key}retrieved_count", RETRIEVED)
    writer.add_uint32(f"{key}buffer_count", BUFFER)
    writer.add_uint32(f"{key}key_length", source.tensor("model.attention_model.q_proj.weight").shape[0])
    writer.add_float32(f"{key}update_ratio", config.get("compress_Turing_update_ratio", 0.2))


def mmproj_tensors(source):
    yield from clip_tower.tensors(source, n_used(source))
    for hf, name in (
        ("mm_projector.0", "mm.0"),
        ("mm_projector.2", "mm.2"),
        ("attention_model.q_proj", "mm.abstract_q"),
        ("attention_model.k_proj", "mm.abstract_k"),
    ):
        for kind in ("weight", "bias"):
            yield f"{name}.{kind}", source.tensor(f"model.{hf}.{kind}")

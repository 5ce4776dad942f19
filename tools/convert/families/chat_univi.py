# SPDX-License-Identifier: Apache-2.0
"""Chat-UniVi: CLIP, the sizes of its clusters and its projector to a `clip` file (projector `chat_univi`;
src/vision/chat_univi.cc defines the names), and the language model to a separate `llama` file.

With --mmproj the encoder is converted, without it the language model.
"""

import math

from .. import clip_tower
from ..source import ConvertError
from . import llama

GGUF_ARCH = "llama"
HF_NAMES = ("ChatUniViLlamaForCausalLM",)
MMPROJ_ARCH = "clip"

FIXED = {"mm_projector_type": "linear", "mm_use_im_start_end": False, "mm_vision_select_feature": "patch"}
RATES = {
    "use_cluster": True,
    "spatial_cluster_rate0": 64,
    "spatial_cluster_rate1": 32,
    "spatial_cluster_rate2": 16,
    "temporal_cluster_rate": 1 / 16,
}
MOST_FRAMES = 64  # hard-coded in the published code


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    if mmproj:
        clip_tower.beside(source)
        clip_tower.require(source, FIXED)
        source.ignore_prefix("model.layers.", "model.embed_tokens.", "model.norm.", "lm_head.")
    else:
        source.ignore_prefix("model.vision_tower.", "model.mm_projector.")


metadata, tensors = llama.metadata, llama.tensors


def n_used(source):
    return clip_tower.feature_layer(source, source.whole_config.get("mm_vision_select_layer", -2))


def mmproj_metadata(source, writer, say):
    rates = {**RATES, **(source.whole_config.get("config") or {})}
    if not rates["use_cluster"]:
        raise ConvertError("config.json: use_cluster is false; this encoder is defined with clusters")
    n, clusters = (source.need("image_size") // source.need("patch_size")) ** 2, []
    for i in range(3):
        rate = rates[f"spatial_cluster_rate{i}"]  # above 1: a number of clusters; up to 1: a share
        n = math.ceil(rate) if rate > 1 else max(math.ceil(n * rate), 1)
        clusters.append(n)
    per_event = 1 / rates["temporal_cluster_rate"]
    if per_event < 1 or abs(per_event - round(per_event)) > 1e-6:
        raise ConvertError(
            f"config.json: temporal_cluster_rate {rates['temporal_cluster_rate']} is not one event for some frames"
        )
    clip_tower.metadata(source, writer, "chat_univi", n_used(source), {}, source.whole_config["hidden_size"])
    writer.add_string("weir.vision.fit", "crop")
    writer.add_array("clip.vision.frames.clusters", clusters)
    writer.add_uint32("clip.vision.frames.per_event", round(per_event))
    writer.add_uint32("clip.vision.frames.buffer_count", MOST_FRAMES)


def mmproj_tensors(source):
    yield from clip_tower.tensors(source, n_used(source))
    for kind in ("weight", "bias"):
        yield f"mm.0.{kind}", source.tensor(f"model.mm_projector.{kind}")

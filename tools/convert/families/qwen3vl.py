# SPDX-License-Identifier: Apache-2.0
"""Qwen3-VL, dense: its vision transformer and mergers to llama.cpp's `mmproj` file (GGUF architecture `clip`, projector
`qwen3vl_merger`), and the language model to a separate `qwen3vl` file.

With --mmproj the encoder is converted, without it the language model.
"""

from ..source import ConvertError
from . import qwen2vl, qwen3

GGUF_ARCH = "qwen3vl"
HF_NAMES = ("Qwen3VLForConditionalGeneration",)
MMPROJ_ARCH = "clip"

VISION_DEFAULTS = dict(
    depth=27,
    hidden_size=1152,
    intermediate_size=4304,
    num_heads=16,
    patch_size=16,
    num_position_embeddings=2304,
    deepstack_visual_indexes=(8, 16, 24),
)
FIXED = dict(qwen2vl.FIXED, hidden_act="gelu_pytorch_tanh")
BLOCK = {
    "norm1": "ln1",
    "norm2": "ln2",
    "attn.proj": "attn_out",
    "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
}
MERGER = {"norm": "v.post_ln", "linear_fc1": "mm.0", "linear_fc2": "mm.2"}
# A processor's largest picture becomes 16,384 rows; memory for it would be set aside.
MOST_ROWS = 4096


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    whole = source.config
    if mmproj:
        return qwen2vl.prepare_half(source, mmproj, VISION_DEFAULTS, FIXED)
    # Rows of pictures are added after as many layers as the encoder has mergers beside the last one.
    vision = whole.get("vision_config")
    n_parts = len(vision.get("deepstack_visual_indexes", VISION_DEFAULTS["deepstack_visual_indexes"])) if vision else 0
    text = whole.get("text_config")
    if text is not None:
        source.config = {"tie_word_embeddings": source.get("tie_word_embeddings", False), **text}
    source.n_parts = n_parts
    source.rename((("model.language_model.", "model."),))
    source.ignore_prefix("model.visual.")


def write_sections(source, writer):
    params = source.rope()[1]
    sections = params.get("mrope_section") or source.need("mrope_section")
    writer.add_rope_dimension_sections([*sections, 0])
    if source.n_parts:
        writer.add_num_deepstack_layers(source.n_parts)


def metadata(source, writer, say):
    qwen3.metadata(source, writer, say)
    write_sections(source, writer)


tensors = qwen3.tensors


def mmproj_metadata(source, writer, say):
    square = (2 * source.need("patch_size")) ** 2
    qwen2vl.write_mmproj(
        source,
        writer,
        "qwen3vl_merger",
        source.need("hidden_size"),
        source.need("intermediate_size"),
        bounds=(64 * square, MOST_ROWS * square),
        most=MOST_ROWS * square,
        say=say,
        mean=qwen2vl.HALF,
        std=qwen2vl.HALF,
    )
    side = round(source.need("num_position_embeddings") ** 0.5)
    if side * side != source.need("num_position_embeddings"):
        raise ConvertError(f"config.json: {source.need('num_position_embeddings')} positions are no square")
    earlier = source.get("deepstack_visual_indexes", ())
    writer.add_vision_use_gelu(True)
    writer.add_vision_spatial_merge_size(2)
    writer.add_vision_is_deepstack_layers([i in earlier for i in range(source.need("depth"))])


def mmproj_tensors(source):
    yield "v.position_embd.weight", source.tensor("visual.pos_embed.weight")
    yield from qwen2vl.vit_tensors(source, BLOCK, MERGER, fused=True)
    for i, block in enumerate(source.get("deepstack_visual_indexes", ())):
        for hf, name in (("norm", "norm"), ("linear_fc1", "fc1"), ("linear_fc2", "fc2")):
            yield from qwen2vl.both(source, f"visual.deepstack_merger_list.{i}.{hf}", f"v.deepstack.{block}.{name}")

# SPDX-License-Identifier: Apache-2.0
"""Qwen3.5 (dense): the encoder, which is Qwen3-VL's (qwen3vl.py) without rows of earlier blocks, and the language
model: GGUF architecture `qwen35`. With --mmproj the encoder is converted, without it the language model.

Heads of values that share a head of keys are neighbours in Hugging Face's order; the file has the first of every group,
then the second of every group, and so on. Norms are stored there as offsets from 1, `A` as its logarithm.
"""

import numpy as np

from ..source import ConvertError
from . import llama, qwen2vl, qwen3vl

GGUF_ARCH = "qwen35"
HF_NAMES = ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM")

ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
BLOCK = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


MMPROJ_ARCH = qwen3vl.MMPROJ_ARCH
VISION_DEFAULTS = {**qwen3vl.VISION_DEFAULTS, "deepstack_visual_indexes": ()}
mmproj_metadata, mmproj_tensors = qwen3vl.mmproj_metadata, qwen3vl.mmproj_tensors


def prepare(source, mmproj):
    if mmproj:
        source.ignore_prefix("mtp.")
        return qwen2vl.prepare_half(source, mmproj, VISION_DEFAULTS, qwen3vl.FIXED)
    source.rename((("model.language_model.", "model."),))
    source.config = {**source.config, **(source.config.get("text_config") or {})}
    source.ignore_prefix("model.visual.", "mtp.")


def kinds(source):
    """For each layer whether it attends."""
    n = source.need("num_hidden_layers")
    names = source.get("layer_types") or [
        "full_attention" if (i + 1) % source.get("full_attention_interval", 4) == 0 else "linear_attention"
        for i in range(n)
    ]
    return [name == "full_attention" for name in names]


def interval(source):
    attends = kinds(source)
    every = attends.index(True) + 1 if True in attends else 0
    if not every or any(a != ((i + 1) % every == 0) for i, a in enumerate(attends)):
        raise ConvertError("config.json: layer_types without a fixed interval between layers that attend")
    return every


def metadata(source, writer, say):
    llama.decoder_metadata(source, writer, say)
    if source.get("attention_bias", False):
        raise ConvertError("config.json: attention_bias is not converted for this architecture")
    if sections := source.rope()[1].get("mrope_section"):
        writer.add_rope_dimension_sections(list(sections) + [0])
    writer.add_ssm_conv_kernel(source.get("linear_conv_kernel_dim", 4))
    writer.add_ssm_state_size(source.get("linear_key_head_dim", 128))
    writer.add_ssm_group_count(source.get("linear_num_key_heads", 16))
    writer.add_ssm_time_step_rank(source.get("linear_num_value_heads", 32))
    writer.add_ssm_inner_size(source.get("linear_num_value_heads", 32) * source.get("linear_value_head_dim", 128))
    writer.add_full_attention_interval(interval(source))


def by_turns(rows, n_k, n_v):
    """Rows of n_v heads from groups of neighbours to turns."""
    heads = rows.reshape(n_k, n_v // n_k, rows.shape[0] // n_v, *rows.shape[1:])
    return heads.swapaxes(0, 1).reshape(rows.shape)


def recurrent_tensors(source, hf, blk):
    """A layer of gated DeltaNet; hf: its module's prefix."""
    n_k, n_v = source.get("linear_num_key_heads", 16), source.get("linear_num_value_heads", 32)
    n_keys = 2 * n_k * source.get("linear_key_head_dim", 128)
    turns = lambda rows: by_turns(rows, n_k, n_v)
    with_values = lambda rows: np.concatenate([rows[:n_keys], turns(rows[n_keys:])])
    get = lambda name: source.tensor(f"{hf}.{name}")
    yield f"{blk}.attn_qkv.weight", with_values(get("in_proj_qkv.weight"))
    yield f"{blk}.ssm_conv1d.weight", with_values(get("conv1d.weight")[:, 0])
    yield f"{blk}.attn_gate.weight", turns(get("in_proj_z.weight"))
    yield f"{blk}.ssm_alpha.weight", turns(get("in_proj_a.weight"))
    yield f"{blk}.ssm_beta.weight", turns(get("in_proj_b.weight"))
    yield f"{blk}.ssm_a", turns(-np.exp(get("A_log")))
    yield f"{blk}.ssm_dt.bias", turns(get("dt_bias"))
    yield f"{blk}.ssm_norm.weight", get("norm.weight")
    yield f"{blk}.ssm_out.weight", turns(get("out_proj.weight").T).T


def tensors(source, block=BLOCK, recurrent=recurrent_tensors):
    yield "token_embd.weight", source.tensor("model.embed_tokens.weight")
    yield "output_norm.weight", 1 + source.tensor("model.norm.weight")
    if source.get("tie_word_embeddings", False):
        source.ignore("lm_head.weight")
    else:
        yield "output.weight", source.tensor("lm_head.weight")
    for i, attends in enumerate(kinds(source)):
        names = {**block, **ATTENTION} if attends else block
        for hf, name in names.items():
            array = source.tensor(f"model.layers.{i}.{hf}.weight")
            yield f"blk.{i}.{name}.weight", 1 + array if "norm" in name else array
        if not attends:
            yield from recurrent(source, f"model.layers.{i}.linear_attn", f"blk.{i}")

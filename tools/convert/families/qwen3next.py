# SPDX-License-Identifier: Apache-2.0
"""Qwen3-Next: GGUF architecture `qwen3next`.

As Qwen3.5 with experts, but the inputs of a recurrent layer are saved by head of keys, and heads of values keep their
order."""

import numpy as np

from ..source import ConvertError
from . import qwen35, qwen35moe

GGUF_ARCH = "qwen3next"
HF_NAMES = ("Qwen3NextForCausalLM",)


def prepare(source, mmproj):
    source.ignore_prefix("mtp.")


def metadata(source, writer, say):
    if source.get("decoder_sparse_step", 1) != 1 or source.get("mlp_only_layers", []):
        raise ConvertError("config.json: layers without experts are not converted for this architecture")
    if not source.get("norm_topk_prob", True):
        raise ConvertError("config.json: norm_topk_prob=false is not converted for this architecture")
    qwen35moe.metadata(source, writer, say)


def recurrent_tensors(source, hf, blk):
    n_k, n_v = source.get("linear_num_key_heads", 16), source.get("linear_num_value_heads", 32)
    d_k, d_v = source.get("linear_key_head_dim", 128), source.get("linear_value_head_dim", 128)
    get = lambda name: source.tensor(f"{hf}.{name}")
    both = get("in_proj_qkvz.weight")
    n_values = n_v // n_k * d_v
    by_head = both.reshape(n_k, 2 * d_k + 2 * n_values, both.shape[1])
    part = lambda first, n: by_head[:, first : first + n].reshape(n_k * n, -1)
    yield (
        f"{blk}.attn_qkv.weight",
        np.concatenate([part(0, d_k), part(d_k, d_k), part(2 * d_k, n_values)]),
    )
    yield f"{blk}.attn_gate.weight", part(2 * d_k + n_values, n_values)
    yield f"{blk}.ssm_ba.weight", get("in_proj_ba.weight")
    yield f"{blk}.ssm_conv1d.weight", get("conv1d.weight")[:, 0]
    yield f"{blk}.ssm_a", -np.exp(get("A_log"))
    yield f"{blk}.ssm_dt.bias", get("dt_bias")
    yield f"{blk}.ssm_norm.weight", get("norm.weight")
    yield f"{blk}.ssm_out.weight", get("out_proj.weight")


def tensors(source):
    yield from qwen35.tensors(source, qwen35moe.BLOCK, recurrent_tensors)
    yield from qwen35moe.expert_tensors(source)

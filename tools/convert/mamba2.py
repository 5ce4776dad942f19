# SPDX-License-Identifier: Apache-2.0
"""Mamba-2 layers: the same tensors and keys in every family that has them."""

import numpy as np


def write_keys(writer, n_taps, d_state, n_groups, n_heads, d_head):
    writer.add_ssm_conv_kernel(n_taps)
    writer.add_ssm_state_size(d_state)
    writer.add_ssm_group_count(n_groups)
    writer.add_ssm_time_step_rank(n_heads)
    writer.add_ssm_inner_size(n_heads * d_head)


def tensors(source, hf, blk, n_groups):
    """One layer; hf: its module's prefix."""
    get = lambda name: source.tensor(f"{hf}.{name}")
    yield f"{blk}.ssm_in.weight", get("in_proj.weight")
    yield f"{blk}.ssm_conv1d.weight", get("conv1d.weight")[:, 0]
    if source.has(f"{hf}.conv1d.bias"):
        yield f"{blk}.ssm_conv1d.bias", get("conv1d.bias")
    yield f"{blk}.ssm_a", -np.exp(get("A_log")).reshape(-1, 1)
    yield f"{blk}.ssm_d", get("D").reshape(-1, 1)
    yield f"{blk}.ssm_dt.bias", get("dt_bias")
    if source.has(f"{hf}.norm.weight"):
        yield f"{blk}.ssm_norm.weight", get("norm.weight").reshape(n_groups, -1)
    yield f"{blk}.ssm_out.weight", get("out_proj.weight")

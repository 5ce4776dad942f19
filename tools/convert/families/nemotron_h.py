# SPDX-License-Identifier: Apache-2.0
"""Nemotron-H and Nemotron Nano 2: GGUF architecture `nemotron_h`; Nemotron 3 Nano: `nemotron_h_moe`.

Every layer is one of Mamba-2, attention and a feed-forward layer or experts; KV heads and widths are given layer by
layer."""

import numpy as np

from .. import experts, mamba2
from ..source import ConvertError

GGUF_ARCH = "nemotron_h"
HF_NAMES = ("NemotronHForCausalLM",)

KINDS = {
    "M": "mamba",
    "*": "attention",
    "-": "mlp",
    "E": "moe",
    "linear_attention": "mamba",
    "full_attention": "attention",
}
PARTS = {
    "attention": {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"},
    "mlp": {"up_proj": "ffn_up", "down_proj": "ffn_down"},
}


def prepare(source, mmproj):
    source.rename((("backbone.", "model."),))
    source.ignore_prefix("mtp.")


def gguf_arch(source):
    return "nemotron_h_moe" if "moe" in kinds(source) else GGUF_ARCH


def kinds(source):
    """For each layer "mamba", "attention", "mlp" or "moe"."""
    names = source.get("layers_block_type") or source.need("hybrid_override_pattern")
    out = [KINDS.get(name, name) for name in names]
    for name in out:
        if name not in ("mamba", "attention", "mlp", "moe"):
            raise ConvertError(f"config.json: layers of kind `{name}` are not converted for this architecture")
    return out


def metadata(source, writer, say):
    if source.get("mlp_hidden_act", "relu2") != "relu2":
        raise ConvertError(f"config.json: mlp_hidden_act {source.get('mlp_hidden_act')}; defined with relu2")
    of = kinds(source)
    if "mlp" in of and "moe" in of:
        raise ConvertError("config.json: layers with experts beside others without have no GGUF form")
    if "moe" in of:
        write_experts(source, writer)
    width = {"mlp": source.get("intermediate_size"), "moe": source.get("moe_intermediate_size")}
    n_heads = source.need("num_attention_heads")
    n_kv = source.get("num_key_value_heads", n_heads)
    head_dim = source.get("head_dim") or source.need("attention_head_dim")
    writer.add_context_length(source.need("max_position_embeddings"))
    writer.add_embedding_length(source.need("hidden_size"))
    writer.add_block_count(len(of))
    writer.add_feed_forward_length([width.get(kind, 0) for kind in of])
    writer.add_head_count(n_heads)
    writer.add_head_count_kv([n_kv if kind == "attention" else 0 for kind in of])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(source.need("layer_norm_epsilon"))
    writer.add_layer_norm_eps(source.need("layer_norm_epsilon"))  # read by llama.cpp
    writer.add_vocab_size(source.need("vocab_size"))
    mamba2.write_keys(
        writer,
        source.need("conv_kernel"),
        source.need("ssm_state_size"),
        source.need("n_groups"),
        source.need("mamba_num_heads"),
        source.need("mamba_head_dim"),
    )


def write_experts(source, writer):
    if source.get("moe_latent_size"):
        raise ConvertError("config.json: moe_latent_size is not converted")
    experts.write_sigmoid(source, writer, n_dense=None)
    writer.add_expert_shared_feed_forward_length(source.need("moe_shared_expert_intermediate_size"))


def expert_tensors(source, hf, blk):
    """Without gates."""
    yield f"{blk}.ffn_gate_inp.weight", source.tensor(f"{hf}.gate.weight")
    yield f"{blk}.exp_probs_b.bias", source.tensor(f"{hf}.gate.e_score_correction_bias")
    for part in ("up", "down"):
        names = [f"{hf}.experts.{e}.{part}_proj.weight" for e in range(experts.count(source))]
        yield f"{blk}.ffn_{part}_exps.weight", np.stack([source.tensor(name) for name in names])
        yield f"{blk}.ffn_{part}_shexp.weight", source.tensor(f"{hf}.shared_experts.{part}_proj.weight")


def tensors(source):
    yield "token_embd.weight", source.tensor("model.embeddings.weight")
    yield "output_norm.weight", source.tensor("model.norm_f.weight")
    if source.get("tie_word_embeddings", False):
        source.ignore("lm_head.weight")
    else:
        yield "output.weight", source.tensor("lm_head.weight")
    for i, kind in enumerate(kinds(source)):
        yield f"blk.{i}.attn_norm.weight", source.tensor(f"model.layers.{i}.norm.weight")
        hf = f"model.layers.{i}.mixer"
        if kind == "mamba":
            yield from mamba2.tensors(source, hf, f"blk.{i}", source.need("n_groups"))
            continue
        if kind == "moe":
            yield from expert_tensors(source, hf, f"blk.{i}")
            continue
        for part, name in PARTS[kind].items():
            yield f"blk.{i}.{name}.weight", source.tensor(f"{hf}.{part}.weight")
            if source.has(f"{hf}.{part}.bias"):
                raise ConvertError(f"{hf}.{part}.bias: biases are not converted for this architecture")

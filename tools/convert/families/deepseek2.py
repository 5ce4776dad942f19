# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V2, V3 and R1, GLM-4.7-Flash: GGUF architecture `deepseek2`. The two products of every head's latent are
separate tensors, as newer files have them; layers that predict further tokens are left out."""

import gguf
import numpy as np

from .. import experts
from ..source import ConvertError
from . import llama

GGUF_ARCH = "deepseek2"
HF_NAMES = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM")

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
}
QUERY = {"self_attn.q_proj": "attn_q"}
LOW_QUERY = {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
}
MLP = {hf: name for hf, name in llama.LAYER.items() if hf.startswith("mlp.")}
SHARED = {hf.replace("mlp.", "mlp.shared_experts."): f"{name}_shexp" for hf, name in MLP.items()}


def is_v2(source):
    return source.hf_name == "DeepseekV2ForCausalLM"


def n_dense(source):
    """How many first layers have no experts."""
    if kinds := source.get("mlp_layer_types"):
        return kinds.index("sparse") if "sparse" in kinds else len(kinds)
    return source.get("first_k_dense_replace", 0)


def prepare(source, mmproj):
    source.ignore_prefix(*(f"model.layers.{source.need('num_hidden_layers') + i}." for i in range(8)))


def write_rope(source, writer):
    kind, params, theta = source.rope()
    writer.add_rope_freq_base(theta)
    writer.add_rope_dimension_count(source.need("qk_rope_head_dim"))
    if kind == "default":
        return
    if kind != "yarn" or params.get("mscale") != params.get("mscale_all_dim") or not params.get("mscale"):
        raise ConvertError(f"config.json: RoPE scaling {params} has no GGUF form for deepseek2")
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(float(params["factor"]))
    writer.add_rope_scaling_orig_ctx_len(source.original_context(params))
    for key, add in (
        ("beta_fast", writer.add_rope_scaling_yarn_beta_fast),
        ("beta_slow", writer.add_rope_scaling_yarn_beta_slow),
    ):
        if params.get(key):
            add(float(params[key]))
    writer.add_rope_scaling_yarn_log_mul(0.1 * params["mscale_all_dim"])


def write_experts(source, writer):
    writer.add_leading_dense_block_count(n_dense(source))
    experts.write_keys(source, writer, source.need("moe_intermediate_size"))
    writer.add_expert_shared_count(source.need("n_shared_experts"))
    writer.add_expert_weights_scale(float(source.need("routed_scaling_factor")))
    # V2's published code divides by the sum or scales, and its models scale.
    writer.add_expert_weights_norm(bool(source.get("norm_topk_prob", False)) and not is_v2(source))
    kinds = gguf.ExpertGatingFuncType
    writer.add_expert_gating_func(kinds.SOFTMAX if is_v2(source) else kinds.SIGMOID)
    if (source.get("n_group") or 1) > 1 and source.get("topk_method") != "greedy":
        writer.add_expert_group_count(source.need("n_group"))
        writer.add_expert_group_used_count(source.need("topk_group"))


def metadata(source, writer, say):
    for key, value in (("hidden_act", "silu"), ("attention_bias", False), ("rope_interleave", True)):
        if source.get(key, value) != value:
            raise ConvertError(f"config.json: {key} {source.get(key)}; this architecture is defined with {value}")
    rank, n_rot = source.need("kv_lora_rank"), source.need("qk_rope_head_dim")
    writer.add_context_length(source.need("max_position_embeddings"))
    writer.add_embedding_length(source.need("hidden_size"))
    writer.add_block_count(source.need("num_hidden_layers"))
    writer.add_feed_forward_length(source.need("intermediate_size"))
    writer.add_head_count(source.need("num_attention_heads"))
    writer.add_head_count_kv(1)
    writer.add_key_length(rank + n_rot)
    writer.add_value_length(rank)
    writer.add_key_length_mla(source.need("qk_nope_head_dim") + n_rot)
    writer.add_value_length_mla(source.need("v_head_dim"))
    writer.add_kv_lora_rank(rank)
    if source.get("q_lora_rank"):
        writer.add_q_lora_rank(source.need("q_lora_rank"))
    writer.add_layer_norm_rms_eps(source.need("rms_norm_eps"))
    writer.add_vocab_size(source.need("vocab_size"))
    write_rope(source, writer)
    write_experts(source, writer)


def tensors(source):
    yield "token_embd.weight", source.tensor("model.embed_tokens.weight")
    yield "output_norm.weight", source.tensor("model.norm.weight")
    if source.get("tie_word_embeddings", False):
        source.ignore("lm_head.weight")
    else:
        yield "output.weight", source.tensor("lm_head.weight")
    n_nope, n_value, rank = (source.need(key) for key in ("qk_nope_head_dim", "v_head_dim", "kv_lora_rank"))
    for i in range(source.need("num_hidden_layers")):
        at, dense = f"model.layers.{i}.", i < n_dense(source)
        layer_map = {**LAYER, **(LOW_QUERY if source.get("q_lora_rank") else QUERY), **(MLP if dense else SHARED)}
        for hf, name in layer_map.items():
            yield f"blk.{i}.{name}.weight", source.tensor(f"{at}{hf}.weight")
        heads = source.tensor(at + "self_attn.kv_b_proj.weight").reshape(-1, n_nope + n_value, rank)
        yield f"blk.{i}.attn_k_b.weight", np.ascontiguousarray(heads[:, :n_nope].swapaxes(1, 2))
        yield f"blk.{i}.attn_v_b.weight", heads[:, n_nope:]
        if dense:
            continue
        yield from experts.separate(source, i, "mlp", "gate", ("gate_proj", "up_proj", "down_proj"))
        bias = at + "mlp.gate.e_score_correction_bias"
        if source.has(bias):
            yield f"blk.{i}.exp_probs_b.bias", source.tensor(bias)

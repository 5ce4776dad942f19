# SPDX-License-Identifier: Apache-2.0
"""Granite 4, hybrid: GGUF architecture `granitehybrid`. Models of this class whose layers all attend are not."""

from .. import experts, mamba2
from ..source import ConvertError

GGUF_ARCH = "granitehybrid"
HF_NAMES = ("GraniteMoeHybridForCausalLM",)

ATTENTION = ("q", "k", "v", "o")


def kinds(source):
    """For each layer whether it attends."""
    names = source.get("layer_types") or source.need("layers_block_type")
    return [name in ("attention", "full_attention") for name in names]


def has_experts(source):
    return source.get("num_local_experts", 0) > 0


def metadata(source, writer, say):
    if list(source.get("time_step_limit", [0.0, float("inf")])) != [0.0, float("inf")]:
        raise ConvertError("config.json: time_step_limit is not converted for this architecture")
    attends = kinds(source)
    if source.get("position_embedding_type") == "rope":
        raise ConvertError("config.json: position_embedding_type rope is not converted for this architecture")
    if all(attends):
        raise ConvertError("config.json: no layer is of kind mamba; this architecture is defined with some")
    n_heads = source.need("num_attention_heads")
    n_kv = source.get("num_key_value_heads", n_heads)
    writer.add_context_length(source.need("max_position_embeddings"))
    writer.add_embedding_length(source.need("hidden_size"))
    writer.add_block_count(source.need("num_hidden_layers"))
    writer.add_feed_forward_length(
        source.need("intermediate_size") if has_experts(source) else source.need("shared_intermediate_size")
    )
    writer.add_head_count(n_heads)
    writer.add_head_count_kv([n_kv if a else 0 for a in attends])
    writer.add_layer_norm_rms_eps(source.need("rms_norm_eps"))
    writer.add_vocab_size(source.need("vocab_size"))
    writer.add_rope_scaling_finetuned(False)
    writer.add_attention_scale(source.need("attention_multiplier"))
    writer.add_embedding_scale(source.need("embedding_multiplier"))
    writer.add_residual_scale(source.need("residual_multiplier"))
    writer.add_logit_scale(source.need("logits_scaling"))
    mamba2.write_keys(
        writer,
        source.need("mamba_d_conv"),
        source.need("mamba_d_state"),
        source.need("mamba_n_groups"),
        source.need("mamba_n_heads"),
        source.need("mamba_d_head"),
    )
    if has_experts(source):
        experts.write_keys(source, writer, source.need("intermediate_size"))
        writer.add_expert_shared_feed_forward_length(source.need("shared_intermediate_size"))


def halves(array):
    """gate and up of a tensor that holds both."""
    n = array.shape[-2] // 2
    return array[..., :n, :], array[..., n:, :]


def tensors(source):
    yield "token_embd.weight", source.tensor("model.embed_tokens.weight")
    yield "output_norm.weight", source.tensor("model.norm.weight")
    if source.get("tie_word_embeddings", False):
        source.ignore("lm_head.weight")
    else:
        yield "output.weight", source.tensor("lm_head.weight")
    shared = "_shexp" if has_experts(source) else ""
    for i, attends in enumerate(kinds(source)):
        hf, blk = f"model.layers.{i}", f"blk.{i}"
        yield f"{blk}.attn_norm.weight", source.tensor(f"{hf}.input_layernorm.weight")
        yield f"{blk}.ffn_norm.weight", source.tensor(f"{hf}.post_attention_layernorm.weight")
        if attends:
            for part in ATTENTION:
                name = "attn_output" if part == "o" else f"attn_{part}"
                yield f"{blk}.{name}.weight", source.tensor(f"{hf}.self_attn.{part}_proj.weight")
        else:
            yield from mamba2.tensors(source, f"{hf}.mamba", blk, source.need("mamba_n_groups"))
        gate, up = halves(source.tensor(f"{hf}.shared_mlp.input_linear.weight"))
        yield f"{blk}.ffn_gate{shared}.weight", gate
        yield f"{blk}.ffn_up{shared}.weight", up
        yield f"{blk}.ffn_down{shared}.weight", source.tensor(f"{hf}.shared_mlp.output_linear.weight")
        if shared:
            moe = f"{hf}.block_sparse_moe"
            gate, up = halves(source.tensor(f"{moe}.input_linear.weight"))
            yield f"{blk}.ffn_gate_inp.weight", source.tensor(f"{moe}.router.layer.weight")
            yield f"{blk}.ffn_gate_exps.weight", gate
            yield f"{blk}.ffn_up_exps.weight", up
            yield f"{blk}.ffn_down_exps.weight", source.tensor(f"{moe}.output_linear.weight")

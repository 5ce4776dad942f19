# SPDX-License-Identifier: Apache-2.0
"""Gemma 4, language model: GGUF architecture `gemma4`. Encoders of pictures and sound are omitted; mixtures of experts
are not converted."""

import numpy as np

from ..source import ConvertError
from . import gemma2

GGUF_ARCH = "gemma4"
HF_NAMES = ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration")

HEADS = {"self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.k_norm": "attn_k_norm"}
LAYER = {
    **{hf: name for hf, name in gemma2.LAYER.items() if hf not in HEADS},
    "self_attn.q_norm": "attn_q_norm",
}
# Tensors of per-layer embeddings, in each layer and outside.
OWN_LAYER = {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
OWN = {
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
}


def prepare(source, mmproj):
    """Keeps only the language model of a folder that also has encoders."""
    text = source.config.get("text_config")
    if text is not None:
        source.config = dict(text)
        source.rename((("model.language_model.", "model."),))
        source.ignore_prefix(
            "model.vision_tower.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio.", "lm_head."
        )


def is_window(source):
    return [kind == "sliding_attention" for kind in source.need("layer_types")]


def one(name, values):
    if len(set(values)) > 1:
        raise ConvertError(f"config.json: layers of one kind with {name} {sorted(set(values))}")
    return values[0] if values else None


def heads(source, window):
    """Head size and KV heads of the layers of a kind."""
    own = source.get("per_layer_config", {})
    size, n_kv = source.need("head_dim"), source.need("num_key_value_heads")
    if not own and not window:
        size = source.get("global_head_dim", 512)
        if source.get("attention_k_eq_v", False):
            n_kv = source.get("num_global_key_value_heads", n_kv)
    layers = [own.get(str(i), {}) for i, kind in enumerate(is_window(source)) if kind == window]
    return (
        one("head_dim", [layer.get("head_dim", size) for layer in layers]) or size,
        one("num_key_value_heads", [layer.get("num_key_value_heads", n_kv) for layer in layers]) or n_kv,
    )


def rope_of(source, kind, expected):
    params = (source.get("rope_parameters") or {}).get(kind, {})
    if params.get("rope_type", expected) not in ("default", expected) or params.get("factor", 1.0) != 1.0:
        raise ConvertError(f"config.json: RoPE of {kind} is {params}, which is not converted")
    return params


def metadata(source, writer, say):
    if source.get("enable_moe_block", False):
        raise ConvertError("config.json: enable_moe_block; mixtures of experts are not converted for this architecture")
    for key, value in (("hidden_activation", "gelu_pytorch_tanh"), ("attention_bias", False)):
        if source.get(key, value) != value:
            raise ConvertError(f"config.json: {key} {source.get(key)}; this architecture is defined with {value}")
    if source.get("use_bidirectional_attention") == "all":
        raise ConvertError("config.json: attention in both directions is not converted")
    windows, n_layers = is_window(source), source.need("num_hidden_layers")
    n_shared, n_ff = source.get("num_kv_shared_layers", 0), source.need("intermediate_size")
    (full_size, full_kv), (window_size, window_kv) = heads(source, False), heads(source, True)
    writer.add_context_length(source.need("max_position_embeddings"))
    writer.add_embedding_length(source.need("hidden_size"))
    writer.add_block_count(n_layers)
    if source.get("use_double_wide_mlp", False):
        writer.add_feed_forward_length([n_ff if i < n_layers - n_shared else 2 * n_ff for i in range(n_layers)])
    else:
        writer.add_feed_forward_length(n_ff)
    writer.add_head_count(source.need("num_attention_heads"))
    if full_kv == window_kv:
        writer.add_head_count_kv(full_kv)
    else:
        writer.add_head_count_kv([window_kv if window else full_kv for window in windows])
    writer.add_key_length(full_size)
    writer.add_value_length(full_size)
    writer.add_key_length_swa(window_size)
    writer.add_value_length_swa(window_size)
    writer.add_layer_norm_rms_eps(source.need("rms_norm_eps"))
    writer.add_vocab_size(source.need("vocab_size"))
    writer.add_sliding_window(source.need("sliding_window"))
    writer.add_sliding_window_pattern(windows)
    writer.add_shared_kv_layers(n_shared)
    writer.add_embedding_length_per_layer_input(source.get("hidden_size_per_layer_input", 0))
    writer.add_rope_dimension_count(full_size)
    writer.add_rope_freq_base(float(rope_of(source, "full_attention", "proportional").get("rope_theta", 1000000.0)))
    window_rope = rope_of(source, "sliding_attention", "default")
    writer.add_rope_dimension_count_swa(int(window_size * window_rope.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base_swa(float(window_rope.get("rope_theta", 10000.0)))
    # llama.cpp caps at 30 where the key is missing.
    writer.add_final_logit_softcapping(float(source.get("final_logit_softcapping", 0.0)))


def tensors(source):
    windows, n_layers = is_window(source), source.need("num_hidden_layers")
    n_stored = n_layers - source.get("num_kv_shared_layers", 0)
    has_own = source.get("hidden_size_per_layer_input", 0) > 0
    yield "token_embd.weight", source.tensor("model.embed_tokens.weight")
    yield "output_norm.weight", source.tensor("model.norm.weight")
    if source.get("tie_word_embeddings", True):
        source.ignore("lm_head.weight")
    else:
        yield "output.weight", source.tensor("lm_head.weight")
    for hf, name in OWN.items() if has_own else ():
        yield f"{name}.weight", source.tensor(f"model.{hf}.weight")
    # The part of each head that is rotated; the rest has frequencies of zero.
    params, half = rope_of(source, "full_attention", "proportional"), heads(source, False)[0] // 2
    n_rotated = int(params.get("partial_rotary_factor", 1.0) * 2 * half // 2)
    yield "rope_freqs.weight", np.where(np.arange(half) < n_rotated, 1.0, 1e30).astype(np.float32)
    for i in range(n_layers):
        layer_map = dict(LAYER)
        if i < n_stored:
            layer_map.update(HEADS)
            if source.get("attention_k_eq_v", False) and not windows[i]:
                del layer_map["self_attn.v_proj"]
        if has_own:
            layer_map.update(OWN_LAYER)
        for hf, name in layer_map.items():
            yield f"blk.{i}.{name}.weight", source.tensor(f"model.layers.{i}.{hf}.weight")
        scale = f"model.layers.{i}.layer_scalar"
        if source.has(scale):
            yield f"blk.{i}.layer_output_scale.weight", source.tensor(scale).reshape(1)
        if i >= n_stored:  # nothing reads them
            source.ignore_prefix(*(f"model.layers.{i}.{hf}." for hf in HEADS))

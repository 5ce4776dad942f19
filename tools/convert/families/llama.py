# SPDX-License-Identifier: Apache-2.0
"""Llama 1 to 3, Vicuna, Mistral, SmolLM2, Mixtral: GGUF architecture `llama`."""

from .. import experts, rope
from ..source import ConvertError

GGUF_ARCH = "llama"
HF_NAMES = ("LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "MixtralForCausalLM")

# Hugging Face module -> GGUF module, inside one layer.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def without_mlp(layer_map):
    """The map of a family with experts (tools/convert/experts.py) in place of one feed-forward part."""
    return {hf: name for hf, name in layer_map.items() if not hf.startswith("mlp.")}


def decoder_metadata(source, writer, say, act="silu", eps="rms_norm_eps", whole_pairs=True):
    """Keys shared by every decoder of this shape. `eps`: the key of its norms', which tells their kind. `whole_pairs`:
    rope.write_keys()."""
    if (given := source.get("hidden_activation") or source.get("hidden_act", act)) != act:
        raise ConvertError(f"config.json: activation `{given}`; this architecture is defined with {act}")
    n_heads = source.need("num_attention_heads")
    writer.add_context_length(source.need("max_position_embeddings"))
    writer.add_embedding_length(source.need("hidden_size"))
    writer.add_block_count(source.need("num_hidden_layers"))
    writer.add_feed_forward_length(source.need("intermediate_size"))
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(source.get("num_key_value_heads", n_heads))
    writer.add_key_length(source.head_dim())
    writer.add_value_length(source.head_dim())
    if eps == "rms_norm_eps":
        writer.add_layer_norm_rms_eps(source.need(eps))
    else:
        writer.add_layer_norm_eps(source.need(eps))
    writer.add_vocab_size(source.need("vocab_size"))
    rope.write_keys(source, writer, say, whole_pairs)


def window_metadata(source, writer, every):
    """The window of a model with one on some layers. `every`: without `layer_types`, the last of so many has none."""
    if not (window := source.get("sliding_window")):
        return
    n_layers = source.need("num_hidden_layers")
    kinds = source.get("layer_types") or [
        "full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(n_layers)
    ]
    writer.add_sliding_window(window)
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in kinds])


def decoder_tensors(source, layer_map, fix=lambda module, array: array, tied=False):
    """Yields every tensor of the decoder; `fix(module, array)` may rearrange one. `tied`: the default for whether head
    and embedding are one matrix."""
    yield "token_embd.weight", source.tensor("model.embed_tokens.weight")
    yield "output_norm.weight", source.tensor("model.norm.weight")
    if source.has("model.norm.bias"):
        yield "output_norm.bias", source.tensor("model.norm.bias")
    if source.get("tie_word_embeddings", tied):
        source.ignore("lm_head.weight")  # some tools save the shared matrix twice
    else:
        yield "output.weight", source.tensor("lm_head.weight")
    for i in range(source.need("num_hidden_layers")):
        for hf, name in layer_map.items():
            prefix = f"model.layers.{i}.{hf}"
            yield f"blk.{i}.{name}.weight", fix(name, source.tensor(f"{prefix}.weight"))
            if source.has(f"{prefix}.bias"):
                yield f"blk.{i}.{name}.bias", fix(name, source.tensor(f"{prefix}.bias"))
    yield from rope.tensors(source)
    source.ignore("rotary_emb.inv_freq")


def interleave(rows, n_heads):
    """Reorders the rows of each head from (first halves, second halves) to pairs: 0, d/2, 1, d/2 + 1, ...

    Hugging Face rotates element i with i + d/2, GGUF's `llama` rotates 2i with 2i + 1.
    """
    by_half = rows.reshape(n_heads, 2, rows.shape[0] // n_heads // 2, *rows.shape[1:])
    return by_half.swapaxes(1, 2).reshape(rows.shape)


def metadata(source, writer, say):
    if source.n_rot() != source.head_dim():
        raise ConvertError("config.json: partial_rotary_factor is not converted for this architecture")
    window = source.get("sliding_window")
    if window and window < source.need("max_position_embeddings"):
        writer.add_sliding_window(window)
        say(
            f"sliding_window {window} is in the file; llama.cpp's `llama` does not read it and is exact up to that "
            f"many tokens"
        )
    decoder_metadata(source, writer, say)
    if source.get("num_local_experts"):
        experts.write_keys(source, writer, source.need("intermediate_size"))


def interleaved_tensors(source, layer_map):
    """Every tensor of the decoder, with the rows of q and k in GGUF's order."""
    n_heads = source.need("num_attention_heads")
    heads = {"attn_q": n_heads, "attn_k": source.get("num_key_value_heads", n_heads)}
    yield from decoder_tensors(source, layer_map, lambda name, a: interleave(a, heads[name]) if name in heads else a)


def tensors(source):
    if not source.get("num_local_experts"):
        yield from interleaved_tensors(source, LAYER)
        return
    yield from interleaved_tensors(source, without_mlp(LAYER))
    for i in range(source.need("num_hidden_layers")):
        yield from experts.separate(source, i, "block_sparse_moe", "gate", ("w1", "w3", "w2"))

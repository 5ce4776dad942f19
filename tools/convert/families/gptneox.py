# SPDX-License-Identifier: Apache-2.0
"""GPT-NeoX and Pythia: GGUF architecture `gptneox`."""

from .. import rope
from ..source import ConvertError

GGUF_ARCH = "gptneox"
HF_NAMES = ("GPTNeoXForCausalLM",)

LAYER = {
    "input_layernorm": "attn_norm",
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}


def metadata(source, writer, say):
    if (act := source.get("hidden_act", "gelu")) not in ("gelu", "gelu_fast", "gelu_new"):
        raise ConvertError(f"config.json: hidden_act `{act}`; this architecture is defined with gelu")
    if act != "gelu":
        say(f"hidden_act {act}: GGUF's `gptneox` does not say which gelu; the exact one is within 5e-4 of it")
    n_heads = source.need("num_attention_heads")
    writer.add_context_length(source.need("max_position_embeddings"))
    writer.add_embedding_length(source.need("hidden_size"))
    writer.add_block_count(source.need("num_hidden_layers"))
    writer.add_feed_forward_length(source.need("intermediate_size"))
    writer.add_head_count(n_heads)
    writer.add_parallel_residual(bool(source.get("use_parallel_residual", True)))
    writer.add_layer_norm_eps(source.get("layer_norm_eps", 1e-5))
    writer.add_vocab_size(source.need("vocab_size"))
    rope.write_keys(source, writer, say)


def by_part(array, n_heads):
    """Rows of every head's q, k and v -> all heads' q, then k, then v."""
    per_head = array.reshape(n_heads, 3, -1, *array.shape[1:])
    return per_head.swapaxes(0, 1).reshape(array.shape)


def tensors(source):
    n_heads = source.need("num_attention_heads")
    yield "token_embd.weight", source.tensor("gpt_neox.embed_in.weight")
    if source.get("tie_word_embeddings", False):
        source.ignore("embed_out.weight")
        yield "output.weight", source.tensor("gpt_neox.embed_in.weight")  # the architecture always has its own
    else:
        head = "embed_out.weight" if source.has("embed_out.weight") else "lm_head.weight"
        yield "output.weight", source.tensor(head)
    for part in ("weight", "bias"):
        yield f"output_norm.{part}", source.tensor(f"gpt_neox.final_layer_norm.{part}")
    for i in range(source.need("num_hidden_layers")):
        for hf, name in LAYER.items():
            for part in ("weight", "bias"):
                array = source.tensor(f"gpt_neox.layers.{i}.{hf}.{part}")
                yield f"blk.{i}.{name}.{part}", by_part(array, n_heads) if name == "attn_qkv" else array
    source.ignore("attention.bias")
    source.ignore("attention.masked_bias")
    source.ignore("rotary_emb.inv_freq")

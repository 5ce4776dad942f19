# SPDX-License-Identifier: Apache-2.0
"""LFM2: GGUF architecture `lfm2`. Layers without KV heads are short convolutions; the norm before the head is called
`embedding_norm`."""

from .. import rope
from ..source import ConvertError

GGUF_ARCH = "lfm2"
HF_NAMES = ("Lfm2ForCausalLM",)

BLOCK = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
}
ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
}
CONVOLUTION = {
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
}


def kinds(source):
    """For each layer whether it attends."""
    n = source.need("num_hidden_layers")
    types = source.get("layer_types")
    if types is None:
        attend = source.get("full_attn_idxs")
        attend = range(n) if attend is None else attend
        types = ["full_attention" if i in attend else "conv" for i in range(n)]
    return [name == "full_attention" for name in types]


def metadata(source, writer, say):
    if source.get("conv_bias", False):
        raise ConvertError("config.json: conv_bias is not converted for this architecture")
    n_kv = source.need("num_key_value_heads")
    writer.add_context_length(source.need("max_position_embeddings"))
    writer.add_embedding_length(source.need("hidden_size"))
    writer.add_block_count(source.need("num_hidden_layers"))
    dense = "model.layers.0.feed_forward.w1.weight"
    writer.add_feed_forward_length(source.shape(dense)[0] if source.has(dense) else source.need("intermediate_size"))
    writer.add_head_count(source.need("num_attention_heads"))
    writer.add_head_count_kv([n_kv if attends else 0 for attends in kinds(source)])
    writer.add_shortconv_l_cache(source.need("conv_L_cache"))
    writer.add_layer_norm_rms_eps(source.need("norm_eps"))
    writer.add_vocab_size(source.need("vocab_size"))
    rope.write_keys(source, writer, say)


def tensors(source):
    return decoder(source, source.need("num_hidden_layers"))


def decoder(source, n_dense):
    """All but experts, which are in the layers behind the first n_dense."""
    yield "token_embd.weight", source.tensor("model.embed_tokens.weight")
    yield "token_embd_norm.weight", source.tensor("model.embedding_norm.weight")
    if source.get("tie_word_embeddings", True):
        source.ignore("lm_head.weight")
    else:
        yield "output.weight", source.tensor("lm_head.weight")
    for i, attends in enumerate(kinds(source)):
        layer = {**BLOCK, **(ATTENTION if attends else CONVOLUTION)}
        if i >= n_dense:
            layer = {hf: name for hf, name in layer.items() if not hf.startswith("feed_forward.")}
        for hf, name in layer.items():
            array = source.tensor(f"model.layers.{i}.{hf}.weight")
            yield f"blk.{i}.{name}.weight", array[:, 0] if name == "shortconv.conv" else array

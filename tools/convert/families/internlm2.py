# SPDX-License-Identifier: Apache-2.0
"""InternLM2 and InternLM2.5: GGUF architecture `internlm2`. The folder holds, for every KV head, the rows of its query
heads, of its key and of its value in one tensor; the file holds the three apart."""

from ..source import ConvertError
from . import llama

GGUF_ARCH = "internlm2"
HF_NAMES = ("InternLM2ForCausalLM",)

LAYER = {
    "attention_norm": "attn_norm",
    "attention.wo": "attn_output",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
}
RENAMES = (("model.tok_embeddings.", "model.embed_tokens."), ("output.", "lm_head."))


def prepare(source, mmproj):
    source.rename(RENAMES)


def metadata(source, writer, say):
    if source.get("bias", False):
        raise ConvertError("config.json: bias is not converted for this architecture")
    llama.decoder_metadata(source, writer, say)


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)
    n_heads, n_kv, dim = source.need("num_attention_heads"), source.need("num_key_value_heads"), source.head_dim()
    for i in range(source.need("num_hidden_layers")):
        qkv = source.tensor(f"model.layers.{i}.attention.wqkv.weight")
        qkv = qkv.reshape(n_kv, n_heads // n_kv + 2, dim, -1)
        q, k, v = (part.reshape(-1, qkv.shape[-1]) for part in (qkv[:, :-2], qkv[:, -2], qkv[:, -1]))
        yield f"blk.{i}.attn_q.weight", llama.interleave(q, n_heads)
        yield f"blk.{i}.attn_k.weight", llama.interleave(k, n_kv)
        yield f"blk.{i}.attn_v.weight", v

# SPDX-License-Identifier: Apache-2.0
"""GLM-4.5, 4.6, 4.7: GGUF architecture `glm4moe`. Layers that predict further tokens are left out."""

from .. import experts
from . import deepseek2, llama

GGUF_ARCH = "glm4moe"
HF_NAMES = ("Glm4MoeForCausalLM",)

prepare = deepseek2.prepare


def layer_map(source):
    layer = {**llama.without_mlp(llama.LAYER), "post_attention_layernorm": "post_attention_norm"}
    if source.get("use_qk_norm", False):
        layer |= {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    return layer


def metadata(source, writer, say):
    source.config.setdefault("partial_rotary_factor", 0.5)
    llama.decoder_metadata(source, writer, say)
    experts.write_sigmoid(source, writer)


def tensors(source):
    yield from llama.decoder_tensors(source, layer_map(source))
    yield from experts.behind_dense(source, source.need("first_k_dense_replace"))

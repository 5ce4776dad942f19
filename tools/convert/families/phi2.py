# SPDX-License-Identifier: Apache-2.0
"""Phi-1.5 and Phi-2: GGUF architecture `phi2`."""

from ..source import ConvertError
from . import llama

GGUF_ARCH = "phi2"
HF_NAMES = ("PhiForCausalLM",)

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.dense": "attn_output",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
RENAMES = (("model.final_layernorm.", "model.norm."),)


def prepare(source, mmproj):
    source.rename(RENAMES)


def metadata(source, writer, say):
    source.config.setdefault("partial_rotary_factor", 0.5)
    if source.get("qk_layernorm", False):
        raise ConvertError("config.json: qk_layernorm is not converted for this architecture")
    llama.decoder_metadata(source, writer, say, act="gelu_new", eps="layer_norm_eps")


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)
    yield "output.bias", source.tensor("lm_head.bias")

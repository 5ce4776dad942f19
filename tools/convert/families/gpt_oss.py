# SPDX-License-Identifier: Apache-2.0
"""gpt-oss: GGUF architecture `gpt-oss`. Published weights have their experts in MXFP4, which goes into the file as it
is."""

import numpy as np

from .. import experts
from ..source import ConvertError
from . import llama

GGUF_ARCH = "gpt-oss"
HF_NAMES = ("GptOssForCausalLM",)

LAYER = {**llama.without_mlp(llama.LAYER), "post_attention_layernorm": "post_attention_norm"}


def metadata(source, writer, say):
    for key, value in (("swiglu_alpha", 1.702), ("swiglu_limit", 7.0)):
        if source.get(key, value) != value:
            raise ConvertError(f"config.json: {key} other than {value} has no GGUF form")
    kinds = source.get("layer_types") or []
    if any(kind != ("full_attention" if i % 2 else "sliding_attention") for i, kind in enumerate(kinds)):
        raise ConvertError("config.json: layer_types other than windows on every second layer have no GGUF form")
    llama.decoder_metadata(source, writer, say, whole_pairs=False)
    writer.add_sliding_window(source.need("sliding_window"))
    experts.write_keys(source, writer, source.need("intermediate_size"))


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)
    for i in range(source.need("num_hidden_layers")):
        at, blk = f"model.layers.{i}.", f"blk.{i}."
        yield blk + "attn_sinks.weight", source.tensor(at + "self_attn.sinks")
        for part in ("weight", "bias"):
            yield f"{blk}ffn_gate_inp.{part}", source.tensor(f"{at}mlp.router.{part}")
        gate, up = pairs(source.tensor(at + "mlp.experts.gate_up_proj_bias"))
        yield blk + "ffn_gate_exps.bias", gate
        yield blk + "ffn_up_exps.bias", up
        yield blk + "ffn_down_exps.bias", source.tensor(at + "mlp.experts.down_proj_bias")
        for module, names in (("gate_up_proj", ("gate", "up")), ("down_proj", ("down",))):
            for name, matrix in zip(names, matrices(source, f"{at}mlp.experts.{module}", len(names))):
                yield f"{blk}ffn_{name}_exps.weight", matrix


def pairs(rows):
    """Rows of gate and up alternate."""
    return rows[:, ::2], rows[:, 1::2]


def matrices(source, name, n):
    """The n stacks [experts, n_out, n_in] of a module: as floats, stored transposed, or as blocks of MXFP4."""
    if source.has(name):
        stack = source.tensor(name).swapaxes(1, 2)
        return pairs(stack) if n == 2 else (stack,)
    blocks, scales = source.raw(f"{name}_blocks"), source.raw(f"{name}_scales")
    # There, a byte holds two neighbours; in GGUF, element i and element i + 16. The scale comes first.
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
    packed = np.concatenate([scales[..., None], codes[..., :16] | codes[..., 16:] << 4], axis=-1)
    packed = packed.reshape(*packed.shape[:2], -1)
    return tuple(experts.Mxfp4(part) for part in (pairs(packed) if n == 2 else (packed,)))

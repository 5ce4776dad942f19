# SPDX-License-Identifier: Apache-2.0
"""Qwen3-VL with experts: the encoder as qwen3vl.py writes it, and the language model: GGUF architecture
`qwen3vlmoe`."""

from . import qwen3moe, qwen3vl

GGUF_ARCH = "qwen3vlmoe"
HF_NAMES = ("Qwen3VLMoeForConditionalGeneration",)

MMPROJ_ARCH = qwen3vl.MMPROJ_ARCH
prepare, mmproj_metadata, mmproj_tensors = qwen3vl.prepare, qwen3vl.mmproj_metadata, qwen3vl.mmproj_tensors


def metadata(source, writer, say):
    source.config.setdefault("norm_topk_prob", True)
    qwen3moe.metadata(source, writer, say)
    qwen3vl.write_sections(source, writer)


def tensors(source):
    yield from qwen3moe.decoder(source)
    for i in range(source.need("num_hidden_layers")):
        at, blk = f"model.layers.{i}.mlp.", f"blk.{i}."
        yield blk + "ffn_gate_inp.weight", source.tensor(at + "gate.weight")
        n_ff = source.need("moe_intermediate_size")
        both, down = source.tensor(at + "experts.gate_up_proj"), source.tensor(at + "experts.down_proj")
        if both.shape[1] != 2 * n_ff:  # published ones are transposed: [experts, n_in, n_out]
            both, down = both.swapaxes(1, 2), down.swapaxes(1, 2)
        yield blk + "ffn_gate_exps.weight", both[:, :n_ff]
        yield blk + "ffn_up_exps.weight", both[:, n_ff:]
        yield blk + "ffn_down_exps.weight", down

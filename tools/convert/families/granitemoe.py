# SPDX-License-Identifier: Apache-2.0
"""Granite with experts: GGUF architecture `granitemoe`."""

from .. import experts
from . import granite, llama

GGUF_ARCH = "granitemoe"
HF_NAMES = ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM")


def metadata(source, writer, say):
    granite.metadata(source, writer, say)
    experts.write_keys(source, writer, source.need("intermediate_size"))
    if source.get("shared_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(source.need("shared_intermediate_size"))


def tensors(source):
    yield from llama.interleaved_tensors(source, llama.without_mlp(llama.LAYER))
    for i in range(source.need("num_hidden_layers")):
        at = f"model.layers.{i}."
        yield f"blk.{i}.ffn_gate_inp.weight", source.tensor(at + "block_sparse_moe.router.layer.weight")
        yield from halves(source, f"{at}block_sparse_moe", f"blk.{i}", "exps", 1)
        if source.get("shared_intermediate_size"):
            yield from halves(source, f"{at}shared_mlp", f"blk.{i}", "shexp", 0)


def halves(source, module, blk, name, axis):
    """Gate and up are one matrix, one above the other."""
    both = source.tensor(f"{module}.input_linear.weight")
    n_ff = both.shape[axis] // 2
    yield f"{blk}.ffn_gate_{name}.weight", both.take(range(n_ff), axis)
    yield f"{blk}.ffn_up_{name}.weight", both.take(range(n_ff, 2 * n_ff), axis)
    yield f"{blk}.ffn_down_{name}.weight", source.tensor(f"{module}.output_linear.weight")

# SPDX-License-Identifier: Apache-2.0
"""Qwen3.5 with experts: the encoder as qwen35.py writes it, and the language model: GGUF architecture `qwen35moe`."""

from .. import experts
from . import qwen35

GGUF_ARCH = "qwen35moe"
HF_NAMES = ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM")

BLOCK = {hf: name for hf, name in qwen35.BLOCK.items() if not hf.startswith("mlp.")}
SHARED = {
    "shared_expert.gate_proj": "ffn_gate_shexp",
    "shared_expert.up_proj": "ffn_up_shexp",
    "shared_expert.down_proj": "ffn_down_shexp",
    "shared_expert_gate": "ffn_gate_inp_shexp",
}

MMPROJ_ARCH = qwen35.MMPROJ_ARCH
prepare, mmproj_metadata, mmproj_tensors = qwen35.prepare, qwen35.mmproj_metadata, qwen35.mmproj_tensors


def metadata(source, writer, say):
    # The width of a part that no layer has: some readers ask for one.
    source.config.setdefault("intermediate_size", source.need("moe_intermediate_size"))
    qwen35.metadata(source, writer, say)
    experts.write_keys(source, writer, source.need("moe_intermediate_size"))
    writer.add_expert_shared_feed_forward_length(source.need("shared_expert_intermediate_size"))


def expert_tensors(source):
    for i in range(source.need("num_hidden_layers")):
        hf = f"model.layers.{i}.mlp"
        if source.has(f"{hf}.experts.gate_up_proj"):
            both = source.tensor(f"{hf}.experts.gate_up_proj")
            half = both.shape[1] // 2
            yield f"blk.{i}.ffn_gate_inp.weight", source.tensor(f"{hf}.gate.weight")
            yield f"blk.{i}.ffn_gate_exps.weight", both[:, :half]
            yield f"blk.{i}.ffn_up_exps.weight", both[:, half:]
            yield f"blk.{i}.ffn_down_exps.weight", source.tensor(f"{hf}.experts.down_proj")
        else:
            yield from experts.separate(source, i, "mlp", "gate", ("gate_proj", "up_proj", "down_proj"))
        for module, name in SHARED.items():
            array = source.tensor(f"{hf}.{module}.weight")
            yield f"blk.{i}.{name}.weight", array[0] if module == "shared_expert_gate" else array


def tensors(source):
    yield from qwen35.tensors(source, BLOCK)
    yield from expert_tensors(source)

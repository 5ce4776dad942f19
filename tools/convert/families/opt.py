# SPDX-License-Identifier: Apache-2.0
"""OPT: GGUF architecture `opt`. src/model/opt.cc defines the names, which no other program has."""

from ..source import ConvertError

GGUF_ARCH = "opt"
HF_NAMES = ("OPTForCausalLM",)

LAYER = {
    "self_attn_layer_norm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "final_layer_norm": "ffn_norm",
    "fc1": "ffn_up",
    "fc2": "ffn_down",
}
DECODER = "model.decoder."
# Rows of the original table before position 0, a convention of its training code.
OFFSET = 2
# transformers' defaults for keys that config.json may omit.
DEFAULTS = dict(
    vocab_size=50272,
    hidden_size=768,
    num_hidden_layers=12,
    ffn_dim=3072,
    max_position_embeddings=2048,
    num_attention_heads=12,
    do_layer_norm_before=True,
    tie_word_embeddings=True,
)


def prepare(source, mmproj):
    source.config = {**DEFAULTS, **source.config}
    # Early converters omitted the prefix `model.`.
    source.rename((("decoder.", DECODER),))


def metadata(source, writer, say):
    if (act := source.get("activation_function", "relu")) != "relu":
        raise ConvertError(f"config.json: activation_function `{act}`; this architecture is defined with relu")
    if not source.get("layer_norm_elementwise_affine", True) or source.config.get("_remove_final_layer_norm"):
        raise ConvertError("config.json: layer norms without weights, or no final one, have no form in `opt`")
    n_heads = source.need("num_attention_heads")
    writer.add_context_length(source.need("max_position_embeddings"))
    writer.add_embedding_length(source.need("hidden_size"))
    writer.add_block_count(source.need("num_hidden_layers"))
    writer.add_feed_forward_length(source.need("ffn_dim"))
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(n_heads)
    writer.add_layer_norm_eps(1e-5)  # the default of PyTorch's layer norm; no configuration has it
    writer.add_bool("opt.norm_before", bool(source.need("do_layer_norm_before")))
    writer.add_vocab_size(source.need("vocab_size"))


def tensors(source):
    embedding = source.tensor(f"{DECODER}embed_tokens.weight")
    tied = source.get("tie_word_embeddings", True)
    if tied:
        source.ignore("lm_head.weight")
    head = embedding if tied else source.tensor("lm_head.weight")
    if source.has(f"{DECODER}project_in.weight"):
        # Both projections are linear and used nowhere else: folded into the tables they cost memory but no time.
        into, out = source.tensor(f"{DECODER}project_in.weight"), source.tensor(f"{DECODER}project_out.weight")
        embedding, head, tied = embedding @ into.T, head @ out, False
    yield "token_embd.weight", embedding
    if not tied:
        yield "output.weight", head
    yield "position_embd.weight", source.tensor(f"{DECODER}embed_positions.weight")[OFFSET:]
    if source.need("do_layer_norm_before"):
        for kind in ("weight", "bias"):
            yield f"output_norm.{kind}", source.tensor(f"{DECODER}final_layer_norm.{kind}")
    for i in range(source.need("num_hidden_layers")):
        for hf, name in LAYER.items():
            for kind in ("weight", "bias"):
                if kind == "weight" or source.has(f"{DECODER}layers.{i}.{hf}.{kind}"):
                    yield f"blk.{i}.{name}.{kind}", source.tensor(f"{DECODER}layers.{i}.{hf}.{kind}")

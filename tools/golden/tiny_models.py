#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the tiny random models of tests/golden/models with their reference numbers.

One file, although long: a list of models, each a configuration and how its layers are watched.

    tools/golden/tiny_models.py [--out tests/golden/models] [NAME ...]
    tools/golden/tiny_models.py --out FOLDER $(tools/golden/tiny_models.py --peer)

Each model is built by `transformers` from a fixed seed, converted by hf_to_gguf.py to F32 GGUF, and run by
`transformers` in float64 on a fixed token sequence (its RoPE angles, RMSNorm and nothing else stay in float32, as that
library computes them). NAME.golden holds the results. Needs torch, transformers, gguf.

Format of a golden: a sequence of entries to the end of the file, each a line `name rows cols\\n` in ASCII
followed by rows * cols little-endian float32 values, row by row. The entries, with n = number of tokens:
  tokens [n, 1], pos [n, 1]     the input; small integers, exact in float32
  rows [r, 1]                   which tokens the intermediates below were stored for (first 8 and last 8)
  embd                          [r, hidden]
  blk.L.attn_norm .q .k .v      inputs of attention; q, k before RoPE, after bias and head norms, [r, heads * head_dim]
                                with each head in Hugging Face's order: RoPE pairs element i with i + rotated elements /
                                2
  blk.L.latent                  (DeepSeek) [r, rank], in place of q, k and v
  blk.L.attn_out                [r, hidden], after the output projection, before the residual sum
  blk.L.ffn_norm .ffn_out .out  [r, hidden]; out is the residual stream after the block
  blk.L.attn_post_norm .ffn_post_norm   (Gemma) [r, hidden], what is added to the residual stream
  blk.L.input_post_norm         (Gemma 4, 3n) [r, hidden], what per-layer embeddings add to it
  blk.L.laurel                  (Gemma 3n) [r, hidden], what the bottleneck beside attention makes of attn_norm;
                                `out` is [r, streams * hidden]
  final_norm                    [r, hidden]
  logits                        [n, vocab]
  strided.pos, strided.logits   the same tokens at pos 0, 7, 14, ... [n, 1] and logits of the last 8 tokens
  short.logits                  (longrope) logits of the first 16 tokens run alone: within the original context, where
                                the short factors hold; the other entries are beyond it and use the long ones
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.convert.vocab import byte_alphabet
from tools.golden import internlm2_folder, qwen_folder

N_TOKENS, EDGE, VOCAB = 48, 8, 320
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
    " + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
MERGES = """Ġ t|Ġ a|h e|i n|r e|o n|Ġt he|e r|Ġ s|a t|Ġ w|Ġ o|e n|Ġ c|i t|i s|a n|o r|e s|Ġ b|e d|Ġ f|in g|Ġ p|o u
Ġa n|a l|a r|Ġt o|Ġ m|Ġo f|Ġ in|Ġ d|Ġ h|Ġan d|i c|a s|l e|Ġt h|i on|o m|l l|en t|Ġ n|Ġ l|s t|Ġ re|v e|Ġ e
r o|l y|Ġb e|Ġ g|Ġ T|c t|Ġ S|i d|o t|Ġ I|u t|e t|Ġ A|Ġ is|Ġ on"""

SMALL = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    tie_word_embeddings=True,
    max_position_embeddings=512,
)

PLAIN = {key: value for key, value in SMALL.items() if key != "head_dim"}


def rope(kind, theta=10000.0, **more):
    return dict(SMALL, rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


OPT = dict(
    hidden_size=32, ffn_dim=72, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=512, dropout=0.0
)

MODELS = {
    "llama": (
        "llama",
        dict(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            tie_word_embeddings=False,
            max_position_embeddings=512,
        ),
    ),
    "qwen2": (
        "qwen2",
        dict(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            max_position_embeddings=512,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
        ),
    ),
    # Saved in the layout of Qwen's own repository.
    "qwen": (
        "qwen",
        dict(
            hidden_size=32,
            intermediate_size=72,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            tie_word_embeddings=False,
            max_position_embeddings=512,
        ),
    ),
    "gptneox": (
        "gptneox",
        dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=512,
            rotary_pct=0.25,
        ),
    ),
    "gptneox_sequential": (
        "gptneox",
        dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=512,
            rotary_pct=1.0,
            use_parallel_residual=False,
        ),
    ),
    "qwen3": ("qwen3", dict(SMALL, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "phi3": (
        "phi3",
        dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            sliding_window=None,
        ),
    ),
    "phi3_longrope": (
        "phi3",
        dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=128,
            original_max_position_embeddings=32,
            sliding_window=None,
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=10000.0,
                partial_rotary_factor=0.75,
                short_factor=[1.0, 1.0, 1.05, 1.1, 1.2, 1.4],
                long_factor=[1.0, 1.2, 1.5, 2.0, 2.6, 4.0],
            ),
        ),
    ),
    # 48 tokens: windows of 20 hide the oldest ones from the last rows.
    "gemma2": (
        "gemma2",
        dict(
            SMALL,
            num_hidden_layers=3,
            sliding_window=20,
            query_pre_attn_scalar=16,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=4.0,
        ),
    ),
    "gemma3": (
        "gemma3",
        dict(
            SMALL,
            num_hidden_layers=7,
            intermediate_size=32,
            head_dim=8,
            sliding_window=20,
            query_pre_attn_scalar=8,
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            ),
        ),
    ),
    # Like the small sizes: per-layer embeddings, and upper layers that read the keys and values of lower ones.
    "gemma4": (
        "gemma4",
        dict(
            hidden_size=32,
            intermediate_size=24,
            num_hidden_layers=8,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=8,
            global_head_dim=16,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
            + ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            sliding_window=20,
            num_kv_shared_layers=3,
            use_double_wide_mlp=True,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=VOCAB,
            final_logit_softcapping=4.0,
            max_position_embeddings=512,
        ),
    ),
    # Several residual streams; sparse gates in the lower layers; upper layers that read the keys of lower ones.
    "gemma3n": (
        "gemma3n",
        dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            layer_types=["sliding_attention", "full_attention"] * 3,
            sliding_window=20,
            num_kv_shared_layers=2,
            activation_sparsity_pattern=[0.9, 0.7, 0.3, 0.0, 0.0, 0.0],
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=VOCAB - 20,
            laurel_rank=8,
            altup_num_inputs=4,
            final_logit_softcapping=4.0,
            max_position_embeddings=512,
        ),
    ),
    # Like the large sizes: values that are the keys, in layers with fewer and wider heads.
    "gemma4_k_eq_v": (
        "gemma4",
        dict(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            num_global_key_value_heads=2,
            head_dim=8,
            global_head_dim=16,
            layer_types=["sliding_attention", "full_attention"] * 2,
            sliding_window=20,
            attention_k_eq_v=True,
            hidden_size_per_layer_input=0,
            max_position_embeddings=512,
        ),
    ),
    "gemma": ("gemma", dict(SMALL)),
    "smollm3": ("smollm3", dict(PLAIN, num_hidden_layers=4)),
    "olmo2": ("olmo2", dict(PLAIN, tie_word_embeddings=False)),
    "olmo3": (
        "olmo3",
        dict(
            PLAIN,
            num_hidden_layers=4,
            tie_word_embeddings=False,
            sliding_window=20,
            rope_parameters=dict(
                full_attention=dict(
                    rope_type="yarn", rope_theta=100.0, factor=2.0, original_max_position_embeddings=256
                ),
                sliding_attention=dict(rope_type="default", rope_theta=100.0),
            ),
        ),
    ),
    "olmo3_llama3": (
        "olmo3",
        dict(
            PLAIN,
            layer_types=["sliding_attention", "full_attention"],
            sliding_window=20,
            rope_parameters=dict(
                full_attention=dict(
                    rope_type="llama3",
                    rope_theta=10000.0,
                    factor=8.0,
                    low_freq_factor=1.0,
                    high_freq_factor=4.0,
                    original_max_position_embeddings=64,
                ),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            ),
        ),
    ),
    "exaone4": ("exaone4", dict(SMALL, num_hidden_layers=4, head_dim=8, sliding_window=20)),
    "exaone4_small": ("exaone4", dict(SMALL, head_dim=8, sliding_window=None, layer_types=["full_attention"] * 2)),
    "glm4": ("glm4", dict(SMALL, attention_bias=True)),
    "mistral3": (
        "ministral3",
        rope(
            "yarn",
            factor=4.0,
            original_max_position_embeddings=16,
            mscale=1.0,
            mscale_all_dim=1.0,
            llama_4_scaling_beta=0.5,
        ),
    ),
    "granite": (
        "granite",
        dict(PLAIN, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.25, logits_scaling=2.0),
    ),
    "seed_oss": ("seed_oss", dict(SMALL, tie_word_embeddings=False, attention_bias=True)),
    "ernie4_5": ("ernie4_5", dict(SMALL)),
    # Saved in the layout of its own repository.
    "internlm2": ("internlm2", dict(PLAIN, tie_word_embeddings=False)),
    "command_r": ("cohere", dict(PLAIN, logit_scale=0.5)),
    "cohere2": ("cohere2", dict(PLAIN, num_hidden_layers=4, logit_scale=0.5, sliding_window=20)),
    "starcoder2": ("starcoder2", dict(PLAIN)),
    "phi2": ("phi", dict(PLAIN, num_key_value_heads=4, tie_word_embeddings=False, partial_rotary_factor=0.5)),
    "stablelm": (
        "stablelm",
        dict(PLAIN, hidden_size=64, tie_word_embeddings=False, use_qkv_bias=True, partial_rotary_factor=0.25),
    ),
    "llama_window": ("mistral", dict(SMALL, head_dim=8, sliding_window=20)),
    "llama_tied": ("llama", dict(SMALL, head_dim=8)),
    "llama_bias": ("llama", dict(SMALL, head_dim=8, num_key_value_heads=4, attention_bias=True, mlp_bias=True)),
    "llama_head_dim": ("llama", dict(SMALL, head_dim=24, num_key_value_heads=1)),
    "llama_wide_heads": ("llama", dict(SMALL, head_dim=32)),  # whole blocks of a quantised cache
    "llama_rope_linear": ("llama", rope("linear", factor=8.0)),
    "llama_rope_llama3": (
        "llama",
        rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64),
    ),
    # theta 100 and 256 trained positions put the blend of the two frequencies in the middle of the 8 pairs.
    "llama_rope_yarn": ("llama", rope("yarn", theta=100.0, factor=2.0, original_max_position_embeddings=256)),
    "llama_rope_longrope": (
        "llama",
        rope(
            "longrope",
            factor=4.0,
            original_max_position_embeddings=32,
            short_factor=[1.0, 1.0, 1.05, 1.1, 1.1, 1.2, 1.3, 1.4],
            long_factor=[1.0, 1.2, 1.5, 2.0, 2.6, 3.1, 3.6, 4.0],
        ),
    ),
    # Two heads of values to a head of keys; 48 tokens are more than the reference's chunks take whole.
    "qwen35": (
        "qwen35",
        dict(
            SMALL,
            num_hidden_layers=4,
            intermediate_size=32,
            tie_word_embeddings=False,
            linear_conv_kernel_dim=4,
            linear_key_head_dim=32,
            linear_value_head_dim=32,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            rope_parameters=dict(
                rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1]
            ),
        ),
    ),
    "qwen35moe": (
        "qwen35moe",
        dict(
            SMALL,
            num_hidden_layers=2,
            full_attention_interval=2,
            tie_word_embeddings=False,
            linear_key_head_dim=32,
            linear_value_head_dim=32,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            rope_parameters=dict(
                rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1]
            ),
        ),
    ),
    "qwen3next": (
        "qwen3next",
        dict(
            SMALL,
            num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"],
            full_attention_interval=2,
            tie_word_embeddings=False,
            linear_key_head_dim=32,
            linear_value_head_dim=32,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
        ),
    ),
    "lfm2": (
        "lfm2",
        dict(
            hidden_size=32,
            intermediate_size=64,
            block_auto_adjust_ff_dim=False,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            full_attn_idxs=[1, 3],
        ),
    ),
    "granitehybrid": (
        "granitehybrid",
        dict(
            SMALL,
            head_dim=8,
            num_hidden_layers=3,
            shared_intermediate_size=32,
            layer_types=["mamba", "attention", "mamba"],
            num_local_experts=0,
            num_experts_per_tok=0,
            position_embedding_type="nope",
            mamba_n_heads=2,
            mamba_d_head=32,
            mamba_n_groups=1,
            mamba_d_state=16,
            mamba_chunk_size=16,
            embedding_multiplier=3.0,
            attention_multiplier=0.2,
            residual_multiplier=0.5,
            logits_scaling=2.0,
        ),
    ),
    "granitehybrid_experts": (
        "granitehybrid",
        dict(
            SMALL,
            head_dim=8,
            num_hidden_layers=2,
            intermediate_size=32,
            shared_intermediate_size=32,
            layer_types=["mamba", "attention"],
            num_local_experts=6,
            num_experts_per_tok=2,
            position_embedding_type="nope",
            mamba_n_heads=2,
            mamba_d_head=32,
            mamba_n_groups=1,
            mamba_d_state=16,
            mamba_chunk_size=16,
        ),
    ),
    "falcon_h1": (
        "falcon_h1",
        dict(
            SMALL,
            head_dim=8,
            tie_word_embeddings=False,
            mamba_n_heads=2,
            mamba_d_head=32,
            mamba_d_ssm=64,
            mamba_n_groups=1,
            mamba_d_state=16,
            mamba_chunk_size=16,
            lm_head_multiplier=0.5,
            embedding_multiplier=3.0,
            mlp_multipliers=[0.8, 1.5],
            key_multiplier=0.7,
            attention_in_multiplier=1.2,
            attention_out_multiplier=0.9,
            ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7],
            ssm_in_multiplier=1.3,
            ssm_out_multiplier=0.6,
        ),
    ),
    "nemotron_h": (
        "nemotron_h",
        dict(
            hidden_size=32,
            intermediate_size=64,
            layers_block_type=["mamba", "mlp", "attention", "mamba"],
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=512,
            mamba_num_heads=2,
            mamba_head_dim=32,
            n_groups=2,
            ssm_state_size=16,
            conv_kernel=4,
            chunk_size=16,
        ),
    ),
    "qwen3moe": (
        "qwen3moe",
        dict(SMALL, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True),
    ),
    "llama_experts": ("mixtral", dict(SMALL, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2)),
    "olmoe": (
        "olmoe",
        dict(
            SMALL,
            head_dim=8,
            num_key_value_heads=4,
            num_experts=6,
            num_experts_per_tok=2,
            intermediate_size=32,
            tie_word_embeddings=False,
        ),
    ),
    # Some numbers lie beyond the bound.
    "olmoe_clip": (
        "olmoe",
        dict(
            SMALL,
            head_dim=8,
            num_hidden_layers=1,
            num_key_value_heads=4,
            num_experts=4,
            num_experts_per_tok=2,
            intermediate_size=32,
            clip_qkv=0.8,
        ),
    ),
    # Like V2-Lite: queries made at once, experts by softmax, scaled; and V2's groups, of which the best one counts.
    "deepseek2": (
        "deepseek_v2",
        dict(
            hidden_size=32,
            intermediate_size=64,
            moe_intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            kv_lora_rank=24,
            qk_rope_head_dim=8,
            qk_nope_head_dim=16,
            v_head_dim=12,
            n_routed_experts=8,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
            max_position_embeddings=512,
            q_lora_rank=None,
            n_shared_experts=2,
            n_group=4,
            topk_group=2,
            topk_method="group_limited_greedy",
            routed_scaling_factor=1.5,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=100.0,
                factor=4.0,
                original_max_position_embeddings=64,
                beta_fast=32.0,
                beta_slow=1.0,
                mscale=0.707,
                mscale_all_dim=0.707,
            ),
        ),
    ),
    # Like V3: queries through a smaller row, experts by sigmoid with a bias of the choice, in groups.
    "deepseek2_v3": (
        "deepseek_v3",
        dict(
            hidden_size=32,
            intermediate_size=64,
            moe_intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            kv_lora_rank=24,
            qk_rope_head_dim=8,
            qk_nope_head_dim=16,
            v_head_dim=12,
            n_routed_experts=8,
            num_experts_per_tok=2,
            first_k_dense_replace=1,
            max_position_embeddings=512,
            q_lora_rank=24,
            n_shared_experts=1,
            n_group=4,
            topk_group=2,
            routed_scaling_factor=2.5,
            num_mtp_layers=0,
        ),
    ),
    "deepseek2_glm": (
        "glm4_moe_lite",
        dict(
            hidden_size=32,
            intermediate_size=64,
            moe_intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            kv_lora_rank=32,
            qk_rope_head_dim=8,
            qk_nope_head_dim=16,
            v_head_dim=12,
            n_routed_experts=8,
            num_experts_per_tok=2,
            max_position_embeddings=512,
            q_lora_rank=16,
            n_shared_experts=1,
            n_group=1,
            topk_group=1,
            mlp_layer_types=["dense", "sparse"],
        ),
    ),
    "glm4moe": (
        "glm4_moe",
        dict(
            SMALL,
            intermediate_size=48,
            attention_bias=True,
            use_qk_norm=True,
            tie_word_embeddings=False,
            moe_intermediate_size=32,
            n_routed_experts=8,
            num_experts_per_tok=2,
            n_shared_experts=1,
            first_k_dense_replace=1,
            routed_scaling_factor=1.5,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
            num_mtp_layers=0,
        ),
    ),
    "dots1": (
        "dots1",
        dict(
            SMALL,
            num_key_value_heads=4,
            intermediate_size=48,
            tie_word_embeddings=False,
            moe_intermediate_size=32,
            n_routed_experts=6,
            num_experts_per_tok=2,
            n_shared_experts=2,
            first_k_dense_replace=1,
            norm_topk_prob=True,
            routed_scaling_factor=2.5,
            sliding_window=None,
            layer_types=["full_attention"] * 2,
        ),
    ),
    "ernie4_5_moe": (
        "ernie4_5_moe",
        dict(
            PLAIN,
            intermediate_size=48,
            moe_intermediate_size=32,
            moe_num_experts=6,
            moe_k=2,
            moe_num_shared_experts=2,
            moe_layer_start_index=1,
        ),
    ),
    "minimax_m2": (
        "minimax_m2",
        dict(
            SMALL,
            intermediate_size=32,
            tie_word_embeddings=False,
            num_local_experts=6,
            num_experts_per_tok=2,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
        ),
    ),
    "qwen2moe": (
        "qwen2_moe",
        dict(
            PLAIN,
            tie_word_embeddings=False,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=48,
            norm_topk_prob=False,
        ),
    ),
    "arcee": ("arcee", dict(SMALL)),
    "nemotron": ("nemotron", dict(PLAIN, tie_word_embeddings=False)),
    "apertus": ("apertus", dict(SMALL, tie_word_embeddings=False)),
    # Like 7B, one pair of keys and values for all heads; like 11B, groups of heads.
    "falcon": ("falcon", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)),
    "falcon_groups": (
        "falcon",
        dict(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_kv_heads=2,
            ffn_hidden_size=64,
            new_decoder_architecture=True,
            num_ln_in_parallel_attn=1,
            tie_word_embeddings=False,
        ),
    ),
    "lfm2moe": (
        "lfm2_moe",
        dict(
            hidden_size=32,
            intermediate_size=48,
            moe_intermediate_size=32,
            num_hidden_layers=3,
            num_dense_layers=1,
            num_experts=6,
            num_experts_per_tok=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            layer_types=["conv", "full_attention", "conv"],
        ),
    ),
    "nemotron_h_moe": (
        "nemotron_h",
        dict(
            hidden_size=32,
            layers_block_type=["mamba", "moe", "attention", "moe"],
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=512,
            mamba_num_heads=2,
            mamba_head_dim=32,
            n_groups=2,
            ssm_state_size=16,
            conv_kernel=4,
            chunk_size=16,
            n_routed_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            moe_shared_expert_intermediate_size=48,
            routed_scaling_factor=2.5,
        ),
    ),
    "qwen3vl": (
        "qwen3_vl",
        dict(
            SMALL,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[3, 3, 2]),
        ),
    ),
    "qwen3vlmoe": (
        "qwen3_vl_moe",
        dict(
            SMALL,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[3, 3, 2]),
        ),
    ),
    # The blend of YaRN's two frequencies is in the middle of the 8 pairs, and a window of 20 hides the oldest tokens.
    "gpt_oss": (
        "gpt_oss",
        dict(
            SMALL,
            num_hidden_layers=3,
            num_local_experts=4,
            num_experts_per_tok=2,
            intermediate_size=32,
            tie_word_embeddings=False,
            sliding_window=20,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=100.0,
                factor=2.0,
                original_max_position_embeddings=256,
                beta_fast=32.0,
                beta_slow=1.0,
                truncate=False,
            ),
        ),
    ),
    "granitemoe": (
        "granitemoe",
        dict(
            PLAIN,
            num_local_experts=4,
            num_experts_per_tok=2,
            intermediate_size=32,
            shared_intermediate_size=48,
            attention_multiplier=0.3,
            embedding_multiplier=3.0,
            residual_multiplier=0.7,
            logits_scaling=2.0,
        ),
    ),
    "opt": ("opt", dict(OPT)),
    # Like OPT-350M: norms after the sums, embeddings narrower than the model, projections between them.
    "opt_norm_after": ("opt", dict(OPT, do_layer_norm_before=False, word_embed_proj_dim=16)),
}

# Variants for tools/peer/tiny.py alone, too large to be committed: llama.cpp reads these families only with numbers of
# layers or sizes as in a published model, or without what the goldens have besides.
PEER_MODELS = {
    "deepseek2_27_layers": (
        "deepseek_v2",
        dict(MODELS["deepseek2"][1], num_hidden_layers=27, n_group=1, topk_group=1, topk_method="greedy"),
    ),
    "exaone4_64_layers": ("exaone4", dict(MODELS["exaone4"][1], num_hidden_layers=64)),
    "gemma3n_25_layers": (
        "gemma3n",
        dict(
            MODELS["gemma3n"][1],
            intermediate_size=8192,
            num_hidden_layers=25,
            layer_types=None,
            num_kv_shared_layers=5,
            activation_sparsity_pattern=[0.95] * 10 + [0.0] * 15,
            hidden_size_per_layer_input=256,
            vocab_size_per_layer_input=VOCAB,
            laurel_rank=64,
            final_logit_softcapping=30.0,
        ),
    ),
    "gpt_oss_without_yarn": (
        "gpt_oss",
        dict(MODELS["gpt_oss"][1], rope_parameters=dict(rope_type="default", rope_theta=100.0)),
    ),
}


def write_tokenizer(folder, specials=SPECIALS, eos=SPECIALS[2], template=TEMPLATE, first_merges=()):
    """Byte-level BPE: the specials, 256 bytes, and merges to make it 320 tokens."""
    merges = [m.split(" ") for m in (*first_merges, *(m for line in MERGES.split("\n") for m in line.split("|")))]
    merges = merges[: VOCAB - 256 - len(specials)]
    tokens = list(specials) + byte_alphabet() + [a + b for a, b in merges]
    assert len(set(tokens)) == len(tokens) == VOCAB, len(set(tokens))
    vocab = {t: i for i, t in enumerate(tokens)}
    added = [
        dict(id=i, content=t, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
        for i, t in enumerate(specials)
    ]
    (folder / "tokenizer.json").write_text(
        json.dumps(
            dict(
                version="1.0",
                truncation=None,
                padding=None,
                added_tokens=added,
                normalizer=None,
                post_processor=None,
                pre_tokenizer=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True),
                decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
                model=dict(
                    type="BPE",
                    dropout=None,
                    unk_token=None,
                    continuing_subword_prefix=None,
                    end_of_word_suffix=None,
                    fuse_unk=False,
                    byte_fallback=False,
                    vocab=vocab,
                    merges=merges,
                ),
            )
        )
    )
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            dict(
                tokenizer_class="PreTrainedTokenizerFast",
                bos_token=specials[0],
                eos_token=eos,
                add_bos_token=False,
                chat_template=template,
            )
        )
    )


# Encoders of pictures, which the files do not have.
VISION = dict(
    depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=32, deepstack_visual_indexes=[0]
)


def with_vision(config):
    def make(vocab_size, bos_token_id, eos_token_id, use_cache, tie_word_embeddings=False, **text):
        text |= dict(vocab_size=vocab_size, bos_token_id=bos_token_id, eos_token_id=eos_token_id, use_cache=use_cache)
        return config(text_config=text, vision_config=VISION, tie_word_embeddings=tie_word_embeddings)

    return make


KINDS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "qwen": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "internlm2": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "phi3": (transformers.Phi3Config, transformers.Phi3ForCausalLM),
    "gptneox": (transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM),
    "qwen3moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
    "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
    "olmoe": (transformers.OlmoeConfig, transformers.OlmoeForCausalLM),
    "glm4_moe": (transformers.Glm4MoeConfig, transformers.Glm4MoeForCausalLM),
    "dots1": (transformers.Dots1Config, transformers.Dots1ForCausalLM),
    "ernie4_5_moe": (transformers.Ernie4_5_MoeConfig, transformers.Ernie4_5_MoeForCausalLM),
    "minimax_m2": (transformers.MiniMaxM2Config, transformers.MiniMaxM2ForCausalLM),
    "qwen2_moe": (transformers.Qwen2MoeConfig, transformers.Qwen2MoeForCausalLM),
    "arcee": (transformers.ArceeConfig, transformers.ArceeForCausalLM),
    "nemotron": (transformers.NemotronConfig, transformers.NemotronForCausalLM),
    "apertus": (transformers.ApertusConfig, transformers.ApertusForCausalLM),
    "falcon": (transformers.FalconConfig, transformers.FalconForCausalLM),
    "lfm2_moe": (transformers.Lfm2MoeConfig, transformers.Lfm2MoeForCausalLM),
    "qwen3_vl": (with_vision(transformers.Qwen3VLConfig), transformers.Qwen3VLForConditionalGeneration),
    "qwen3_vl_moe": (with_vision(transformers.Qwen3VLMoeConfig), transformers.Qwen3VLMoeForConditionalGeneration),
    "deepseek_v2": (transformers.DeepseekV2Config, transformers.DeepseekV2ForCausalLM),
    "deepseek_v3": (transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM),
    "glm4_moe_lite": (transformers.Glm4MoeLiteConfig, transformers.Glm4MoeLiteForCausalLM),
    "gpt_oss": (transformers.GptOssConfig, transformers.GptOssForCausalLM),
    "opt": (transformers.OPTConfig, transformers.OPTForCausalLM),
    "qwen35": (transformers.Qwen3_5TextConfig, transformers.Qwen3_5ForCausalLM),
    "qwen35moe": (transformers.Qwen3_5MoeTextConfig, transformers.Qwen3_5MoeForCausalLM),
    "qwen3next": (transformers.Qwen3NextConfig, transformers.Qwen3NextForCausalLM),
    "lfm2": (transformers.Lfm2Config, transformers.Lfm2ForCausalLM),
    "granitehybrid": (transformers.GraniteMoeHybridConfig, transformers.GraniteMoeHybridForCausalLM),
    "falcon_h1": (transformers.FalconH1Config, transformers.FalconH1ForCausalLM),
    "nemotron_h": (transformers.NemotronHConfig, transformers.NemotronHForCausalLM),
    "gemma": (transformers.GemmaConfig, transformers.GemmaForCausalLM),
    "smollm3": (transformers.SmolLM3Config, transformers.SmolLM3ForCausalLM),
    "olmo2": (transformers.Olmo2Config, transformers.Olmo2ForCausalLM),
    "olmo3": (transformers.Olmo3Config, transformers.Olmo3ForCausalLM),
    "exaone4": (transformers.Exaone4Config, transformers.Exaone4ForCausalLM),
    "glm4": (transformers.Glm4Config, transformers.Glm4ForCausalLM),
    "ministral3": (transformers.Ministral3Config, transformers.Ministral3ForCausalLM),
    "granite": (transformers.GraniteConfig, transformers.GraniteForCausalLM),
    "granitemoe": (transformers.GraniteMoeSharedConfig, transformers.GraniteMoeSharedForCausalLM),
    "seed_oss": (transformers.SeedOssConfig, transformers.SeedOssForCausalLM),
    "ernie4_5": (transformers.Ernie4_5Config, transformers.Ernie4_5ForCausalLM),
    "cohere": (transformers.CohereConfig, transformers.CohereForCausalLM),
    "cohere2": (transformers.Cohere2Config, transformers.Cohere2ForCausalLM),
    "starcoder2": (transformers.Starcoder2Config, transformers.Starcoder2ForCausalLM),
    "phi": (transformers.PhiConfig, transformers.PhiForCausalLM),
    "stablelm": (transformers.StableLmConfig, transformers.StableLmForCausalLM),
    "gemma2": (transformers.Gemma2Config, transformers.Gemma2ForCausalLM),
    "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
    "gemma4": (transformers.Gemma4TextConfig, transformers.Gemma4ForCausalLM),
    "gemma3n": (transformers.Gemma3nTextConfig, transformers.Gemma3nForCausalLM),
}

LAYER_NORMS = ("cohere", "cohere2", "starcoder2", "phi", "stablelm", "nemotron", "falcon")
# Kinds that multiply their embeddings or pass nothing else on: `embd` is the first layer's input.
FROM_THE_FIRST_LAYER = (
    *LAYER_NORMS,
    "ernie4_5",
    "ernie4_5_moe",
    "exaone4",
    "gemma",
    "glm4",
    "granite",
    "granitemoeshared",
    "granitemoehybrid",
    "ministral3",
    "olmo2",
    "olmo3",
    "seed_oss",
    "smollm3",
)
# Their folders' rows rotate pairs (2i, 2i + 1).
INTERLEAVED = ("cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "glm4")


def build(kind, settings, seed):
    settings = dict(settings, vocab_size=VOCAB, bos_token_id=0, eos_token_id=2, use_cache=False)
    if kind not in ("opt", *LAYER_NORMS):
        settings[
            {"lfm2": "norm_eps", "lfm2_moe": "norm_eps", "nemotron_h": "layer_norm_epsilon"}.get(kind, "rms_norm_eps")
        ] = 1e-5
    if kind == "phi3" or kind in FROM_THE_FIRST_LAYER:  # whose default lies beyond this vocabulary
        settings["pad_token_id"] = 1
    config, model = KINDS[kind]
    # sdpa: its softmax stays in float64, the eager one casts to float32. Only the eager one caps scores and
    # has sinks.
    attention = "eager" if kind in ("gemma2", "gpt_oss") else "sdpa"
    model = model._from_config(config(**settings), attn_implementation=attention).eval()
    if "num_experts_per_tok" in settings or "moe_k" in settings:
        model.config._experts_implementation = "eager"  # the others compute in float32 only
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ("norm" in name or ".ln_" in name) and name.endswith("weight"):
                # Gemma 2, 3, Nemotron, Qwen3.5 and Qwen3-Next store offsets from 1, but for the norm inside of the
                # recurrence of the last two.
                offset = kind in ("gemma2", "gemma3", "nemotron") or (
                    kind in ("qwen35", "qwen35moe", "qwen3next") and "linear_attn" not in name
                )
                p.copy_((0.0 if offset else 1.0) + 0.2 * torch.randn(p.shape, generator=g))
            elif name.endswith("A_log") or name.endswith("dt_bias") or name.endswith(".D"):
                p.copy_(torch.randn(p.shape, generator=g))
            elif name.endswith("conv1d.weight") or name.endswith("conv.conv.weight"):
                p.copy_(0.5 * torch.randn(p.shape, generator=g))
            elif name.endswith("bias"):
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
            elif kind.startswith("gemma") and "embed_tokens" in name:
                # Scaled by the square root of the width at the input, unscaled at the output.
                p.copy_(torch.randn(p.shape, generator=g) / p.shape[1] ** 0.5 * 2)
            elif "experts" in name and p.dim() == 3:  # a stack of matrices; gpt-oss limits its gates at 7
                p.copy_((5.0 if kind == "gpt_oss" else 1.0) / p.shape[2] ** 0.5 * torch.randn(p.shape, generator=g))
            elif name.endswith(("alpha_p", "alpha_n")):
                p.copy_(torch.randn(p.shape, generator=g))
            elif name.endswith(("sinks", "correct_output_scale")):
                p.copy_(2.0 * torch.randn(p.shape, generator=g))
            elif "q_proj" in name or "k_proj" in name or "qkv" in name or "query_key_value" in name:
                # Large enough that attention picks a few keys instead of averaging all of them.
                p.copy_(2.0 / p.shape[1] ** 0.5 * torch.randn(p.shape, generator=g))
            else:
                p.copy_(1.0 / p.shape[1] ** 0.5 * torch.randn(p.shape, generator=g))
        for name, b in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                b.copy_(0.3 * torch.randn(b.shape, generator=g))
            if name.endswith("layer_scalar"):
                b.copy_(1.0 + 0.2 * torch.randn(b.shape, generator=g))
    return model


# Name of an intermediate -> the module whose output it is, inside one layer.
LLAMA = {
    "attn_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_out": "mlp",
}
PARALLEL = {**LLAMA, "ffn_norm": "input_layernorm"}
HEAD_NORMS = {"q": "self_attn.q_norm", "k": "self_attn.k_norm"}
GEMMA = {
    **LLAMA,
    "attn_post_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_post_norm": "post_feedforward_layernorm",
}
GEMMA4 = {
    **GEMMA,
    **HEAD_NORMS,
    "v": "self_attn.v_norm",
    "input_post_norm": "post_per_layer_input_norm",
}
# The halves of a block read the stream itself.
POST_NORMS = {
    **{name: path for name, path in LLAMA.items() if not name.endswith("_norm")},
    **HEAD_NORMS,
    "attn_post_norm": "post_attention_layernorm",
    "ffn_post_norm": "post_feedforward_layernorm",
}
# In layers that attend; the others have the same names but for those of `attn`.
QWEN35 = {**LLAMA, **HEAD_NORMS}
LFM2 = {
    "attn_norm": "operator_norm",
    "q": "self_attn.q_layernorm",
    "k": "self_attn.k_layernorm",
    "v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_norm": "ffn_norm",
    "ffn_out": "feed_forward",
}
DELTA = "linear_attn.out_proj"
RECURRENT = {"qwen3_5_text": DELTA, "qwen3_5_moe_text": DELTA, "qwen3_next": DELTA, "lfm2": "conv.out_proj"}
RECURRENT["lfm2_moe"] = "conv.out_proj"
RECURRENT["granitemoehybrid"] = "mamba.out_proj"
# Of layers that are one part only.
NEMOTRON_H = {
    "linear_attention": {"attn_norm": "norm", "attn_out": "mixer"},
    "full_attention": {
        "attn_norm": "norm",
        "q": "mixer.q_proj",
        "k": "mixer.k_proj",
        "v": "mixer.v_proj",
        "attn_out": "mixer",
    },
    "mlp": {"ffn_norm": "norm", "ffn_out": "mixer"},
    "moe": {"ffn_norm": "norm", "ffn_out": "mixer"},
}
# Queries and keys are cut and reordered inside of the module.
LATENT = {
    "attn_norm": "input_layernorm",
    "latent": "self_attn.kv_a_layernorm",
    "attn_out": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_out": "mlp",
}
LAYERS = {
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "glm4_moe_lite": LATENT,
    "qwen3_5_text": QWEN35,
    "qwen3_5_moe_text": QWEN35,
    "granitemoehybrid": {**LLAMA, "ffn_out": "shared_mlp"},
    # Attention and Mamba-2 side by side; keys and what each adds are multiplied outside of their modules.
    "falcon_h1": {
        "attn_norm": "input_layernorm",
        "q": "self_attn.q_proj",
        "v": "self_attn.v_proj",
        "ffn_norm": "pre_ff_layernorm",
        "ffn_out": "feed_forward",
    },
    "qwen3_next": QWEN35,
    "lfm2": LFM2,
    "lfm2_moe": LFM2,
    "glm4_moe": {**LLAMA, **HEAD_NORMS},
    "dots1": {**LLAMA, **HEAD_NORMS},
    "minimax_m2": {**LLAMA, **HEAD_NORMS},
    "qwen3_vl": {**LLAMA, **HEAD_NORMS},
    "qwen3_vl_moe": {**LLAMA, **HEAD_NORMS},
    "qwen3": {**LLAMA, **HEAD_NORMS},
    "olmo2": POST_NORMS,
    "olmo3": POST_NORMS,
    "exaone4": POST_NORMS,
    "glm4": {**LLAMA, "attn_post_norm": "post_self_attn_layernorm", "ffn_post_norm": "post_mlp_layernorm"},
    "cohere": PARALLEL,
    "cohere2": PARALLEL,
    "phi": {**PARALLEL, "attn_out": "self_attn.dense"},
    "qwen3_moe": {**LLAMA, **HEAD_NORMS},
    "olmoe": {**LLAMA, **HEAD_NORMS},
    # Its two kinds of experts have no module in common.
    "granitemoeshared": {name: path for name, path in LLAMA.items() if name != "ffn_out"},
    "phi3": {
        "attn_norm": "input_layernorm",
        "qkv": "self_attn.qkv_proj",
        "attn_out": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_out": "mlp",
    },
    "apertus": {
        **LLAMA,
        **HEAD_NORMS,
        "attn_norm": "attention_layernorm",
        "ffn_norm": "feedforward_layernorm",
    },
    "falcon": {
        "attn_norm": "input_layernorm",
        "qkv": "self_attention.query_key_value",
        "attn_out": "self_attention.dense",
        "ffn_norm": "input_layernorm",
        "ffn_out": "mlp",
    },
    "gpt_neox": {
        "attn_norm": "input_layernorm",
        "qkv": "attention.query_key_value",
        "attn_out": "attention.dense",
        "ffn_norm": "post_attention_layernorm",
        "ffn_out": "mlp",
    },
    "opt": {
        "attn_norm": "self_attn_layer_norm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "attn_out": "self_attn.out_proj",
        "ffn_norm": "final_layer_norm",
        "ffn_out": "fc2",
    },
    "gemma2": GEMMA,
    "gemma3_text": {**GEMMA, **HEAD_NORMS},
    "gemma4_text": GEMMA4,
    "gemma3n_text": {**GEMMA4, "laurel": "laurel"},
}


def split_qkv(config, qkv):
    """q, k and v of a module that computes all three: [n, heads, q k v] in GPT-NeoX, by groups of heads in Falcon,
    concatenated in Phi-3."""
    n, n_heads = qkv.shape[0], config.num_attention_heads
    if config.model_type == "gpt_neox":
        return [part.reshape(n, -1) for part in qkv.reshape(n, n_heads, 3, -1).unbind(2)]
    if config.model_type == "falcon":  # groups of query heads with their key and value
        n_kv = config.num_kv_heads if config.new_decoder_architecture else 1
        groups = qkv.reshape(n, n_kv, n_heads // n_kv + 2, -1)
        return [part.reshape(n, -1) for part in (groups[:, :, :-2], groups[:, :, -2], groups[:, :, -1])]
    head_dim = config.hidden_size // n_heads
    n_kv = config.num_key_value_heads * head_dim
    return qkv.split([n_heads * head_dim, n_kv, n_kv], dim=1)


def by_halves(config, heads):
    """Rotated pairs (2i, 2i + 1) of every head as (i, i + rotated elements / 2)."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    n_rot = int(head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
    heads = heads.reshape(len(heads), -1, head_dim)
    parts = [heads[..., 0:n_rot:2], heads[..., 1:n_rot:2], heads[..., n_rot:]]
    return torch.cat(parts, dim=-1).reshape(len(heads), -1)


def run(model, tokens, pos):
    """Logits [n, vocab] and every named intermediate [n, cols]."""
    seen, hooks = {}, []

    def rows(out):
        out = out[0] if isinstance(out, tuple) else out
        if kind == "gemma3n_text" and out.dim() == 4 and out.shape[1] == 1:  # a layer's streams [streams, 1, n, hidden]
            out = out.permute(2, 1, 0, 3)
        if out.dim() == 4 and out.shape[1] != len(tokens):  # Gemma 3 normalises heads after transposing them
            out = out.transpose(1, 2)
        # Falcon adds to what its feed-forward part returned.
        return out.reshape(len(tokens), -1).clone() if kind == "falcon" else out.reshape(len(tokens), -1)

    def keep(name, module, before=False):
        if before:
            hooks.append(module.register_forward_pre_hook(lambda m, i: seen.__setitem__(name, rows(i[0]))))
        else:
            hooks.append(module.register_forward_hook(lambda m, i, o: seen.__setitem__(name, rows(o))))

    base, kind = model.base_model, model.config.model_type
    if kind == "opt":  # the first block's input includes the positions
        base = base.decoder
        keep("embd", base.layers[0], before=True)
        last = base.final_layer_norm or base.layers[-1]
    elif kind == "gpt_neox":
        keep("embd", base.embed_in)
        last = base.final_layer_norm
    elif kind.startswith("qwen3_vl"):
        base = base.language_model
        keep("embd", base.embed_tokens)
        last = base.norm
    elif kind == "nemotron_h":
        keep("embd", base.embeddings)
        last = base.norm_f
    elif kind == "falcon_h1":
        keep("embd", base.layers[0], before=True)
        last = base.final_layernorm
    elif kind == "falcon":
        keep("embd", base.word_embeddings)
        last = base.ln_f
    elif kind in FROM_THE_FIRST_LAYER:
        keep("embd", base.layers[0], before=True)
        last = base.final_layernorm if kind == "phi" else base.norm
    else:
        keep("embd", base.embed_tokens)
        last = base.embedding_norm if kind.startswith("lfm2") else base.norm
    for i, layer in enumerate(getattr(base, "h", None) or base.layers):
        names = LAYERS.get(kind, LLAMA)
        if kind in RECURRENT and getattr(layer, "self_attn", None) is None:
            names = {k: path for k, path in names.items() if not path.startswith("self_attn")}
            names["attn_out"] = RECURRENT[kind]
        if getattr(layer, "has_experts", False):  # whose result no module has
            names = {k: path for k, path in names.items() if k != "ffn_out"}
        if kind == "nemotron_h":
            names = NEMOTRON_H[layer.block_type]
        # A layer that reads another's keys has none, and per-layer embeddings are optional.
        if kind in ("gemma4_text", "gemma3n_text"):
            names = {k: path for k, path in names.items() if path in dict(layer.named_modules())}
        for name, path in names.items():
            keep(f"blk.{i}.{name}", layer.get_submodule(path))
        keep(f"blk.{i}.out", layer)
    keep("final_norm", last)
    with torch.no_grad():
        ids = torch.tensor([tokens])
        # An explicit mask: without one, positions with gaps would be taken for several packed sequences.
        out = model(ids, position_ids=torch.tensor([pos]), attention_mask=torch.ones_like(ids))
    for h in hooks:
        h.remove()
    for name in [name for name in seen if name.endswith(".qkv")]:
        for part, values in zip("qkv", split_qkv(model.config, seen.pop(name))):
            seen[name[:-3] + part] = values
    for name in [name for name in seen if kind in INTERLEAVED and name.endswith((".q", ".k"))]:
        seen[name] = by_halves(model.config, seen[name])
    # What the head multiplies.
    seen["final_norm"] = (
        seen["final_norm"] * getattr(model.config, "logit_scale", 1.0) / getattr(model.config, "logits_scaling", 1.0)
    )
    return out.logits[0].double().numpy(), {k: v.double().numpy() for k, v in seen.items()}


def make(name, out, seed):
    kind, settings = (MODELS | PEER_MODELS)[name]
    model = build(kind, settings, seed)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        save = {"qwen": qwen_folder.save, "internlm2": internlm2_folder.save}.get(kind)
        save(model, folder) if save else model.save_pretrained(folder)
        write_tokenizer(Path(folder))
        # Readers expect Phi-3's own vocabulary in a file named phi3.
        title = name.replace("phi3", "phi")
        hf_to_gguf.convert_folder(folder, out / f"{name}.gguf", "f32", name=f"tiny random {title}")
    tokens = np.random.default_rng(seed).integers(3, VOCAB, N_TOKENS).tolist()
    pos, strided = list(range(N_TOKENS)), [7 * i for i in range(N_TOKENS)]
    single, _ = run(model, tokens, pos)
    model = model.double()
    logits, seen = run(model, tokens, pos)
    gap = float(np.abs(single - logits).max())
    assert gap < 1e-3, f"{name}: float32 and float64 differ by {gap}"
    rows = list(range(EDGE)) + list(range(N_TOKENS - EDGE, N_TOKENS))
    column = lambda values: np.array(values).reshape(-1, 1)
    entries = {"tokens": column(tokens), "pos": column(pos), "rows": column(rows)}
    entries.update({k: v[rows] for k, v in seen.items()})
    entries["logits"] = logits
    entries["strided.pos"] = column(strided)
    entries["strided.logits"] = run(model, tokens, strided)[0][-EDGE:]
    if "longrope" in name:
        entries["short.logits"] = run(model, tokens[:16], pos[:16])[0]
    with open(out / f"{name}.golden", "wb") as f:
        for key, v in entries.items():
            f.write(f"{key} {v.shape[0]} {v.shape[1]}\n".encode("ascii"))
            f.write(np.ascontiguousarray(v, dtype="<f4").tobytes())
    print(
        f"{name}: logits {logits.min():.2f} .. {logits.max():.2f}, std {logits.std():.2f}; float32 differs by {gap:.1e}"
    )


def main():
    parser = argparse.ArgumentParser(description="Builds the tiny random models of tests/golden/models.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS | PEER_MODELS))
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/models")
    parser.add_argument("--seed", type=int, default=20240607)
    parser.add_argument("--peer", action="store_true", help="prints the names of the variants for tools/peer/tiny.py")
    args = parser.parse_args()
    if args.peer:
        return print(*PEER_MODELS)
    torch.set_num_threads(1)  # one order of summation
    for name in args.names or MODELS:
        if name not in MODELS | PEER_MODELS:
            sys.exit(f"tiny_models: no model {name}; known: {', '.join(MODELS | PEER_MODELS)}")
        make(name, args.out, args.seed)


if __name__ == "__main__":
    main()

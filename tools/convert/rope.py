# SPDX-License-Identifier: Apache-2.0
"""RoPE scaling: Hugging Face parameters to GGUF keys and per-frequency factor tensors.

GGUF knows the kinds none, linear, yarn and longrope by key; llama3 is stored as one divisor per frequency in
`rope_freqs.weight`. Dynamic NTK has no GGUF form: up to the trained length it equals plain RoPE, so the file is
written as plain RoPE and the converter prints a remark.
"""

import math

import gguf
import numpy as np

from .source import ConvertError


def _mscale(factor, mscale=1.0):
    return 1.0 if factor <= 1.0 else 0.1 * mscale * math.log(factor) + 1.0


def write_keys(source, writer, say, whole_pairs=True):
    """`whole_pairs`: whether readers of this architecture widen YaRN's range to whole pairs."""
    kind, params, theta = source.rope()
    writer.add_rope_freq_base(theta)
    writer.add_rope_dimension_count(source.n_rot())
    if kind in ("default", "llama3"):
        return
    if kind == "dynamic":
        say(
            f"dynamic RoPE scaling: the file has plain RoPE, exact up to {source.need('max_position_embeddings')} "
            f"tokens"
        )
        return
    original = source.original_context(params)
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(params["factor"]))
    elif kind == "yarn":
        if params.get("truncate", True) is not whole_pairs:
            raise ConvertError(f"config.json: YaRN with truncate={not whole_pairs} has no GGUF form here")
        factor = float(params.get("factor") or source.need("max_position_embeddings") / original)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(factor)
        writer.add_rope_scaling_orig_ctx_len(original)
        if params.get("beta_fast"):
            writer.add_rope_scaling_yarn_beta_fast(float(params["beta_fast"]))
        if params.get("beta_slow"):
            writer.add_rope_scaling_yarn_beta_slow(float(params["beta_slow"]))
        # Readers scale cos and sin by 0.1 ln(factor) + 1 on their own; attn_factor multiplies that.
        attention = params.get("attention_factor")
        if attention is None and params.get("mscale") and params.get("mscale_all_dim"):
            attention = _mscale(factor, params["mscale"]) / _mscale(factor, params["mscale_all_dim"])
        if attention is not None:
            writer.add_rope_scaling_attn_factors(float(attention) / _mscale(factor))
    elif kind == "longrope":
        factor = float(params.get("factor") or source.need("max_position_embeddings") / original)
        attention = params.get("attention_factor")
        if attention is None:
            attention = 1.0 if factor <= 1.0 else math.sqrt(1.0 + math.log(factor) / math.log(original))
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_factor(1.0)  # the factors below are all of the scaling
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(attention))
    else:
        raise ConvertError(f"config.json: RoPE scaling kind `{kind}` is not converted")


def tensors(source):
    """Yields the factor tensors, [rotated elements / 2], that the kind needs."""
    kind, params, theta = source.rope()
    half = source.n_rot() // 2
    if kind == "llama3":
        low = float(params["low_freq_factor"])
        high = float(params["high_freq_factor"])
        factor = float(params["factor"])
        original = source.original_context(params)
        wavelength = 2.0 * math.pi * theta ** (np.arange(half) / half)
        # Long waves are divided by `factor`, short ones kept; between the two the frequency is blended.
        smooth = np.clip((original / wavelength - low) / (high - low), 0.0, 1.0)
        yield "rope_freqs.weight", (1.0 / ((1.0 - smooth) / factor + smooth)).astype(np.float32)
    elif kind == "longrope":
        for key, name in (("long_factor", "rope_factors_long.weight"), ("short_factor", "rope_factors_short.weight")):
            values = np.asarray(params[key], dtype=np.float32)
            if values.shape != (half,):
                raise ConvertError(f"config.json: {key} has {values.size} entries for {half} rotated pairs")
            yield name, values

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's attention at the shapes of bench/gpu_bench.cc, as Markdown rows, for comparison with weir's
kernels.

    tools/gpu/torch_bench.py

Needs the Python package torch and a CUDA device.
"""

import sys
from functools import partial

import torch
import torch.nn.functional as F

HEADS, KV_HEADS, DIM = 32, 8, 128


def microseconds(call):
    for _ in range(3):
        call()
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(10):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 100)
    return sorted(times)[3]


def main():
    if not torch.cuda.is_available():
        print("torch_bench: no CUDA device", file=sys.stderr)
        return 2
    print("\n| PyTorch, scaled_dot_product_attention | us |\n|---|---|")
    for n_keys in (2048, 8192, 32768, 131072):
        for n_rows in (1, 256):
            q = torch.randn(1, HEADS, n_rows, DIM, device="cuda", dtype=torch.float16)
            # PyTorch's fast kernels need as many KV heads as query heads; the copies are not timed.
            k, v = (
                torch.randn(1, KV_HEADS, n_keys, DIM, device="cuda", dtype=torch.float16).repeat_interleave(
                    HEADS // KV_HEADS, 1
                )
                for _ in range(2)
            )
            t = microseconds(partial(F.scaled_dot_product_attention, q, k, v))
            print(f"| {n_rows} rows over {n_keys} keys | {t:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

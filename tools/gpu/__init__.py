# SPDX-License-Identifier: Apache-2.0
"""The CUDA kernels' resource usage as compiled, and the speed of PyTorch's kernels for comparison."""

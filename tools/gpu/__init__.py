# SPDX-License-Identifier: Apache-2.0
"""What the compiler gives to the CUDA kernels, and the speed of PyTorch's beside them."""

# SPDX-License-Identifier: Apache-2.0
"""Model files with the shape of a real model and no training, for speed and for `weir plan`."""

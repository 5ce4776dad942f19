# SPDX-License-Identifier: Apache-2.0
"""Untrained model files in the shapes of real models, for speed measurements and `weir plan`."""

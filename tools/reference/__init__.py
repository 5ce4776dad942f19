# SPDX-License-Identifier: Apache-2.0
"""Independent NumPy implementations of the eviction policies, from the papers' rules: see common.py."""

# SPDX-License-Identifier: Apache-2.0
"""What the eviction policies keep, written a second time in NumPy from the papers' rules: see common.py."""

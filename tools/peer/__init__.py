# SPDX-License-Identifier: Apache-2.0
"""Compares weir with llama.cpp on the same files."""

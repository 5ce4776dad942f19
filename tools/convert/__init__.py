# SPDX-License-Identifier: Apache-2.0
"""Makes model files: Hugging Face folders to GGUF (hf_to_gguf.py), one element type to another (requantize.py)."""

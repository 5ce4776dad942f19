"""Compares weir with llama.cpp on the same files."""

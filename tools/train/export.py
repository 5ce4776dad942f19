# SPDX-License-Identifier: Apache-2.0
"""Exports a trained model: transformers' folder, then the two GGUF files by tools/convert/hf_to_gguf.py."""

import torch

from tools.convert import hf_to_gguf

MOST_BYTES = 16 << 20


@torch.no_grad()
def export(recipe, model, out, outtype="f16"):
    """Writes out/hf, out/NAME.gguf and out/mmproj-NAME.gguf; returns the two files."""
    folder = out / "hf"
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder)
    files = []
    for prefix, mmproj in (("", False), ("mmproj-", True)):
        path = out / f"{prefix}{recipe.NAME}.gguf"
        hf_to_gguf.convert_folder(folder, path, outtype, name=recipe.NAME, mmproj=mmproj)
        files.append(path)
    return files


def too_large(files):
    """An error message about the files' size, or None."""
    size = sum(f.stat().st_size for f in files)
    return (
        f"{size} bytes; a committed model has at most {MOST_BYTES} (try --outtype q8_0)" if size > MOST_BYTES else None
    )

"""From a trained model to the files others read: transformers' folder, then the two GGUF files of tools/convert_hf.py."""

import torch

import convert_hf

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
        convert_hf.convert_folder(folder, path, outtype, name=recipe.NAME, mmproj=mmproj)
        files.append(path)
    size = sum(f.stat().st_size for f in files)
    if size > MOST_BYTES:
        raise ValueError(f"{size} bytes; a model that is committed has at most {MOST_BYTES} (try --outtype q8_0)")
    return files

# SPDX-License-Identifier: Apache-2.0
"""One file per architecture family; this folder is the list.

A family module defines
  GGUF_ARCH     name of the architecture in GGUF (`general.architecture`)
  HF_NAMES      the `architectures` entries of config.json that it converts
  metadata(source, writer, say)   writes the keys; say(text) prints a remark for the user
  gguf_arch(source)               optional: the name, where it depends on config.json
  tensors(source)                 yields (GGUF name, float32 array, outermost dimension first)
and, if it has a vision encoder,
  MMPROJ_ARCH, mmproj_metadata(...), mmproj_tensors(...)   the same for the encoder's own file
  prepare(source, mmproj)                                  called first: makes the folder look like one half of it
To add an architecture, add such a file; there is no list to edit.
"""

import importlib
import pkgutil


def by_hf_name():
    """Maps every Hugging Face architecture name to the module that converts it."""
    found = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        for name in getattr(module, "HF_NAMES", ()):
            if name in found:
                raise RuntimeError(f"{name}: claimed by {found[name].__name__} and {module.__name__}")
            found[name] = module
    return found

# SPDX-License-Identifier: Apache-2.0
"""One eviction policy per file, from its paper; this folder is the list (what a file exposes: ../contract.py)."""

import importlib
import pkgutil


def all_of(kind):
    """{name: its Reference} of the policies of one kind, ordered by name."""
    found = {}
    for entry in sorted(pkgutil.iter_modules(__path__), key=lambda entry: entry.name):
        reference = importlib.import_module(f"{__name__}.{entry.name}").Reference()
        if isinstance(reference, kind):
            found[entry.name] = reference
    return found

# SPDX-License-Identifier: Apache-2.0
"""Every example of docs/python.md, run as written, one after the other, with tiny models in place of the files it
names."""

import contextlib
import io
import os
import re
import tempfile
import unittest

import weir  # noqa: F401  # here, where a relative WEIR_LIBRARY is found

from . import support

NEEDS = "# needs torch and transformers\n"  # the first line of an example that is left out without them
FILES = {"model.gguf": support.MODEL, "llava.gguf": support.LLAVA, "mmproj.gguf": support.CLIP}


def make_hf_model(folder):
    """A model as transformers saves it; false where something for it is missing."""
    try:
        import torch  # noqa: F401

        from tools.golden import tiny_models
    except ImportError:
        return False
    kind, settings = tiny_models.MODELS["llama"]
    tiny_models.build(kind, settings, seed=5).save_pretrained(folder)
    return True


class DocsTest(unittest.TestCase):
    def test_every_example_runs(self):
        page = (support.ROOT / "docs" / "python.md").read_text(encoding="utf-8")
        blocks = list(re.finditer(r"^```python\n(.*?)^```$", page, re.S | re.M))
        self.assertGreaterEqual(len(blocks), 9)
        names = {"__name__": "examples"}
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            for name, model in FILES.items():
                os.symlink(model, os.path.join(folder, name))
            os.chdir(folder)
            try:
                has_hf_model = make_hf_model("hf-model")
                for block in blocks:
                    if block.group(1).startswith(NEEDS) and not has_hf_model:
                        continue
                    line = page[: block.start()].count("\n") + 2
                    out = io.StringIO()
                    with self.subTest(line=line), contextlib.redirect_stdout(out):
                        # Empty lines first, so that a traceback shows the page's own lines.
                        exec(compile("\n" * (line - 1) + block.group(1), "docs/python.md", "exec"), names)
                    self.assertTrue(out.getvalue().strip() or "class" in block.group(1), f"line {line} prints nothing")
            finally:
                os.chdir(before)
                for x in names.values():
                    if hasattr(x, "close") and type(x).__module__.startswith("weir"):
                        x.close()


if __name__ == "__main__":
    unittest.main()

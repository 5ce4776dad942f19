# SPDX-License-Identifier: Apache-2.0
"""The notebook of examples/ runs from top to bottom, with a tiny model and a text of this project. Its cells run here
with NumPy alone; a kernel runs it, too, where nbclient and ipykernel are installed."""

import ast
import contextlib
import importlib.util
import io
import json
import os
import tempfile
import time
import unittest
from unittest import mock

from weir._program import find_program

from . import support

NOTEBOOK = support.ROOT / "examples" / "forgetting.ipynb"
# A real model and a real book, where there are any: WEIR_NOTEBOOK=real.
REAL = os.environ.get("WEIR_NOTEBOOK") == "real"


def prepare(folder):
    """What the notebook expects beside it."""
    os.symlink(os.environ["WEIR_MODEL"] if REAL else support.MODEL, os.path.join(folder, "model.gguf"))
    text = "".join((support.ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "ARCHITECTURE.md"))
    if REAL:
        text = open(os.environ["WEIR_BOOK"], encoding="utf-8").read()
    with open(os.path.join(folder, "book.txt"), "w", encoding="utf-8") as file:
        file.write(text)
    return {key: value for key, value in os.environ.items() if key not in ("WEIR_MODEL", "WEIR_BOOK")}


def run_cell(source, names, line):
    """Runs a cell and returns the value of its last line, as a notebook shows it."""
    tree = ast.parse("\n" * line + source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


class NotebookTest(unittest.TestCase):
    def setUp(self):
        try:
            self.program = str(find_program())
        except FileNotFoundError as error:
            self.skipTest(str(error))
        self.notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
        self.cells = [cell for cell in self.notebook["cells"] if cell["cell_type"] == "code"]

    def test_it_is_stored_without_results(self):
        self.assertTrue(all(cell["outputs"] == [] and cell["execution_count"] is None for cell in self.cells))
        self.assertEqual(
            NOTEBOOK.read_text(encoding="utf-8"), json.dumps(self.notebook, indent=1, ensure_ascii=False) + "\n"
        )

    def test_its_cells_run(self):
        n_charts, names, before, began = 0, {"__name__": "__main__"}, os.getcwd(), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            env = prepare(folder) | {"WEIR_PROGRAM": self.program}
            env["WEIR_LIBRARY"] = os.path.abspath(env["WEIR_LIBRARY"]) if "WEIR_LIBRARY" in env else ""
            os.chdir(folder)
            try:
                with mock.patch.dict(os.environ, env, clear=True):
                    for i, cell in enumerate(self.cells):
                        out = io.StringIO()
                        with contextlib.redirect_stdout(out):
                            shown = run_cell("".join(cell["source"]), names, 100 * i)
                        if shown is not None:
                            self.assertTrue(shown._repr_svg_().startswith("<svg"))
                            n_charts += 1
                        self.assertTrue(
                            shown is not None or out.getvalue().strip() or i == 0, f"cell {i} shows nothing"
                        )
                        if REAL:
                            print(out.getvalue())
            finally:
                os.chdir(before)
                names["model"].close()
        self.assertGreaterEqual(n_charts, 5)
        if REAL:
            print(f"{time.monotonic() - began:.0f} s")

    def test_a_kernel_runs_it(self):
        missing = [name for name in ("nbclient", "nbformat", "ipykernel") if importlib.util.find_spec(name) is None]
        if missing:
            self.skipTest(f"not installed: {', '.join(missing)}")
        import nbclient
        import nbformat

        with tempfile.TemporaryDirectory() as folder:
            env = prepare(folder) | {"WEIR_PROGRAM": self.program}
            if "WEIR_LIBRARY" in env:
                env["WEIR_LIBRARY"] = os.path.abspath(env["WEIR_LIBRARY"])
            env["PYTHONPATH"] = os.pathsep.join(
                os.path.abspath(part) for part in env.get("PYTHONPATH", "").split(os.pathsep) if part
            )
            notebook = nbformat.read(NOTEBOOK, as_version=4)
            nbformat.validate(notebook)
            with mock.patch.dict(os.environ, env, clear=True):
                nbclient.NotebookClient(notebook, timeout=110, resources={"metadata": {"path": folder}}).execute()
        shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
        self.assertGreaterEqual(sum("image/svg+xml" in output.get("data", {}) for output in shown), 5)


if __name__ == "__main__":
    unittest.main()

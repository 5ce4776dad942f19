# SPDX-License-Identifier: Apache-2.0
"""`weir serve` for the scripts of this folder.

WEIR_PYTHON names an interpreter that has the clients' packages, where the one that runs a script has not; WEIR_MODEL is
the model of a script that was given none.
"""

import os
import re
import subprocess
import sys

if os.environ.get("WEIR_PYTHON") and not os.environ.get("WEIR_PYTHON_RUNS"):
    os.environ["WEIR_PYTHON_RUNS"] = "1"
    os.execv(os.environ["WEIR_PYTHON"], [os.environ["WEIR_PYTHON"]] + sys.argv)


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def model_or_skip(given):
    model = given or os.environ.get("WEIR_MODEL")
    if not model:
        skip("no model; name one, or set WEIR_MODEL")
    return model


class Server:
    def __init__(self, program, model, flags):
        self.process = subprocess.Popen(
            [program, "serve", "-m", model, "--port", "0"] + flags, stderr=subprocess.PIPE, text=True
        )
        said = ""
        for line in self.process.stderr:
            said += line
            if found := re.search(r"http://\S+:\d+", line):
                self.url = found[0]
                return
        raise SystemExit("the server does not serve:\n" + said)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

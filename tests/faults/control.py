# SPDX-License-Identifier: Apache-2.0
"""The file through which a program's calls are counted and made to fail (call_faults.cc)."""

import errno
import mmap
import os
import struct
from pathlib import Path

KINDS = [
    "memory", "open", "read", "write", "sync", "rename", "mmap", "thread", "stat", "socket", "child", "name",
]  # fmt: skip
SHORT = 0  # no error: the call transfers less than it was asked to
# What calls of a kind fail with.
ERRORS = {
    "memory": [errno.ENOMEM],
    "open": [errno.EMFILE],
    "read": [errno.EIO, errno.EINTR, SHORT],
    "write": [errno.ENOSPC, errno.EINTR, SHORT],
    "sync": [errno.EIO],
    "rename": [errno.ENOSPC],
    "mmap": [errno.ENOMEM],
    "thread": [errno.EAGAIN],
    "stat": [errno.EIO],
    "socket": [errno.EINTR, errno.ECONNRESET, SHORT],
    "child": [errno.EAGAIN],
    "name": [errno.EIO],
}
FIELDS = ["pid", "kind", "nth", "last", "error", "failed", *(f"calls of {kind}" for kind in KINDS)]


def name_of(error: int) -> str:
    return errno.errorcode[error] if error else "short"


class Control:
    def __init__(self, folder: Path, library: str):
        self.path, self.library = folder / "control", library
        self.path.write_bytes(bytes(8 * len(FIELDS)))
        with self.path.open("r+b") as file:
            self.bytes = mmap.mmap(file.fileno(), 0)

    def environment(self) -> dict:
        """For the program; what it starts itself is left alone."""
        return {**os.environ, "LD_PRELOAD": self.library, "WEIR_CALL_FAULTS": str(self.path)}

    def get(self, field: str) -> int:
        return struct.unpack_from("<Q", self.bytes, 8 * FIELDS.index(field))[0]

    def set(self, field: str, value: int) -> None:
        struct.pack_into("<Q", self.bytes, 8 * FIELDS.index(field), value)

    def next_program(self) -> None:
        self.set("pid", 0)

    def count(self) -> None:
        """From zero, and nothing fails."""
        for field in FIELDS[1:]:
            self.set(field, 0)

    def fail(self, kind: str, nth: int, error: int, n: int = 1) -> None:
        """From zero: n calls of a kind fail, the nth first."""
        self.count()
        self.trace_path.unlink(missing_ok=True)
        self.set("nth", nth)
        self.set("last", nth + n - 1)
        self.set("error", error)
        self.set("kind", KINDS.index(kind) + 1)

    def calls(self) -> dict:
        return {kind: self.get(f"calls of {kind}") for kind in KINDS}

    @property
    def trace_path(self) -> Path:
        return self.path.with_name("control.trace")

    def trace(self) -> list[str]:
        """Where the last one failed: `program(+0x123)` and the like, the innermost first."""
        return self.trace_path.read_text().splitlines() if self.trace_path.exists() else []

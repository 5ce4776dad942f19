# SPDX-License-Identifier: Apache-2.0
"""The mutants of one C++ source, and the source that holds many of them at once.

    for mutant in mutants_of(path, flags): ...
    text = with_mutants(path.read_bytes(), {1: mutant, 2: another})

A mutant is another expression at one place: another operator, constant or condition, or a statement left out. In the
text that with_mutants() writes each place asks at run time which one holds (weir_mutant.h, below):
`(::weir_mutant::On(2) ? (a <= b) : (a < b))`. libclang (Debian's python3-clang-14) says where expressions are.
Constant expressions and what a macro wrote have none here. What does not compile, the caller leaves out (on_line()).
"""

import collections
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from clang import cindex
from clang.cindex import CursorKind as Kind

COMPARISONS = {
    "<": ["<=", ">="],
    "<=": ["<", ">"],
    ">": [">=", "<="],
    ">=": [">", "<"],
    "==": ["!="],
    "!=": ["=="],
}
OPERATORS = COMPARISONS | {
    "&&": ["||"],
    "||": ["&&"],
    "+": ["-"],
    "-": ["+"],
    "*": ["/"],
    "/": ["*"],
    "%": ["*"],
    "&": ["|"],
    "|": ["&"],
    "<<": [">>"],
    ">>": ["<<"],
    "+=": ["-="],
    "-=": ["+="],
    "*=": ["/="],
    "|=": ["&="],
}
FUNCTIONS = {kind for name in ("FUNCTION_DECL", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR", "FUNCTION_TEMPLATE",
                               "CONVERSION_FUNCTION", "LAMBDA_EXPR") if (kind := getattr(Kind, name))}  # fmt: skip
BODIES = {Kind.COMPOUND_STMT, Kind.IF_STMT, Kind.FOR_STMT, Kind.WHILE_STMT, Kind.DO_STMT, Kind.CXX_FOR_RANGE_STMT}

HEADER = """\
// Which mutant of this build holds: WEIR_MUTANT=n. With WEIR_MUTANT_SEEN=FILE none does, and the bytes of FILE of the
// places that are reached become 1, whichever process reaches them.
#pragma once
namespace weir_mutant {
extern int active;           // 0: none; -1: those that are reached are marked
extern unsigned char* seen;  // of each mutant
inline bool On(int n) {
  if (active == -1) seen[n] = 1;
  return active == n;
}
}  // namespace weir_mutant
"""
SOURCE = """\
#include "base/weir_mutant.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace weir_mutant {
int active = 0;
unsigned char* seen = nullptr;

// Before every other initialisation; a mapped file outlives whatever ends the process.
__attribute__((constructor(101))) void Start() {
  if (const char* n = std::getenv("WEIR_MUTANT")) active = std::atoi(n);
  const char* path = std::getenv("WEIR_MUTANT_SEEN");
  const int file = path != nullptr ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* bytes = mmap(nullptr, %d, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (bytes == MAP_FAILED) return;
  seen = static_cast<unsigned char*>(bytes);
  active = -1;
}
}  // namespace weir_mutant
"""


@dataclasses.dataclass(frozen=True)
class Mutant:
    start: int  # bytes of the source
    end: int
    line: int  # from 1, as is the column
    column: int
    kind: str
    old: str  # the operator or constant
    new: str
    cast: str  # of the expression as it is, to the type that both have
    after: str  # what stands there instead


def flags_of(command: str) -> list[str]:
    """What a compile command says of includes and definitions."""
    words = command.split()
    keep = [word for word in words if word.startswith(("-I", "-D", "-std="))]
    return keep + [word for at, last in enumerate(words[:-1]) if last == "-isystem" for word in (last, words[at + 1])]


def parse(path: Path, flags: list[str], text: bytes) -> cindex.TranslationUnit:
    """The tree of a text that stands in the place of a file."""
    options = cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD
    return cindex.Index.create().parse(str(path), ["-xc++", "-w", *flags], [(str(path), text.decode())], options)


class Finder:
    """Walks the tree of one source."""

    def __init__(self, unit: cindex.TranslationUnit, text: bytes):
        self.text, self.path = text, unit.spelling
        self.out: list[Mutant] = []
        self.macros = [
            (c.extent.start.offset, c.extent.end.offset)
            for c in unit.cursor.get_children()
            if c.kind == Kind.MACRO_INSTANTIATION and self.is_here(c)
        ]
        for cursor in unit.cursor.get_children():
            if self.is_here(cursor) and not cursor.kind.is_preprocessing():
                self.walk(cursor, None, False)

    def is_here(self, cursor: cindex.Cursor) -> bool:
        file = cursor.location.file
        return file is not None and file.name == self.path

    def words(self, start: int, end: int) -> str:
        return self.text[start:end].decode("utf-8", "replace")

    def of(self, cursor: cindex.Cursor) -> str:
        return self.words(cursor.extent.start.offset, cursor.extent.end.offset)

    def walk(self, cursor: cindex.Cursor, parent: cindex.Cursor | None, runs: bool) -> None:
        """runs: whether this is code of a function, and no constant expression."""
        if cursor.kind in (Kind.STATIC_ASSERT, Kind.TYPE_REF, Kind.TEMPLATE_REF, Kind.ENUM_DECL, Kind.PARM_DECL):
            return
        children = list(cursor.get_children())
        if cursor.kind in FUNCTIONS:
            body = next((c for c in children if c.kind == Kind.COMPOUND_STMT), None)
            if body is None or "constexpr" in self.words(cursor.extent.start.offset, body.extent.start.offset):
                return
            runs = True
        elif cursor.kind in (Kind.VAR_DECL, Kind.FIELD_DECL):
            if "constexpr" in self.words(cursor.extent.start.offset, cursor.location.offset):
                return
        elif cursor.kind == Kind.CASE_STMT:
            children = children[1:]
        if runs:
            self.look_at(cursor, parent, children)
        for child in children:
            self.walk(child, cursor, runs)

    def look_at(self, cursor: cindex.Cursor, parent: cindex.Cursor | None, children: list[cindex.Cursor]) -> None:
        kind, text = cursor.kind, self.of(cursor)
        if kind in (Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR) and len(children) == 2:
            self.operator(cursor, *children)
        elif kind == Kind.CALL_EXPR and re.fullmatch(r"operator[<>=!]=?", cursor.spelling):
            if len(both := list(cursor.get_arguments())) == 2:
                self.operator(cursor, *both)
        elif kind == Kind.CALL_EXPR and (found := re.match(r"std::(min|max)\b", text)):
            other = "std::max" if found[1] == "min" else "std::min"
            self.add(cursor, "function", found[0], other, "", other + text[len(found[0]) :])
        elif kind == Kind.UNARY_OPERATOR and text.startswith("!"):
            self.add(cursor, "negation", "!", "", "", f"bool({text[1:]})")
        elif kind == Kind.INTEGER_LITERAL and re.fullmatch(r"\d+", text):
            for value in [int(text) + 1] + ([0] if text == "1" else []):
                self.add(cursor, "constant", text, str(value), "", str(value))
        elif kind == Kind.CXX_BOOL_LITERAL_EXPR and text in ("true", "false"):
            other = "false" if text == "true" else "true"
            self.add(cursor, "constant", text, other, "", other)
        if kind in (Kind.IF_STMT, Kind.WHILE_STMT, Kind.DO_STMT, Kind.CONDITIONAL_OPERATOR, Kind.RETURN_STMT):
            self.condition(cursor, children)
        if parent is not None and parent.kind in BODIES:
            self.statement(cursor)

    def sign(self, left: cindex.Cursor, right: cindex.Cursor) -> str:
        """What stands between two expressions."""
        between = self.words(left.extent.end.offset, right.extent.start.offset)
        return re.sub(r"//.*", "", between).strip()

    def operator(self, cursor: cindex.Cursor, left: cindex.Cursor, right: cindex.Cursor) -> None:
        op = self.sign(left, right)
        for other in OPERATORS.get(op, []):
            after = f"{self.of(left)} {other} {self.of(right)}"
            self.add(cursor, "operator", op, other, "", after, left.extent.end.offset)

    def condition(self, cursor: cindex.Cursor, children: list[cindex.Cursor]) -> None:
        """Negated, unless it is a comparison or a negation, which have mutants of their own."""
        follows = {Kind.CONDITIONAL_OPERATOR: b"?", Kind.RETURN_STMT: b";"}.get(cursor.kind, b")")
        for child in children:
            if not child.kind.is_expression() or not self.text[child.extent.end.offset :].lstrip().startswith(follows):
                continue
            text = self.of(child)
            if cursor.kind == Kind.RETURN_STMT and child.type.get_canonical().spelling != "bool":
                return
            inner = child
            while inner.kind == Kind.UNEXPOSED_EXPR and len(inside := list(inner.get_children())) == 1:
                inner = inside[0]
            compares = inner.kind == Kind.BINARY_OPERATOR and self.sign(*inner.get_children()) in COMPARISONS
            if not text.startswith("!") and not compares and inner.kind != Kind.CXX_BOOL_LITERAL_EXPR:
                self.add(child, "condition", text, f"!({text})", "bool", f"!({text})")
            return

    def statement(self, cursor: cindex.Cursor) -> None:
        """A call or an assignment, left out."""
        while cursor.kind == Kind.UNEXPOSED_EXPR and len(inside := list(cursor.get_children())) == 1:
            cursor = inside[0]
        text = self.of(cursor)
        assigns = cursor.kind == Kind.BINARY_OPERATOR and re.match(r"[^=<>!]*=(?!=)", text)
        leaves = assigns or cursor.kind in (Kind.CALL_EXPR, Kind.COMPOUND_ASSIGNMENT_OPERATOR)
        if leaves and re.match(rb"\s*;", self.text[cursor.extent.end.offset :]):
            self.add(cursor, "statement", text, "", "void", "void()")

    def add(self, cursor, kind: str, old: str, new: str, cast: str, after: str, at: int | None = None) -> None:
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        for first, last in self.macros:
            contains = start <= first and last <= end and (start, end) != (first, last)
            if start < last and first < end and not contains:
                return
        if not self.is_here(cursor):
            return
        place = start if at is None else at + len(self.text[at:]) - len(self.text[at:].lstrip())
        line = self.text.count(b"\n", 0, place) + 1
        column = place - self.text.rfind(b"\n", 0, place)
        self.out.append(Mutant(start, end, line, column, kind, old, new, cast, after))


def mutants_of(path: Path, flags: list[str], text: bytes) -> list[Mutant]:
    """Of a text that would stand at a path, in the order of its places."""
    unit = parse(path, flags, text)  # what it finds does not keep it alive
    return sorted(dict.fromkeys(Finder(unit, text).out), key=lambda m: (m.line, m.column, m.start, m.kind, m.new))


def with_mutants(text: bytes, mutants: dict[int, Mutant]) -> bytes:
    """The source with all of them. Those inside another's place stand in its expression as it is: only one holds."""
    places = collections.defaultdict(list)
    for n, mutant in sorted(mutants.items(), key=lambda item: (item[1].cast == "void", item[0])):  # void: outermost
        places[mutant.start, -mutant.end].append((n, mutant))
    ordered = [(start, -end, found) for (start, end), found in sorted(places.items())]

    def write(start: int, end: int) -> Iterator[bytes]:
        while ordered and ordered[0][0] < end:
            first, last, found = ordered.pop(0)
            yield text[start:first]
            inside = b"".join(write(first, last))
            for n, mutant in found:
                inside = b"(::weir_mutant::On(%d) ? (%b) : %b(%b))" % (
                    n, mutant.after.encode(), mutant.cast.encode(), inside)  # fmt: skip
            yield inside
            start = last
        yield text[start:end]

    include = b'#include "base/weir_mutant.h"\n#include '
    return re.sub(rb"^#include ", include, b"".join(write(0, len(text))), count=1, flags=re.MULTILINE)


def on_line(text: bytes, line: int) -> set[int]:
    """The mutants that a text of with_mutants() has on a line (from 1), or on the last one before it that has any: a
    statement that is refused may have begun there."""
    lines = text.split(b"\n")
    for at in range(line - 1, max(line - 9, -1), -1):
        if found := {int(n) for n in re.findall(rb"weir_mutant::On\((\d+)\)", lines[at])}:
            return found
    return set()

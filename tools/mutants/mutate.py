# SPDX-License-Identifier: Apache-2.0
"""The mutants of one C++ source: what else stands at one place of one line.

    for mutant in mutants_of(text): changed = mutant.apply(text)

A mutant changes one operator, one constant, one condition or one jump. What is no code (comments, strings, includes,
templates' brackets) has none; what the compiler refuses is found later. Lines are formatted by clang-format, so that a
comparison or a product has spaces on both sides, and a template, a pointer or a reference has not.
"""

import dataclasses
import re

# Operators with a space on each side, and what stands there instead.
OPERATORS = {
    "<": ["<=", ">="],
    "<=": ["<", ">"],
    ">": [">=", "<="],
    ">=": [">", "<"],
    "==": ["!="],
    "!=": ["=="],
    "&&": ["||"],
    "||": ["&&"],
    "+": ["-"],
    "-": ["+"],
    "*": ["/"],
    "/": ["*"],
    "%": ["*"],
    "+=": ["-="],
    "-=": ["+="],
    "*=": ["/="],
    "|=": ["&="],
    "&": ["|"],
    "|": ["&"],
}
WORDS = {
    "true": "false",
    "false": "true",
    "continue": "break",
    "break": "continue",
    "std::min": "std::max",
    "std::max": "std::min",
}
LONGEST_FIRST = "|".join(re.escape(op) for op in sorted(OPERATORS, key=len, reverse=True))
OPERATOR = re.compile(rf"(?<= )({LONGEST_FIRST})(?= )")
WORD = re.compile(r"(?<![\w:.])(" + "|".join(re.escape(word) for word in WORDS) + r")(?![\w])")
NUMBER = re.compile(r"(?<![\w.'])(\d+)(?![\w.'])")
CONDITION = re.compile(r"\b(?:if|while) \((?=[^;]*\) ?[{\w])")
NEGATED = re.compile(r"(?<![\w)\]])!(?=[\w(])")
# Lines on which nothing is worth changing.
SKIPPED = re.compile(
    r"^\s*(#|//|static_assert|using |namespace |template|extern |HWY_|case |default:|public:|private:)"
    r"|\bassert\(|DCHECK|= delete|= default|operator|\.(summary|help|paper|name) ="
)
TEXT = re.compile(r'R"\((?:.|\n)*?\)"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|//[^\n]*|/\*(?:.|\n)*?\*/')


@dataclasses.dataclass(frozen=True)
class Mutant:
    line: int  # from 1
    column: int  # from 0
    old: str
    new: str
    kind: str

    def apply(self, text: str) -> str:
        lines = text.split("\n")
        line = lines[self.line - 1]
        if line[self.column : self.column + len(self.old)] != self.old:
            raise ValueError(f"line {self.line} is not the one that was read")
        lines[self.line - 1] = line[: self.column] + self.new + line[self.column + len(self.old) :]
        return "\n".join(lines)


def without_text(text: str) -> str:
    """The same places, with blanks for strings, characters and comments."""
    return TEXT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def mutants_of(text: str) -> list[Mutant]:
    out = []
    for number, line in enumerate(without_text(text).split("\n"), 1):
        if SKIPPED.search(line) or not line.startswith(" "):
            continue  # declarations at the left margin: types and names, no steps
        for found in OPERATOR.finditer(line):
            old = found.group()
            if old in "*&" and not re.search(r"[\w)\]] $", line[: found.start()]):
                continue
            out += [Mutant(number, found.start(), old, new, "operator") for new in OPERATORS[old]]
        for found in WORD.finditer(line):
            out.append(Mutant(number, found.start(), found.group(), WORDS[found.group()], "word"))
        for found in NUMBER.finditer(line):
            value = int(found.group())
            out.append(Mutant(number, found.start(), found.group(), str(value + 1), "constant"))
            if value == 1:
                out.append(Mutant(number, found.start(), "1", "0", "constant"))
        for found in CONDITION.finditer(line):
            out.append(Mutant(number, found.end() - 1, "(", "(!(", "condition"))
        for found in NEGATED.finditer(line):
            out.append(Mutant(number, found.start(), "!", "", "negation"))
    return [close_condition(mutant, text) for mutant in out]


def close_condition(mutant: Mutant, text: str) -> Mutant:
    """A negated condition gets the bracket that ends it; one of several lines stays as it is, and is refused later."""
    if mutant.kind != "condition":
        return mutant
    line = text.split("\n")[mutant.line - 1]
    depth = 0
    for at in range(mutant.column, len(line)):
        depth += (line[at] == "(") - (line[at] == ")")
        if depth == 0:
            inside = line[mutant.column : at + 1]
            if "; " in inside or re.match(r"\((const )?[\w:<>]+[ *&]+\w+ = ", inside):
                break  # it declares something
            return dataclasses.replace(mutant, old=inside, new=f"(!{inside})")
    return dataclasses.replace(mutant, new="(")  # no change: left out by the caller

# SPDX-License-Identifier: Apache-2.0
"""Small random templates for tools/golden/jinja.py: expressions over a few values, inside of statements."""

import random

STRINGS = [
    "",
    "a",
    "Hello World",
    "  pad\n",
    "x,y,,z",
    "ß é Ж",
    "1.50",
    "42",
    'it\'s "q"',
    "a\nb\n\nc",
    "</think>tail",
    "-7",
    "日本",
]
NAMES = ["s", "t", "n", "f", "b", "none", "l", "d", "ms", "empty", "missing", "nested"]
TEXT_METHODS = [
    "upper()",
    "lower()",
    "strip()",
    "lstrip('a ')",
    "rstrip()",
    "split()",
    "split(',')",
    "split(',', 1)",
    "rsplit(' ', 1)",
    "startswith('a')",
    "endswith(('z', 'd'))",
    "replace('a', 'bb')",
    "replace('', '-', 2)",
    "title()",
    "capitalize()",
    "find('l')",
    "count('l')",
    "splitlines()",
    "isdigit()",
    "isalpha()",
    "isupper()",
    "join(['1', '2'])",
    "zfill(6)",
    "center(9)",
    "ljust(5, '.')",
    "partition(',')",
    "removeprefix('He')",
    "format(1, k=2)",
    "rsplit()",
    "swapcase()",
    "rfind('l')",
    "isspace()",
    "islower()",
    "rpartition(' ')",
    "rsplit(None, 1)",
    "split(None, 1)",
    "index('a')",
]
FILTERS = [
    "upper",
    "lower",
    "trim",
    "length",
    "string",
    "int",
    "float",
    "list",
    "first",
    "last",
    "join",
    "join('-')",
    "default('d')",
    "default('d', true)",
    "reverse | list",
    "sort",
    "sort(reverse=true)",
    "unique | list",
    "tojson",
    "tojson(indent=2)",
    "capitalize",
    "title",
    "replace('a', 'o')",
    "items | list",
    "dictsort",
    "map('upper') | list",
    "map(attribute='k') | list",
    "map(attribute='k', default='?') | join(',')",
    "selectattr('k') | list",
    "selectattr('k', 'defined') | list",
    "selectattr('role', 'equalto', 'user') | list | length",
    "rejectattr('role', 'in', ['user']) | map(attribute='k') | list",
    "select('string') | list",
    "reject('none') | list",
    "select | list",
    "abs",
    "round",
    "round(1)",
    "round(1, 'floor')",
    "indent",
    "indent(2, true)",
    "batch(2) | list",
    "batch(2, 'x') | list",
    "slice(2) | list",
    "sum",
    "max",
    "min",
    "escape",
    "wordcount",
    "center(11)",
    "format(3)",
    "tojson(separators=(',', ':'))",
    "tojson(sort_keys=true)",
    "tojson(ensure_ascii=true)",
    "groupby('role') | list",
    "sort(attribute='k')",
    "count",
    "int(7)",
    "map('length') | list",
    "select('>', 1) | list",
    "trim('a')",
    "truncate(6)",
    "urlencode",
    "attr('x')",
    "dictsort(by='value')",
    "map('default', 'z') | list",
]
TESTS = [
    "defined",
    "undefined",
    "none",
    "string",
    "mapping",
    "iterable",
    "sequence",
    "number",
    "boolean",
    "integer",
    "float",
    "true",
    "false",
    "even",
    "odd",
    "callable",
    "upper",
    "lower",
    "equalto 1",
    "eq('a')",
    "in ['a', 1]",
    "in l",
    "ne 2",
    "divisibleby 3",
    "sameas none",
    "gt(1)",
    "lt 5",
    "sameas(true)",
]
SUBSCRIPTS = ["0", "-1", "1:", ":2", "::-1", "1:3", "::2", "-2:", "5", "'k'", "n", ":-1", "3:1:-1"]
ATTRIBUTES = ["k", "items()", "keys() | list", "get('k')", "get(1, 2)", "a", "values() | list", "role"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"]


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def context(self):
        r = self.rng
        return {
            "s": r.choice(STRINGS),
            "t": r.choice(STRINGS),
            "n": r.choice([0, 1, -3, 7, 100]),
            "f": r.choice([0.5, -2.25, 1e20, 3.0, 1e-7]),
            "b": r.choice([True, False]),
            "l": r.choice([[1, 2, 3], ["b", "a", "B"], [3, 1.5, True], [None, "x"], []]),
            "d": r.choice([{"k": 1, "z": "v"}, {"items": 2, "k": [1]}, {"b": {"k": "q"}, "A": None}]),
            "ms": [{"role": "system", "k": "é"}, {"role": "user", "k": r.choice(STRINGS)}, {"role": "user"}][
                : r.randint(0, 3)
            ],
            "empty": r.choice([[], {}, "", None]),
            "nested": {"a": [{"k": {"x": [1, [2, "three"]]}}], "f": 1.0},
        }

    def literal(self):
        r = self.rng
        return r.choice(
            [
                "1",
                "0",
                "-2",
                "2.5",
                "'a'",
                '"b\\n"',
                "true",
                "none",
                "[1, 'a', 2.0]",
                "{'k': 1, 'j': [2]}",
                "(1, 'x')",
                "[]",
                "'{} {k}'",
                "'%s|'",
                "range(4)",
                "[s, n]",
                "{s: 1}",
                "1e3",
                "0x1F",
                "'\\u00e9\\t'",
                "10_000",
            ]
        )

    def expression(self, depth=0):
        r = self.rng
        x = r.random()
        if depth > 3 or x < 0.2:
            return r.choice(NAMES + ["loop.index"] * (depth == 0)) if r.random() < 0.7 else self.literal()
        e = lambda: self.expression(depth + 1)  # noqa: E731
        if x < 0.4:
            return f"{self.operand(depth)} | {r.choice(FILTERS)}"
        if x < 0.52:
            return f"({e()} {r.choice(BINARY)} {e()})"
        if x < 0.6:
            return f"({e()} is {r.choice(['', 'not '])}{r.choice(TESTS)})"
        if x < 0.68:
            return f"{self.operand(depth)}.{r.choice(TEXT_METHODS)}"
        if x < 0.74:
            return f"{self.operand(depth)}[{r.choice(SUBSCRIPTS)}]"
        if x < 0.8:
            return f"{self.operand(depth)}.{r.choice(ATTRIBUTES)}"
        if x < 0.86:
            return f"({e()} if {e()} else {e()})"
        if x < 0.9:
            return f"(not {e()})"
        if x < 0.93:
            return f"({r.choice(['-', '+'])}{self.operand(depth)})"
        if x < 0.96:
            return f"[{e()}, {e()}]"
        return f"({e()} ~ {e()} ~ {e()})"

    def operand(self, depth):
        text = self.expression(depth + 1)
        return text if text.isidentifier() else f"({text})"

    def statement(self, depth=0):
        r = self.rng
        e = self.expression
        space = lambda: r.choice(["", "", " ", "\n", "  \n ", "x"])  # noqa: E731
        tag = lambda text: "{%" + r.choice(["", "", "-", "+"]) + " " + text + " " + r.choice(["", "", "-", "+"]) + "%}"  # noqa: E731
        show = lambda text: "{{" + r.choice(["", "", "-"]) + " " + text + " " + r.choice(["", "-"]) + "}}"  # noqa: E731
        x = r.random()
        if depth > 2 or x < 0.45:
            return space() + show(e()) + space()
        body = lambda: "".join(self.statement(depth + 1) for _ in range(r.randint(1, 2)))  # noqa: E731
        if x < 0.53:
            return (
                tag(f"if {e()}")
                + space()
                + body()
                + (tag(f"elif {e()}") + body() if r.random() < 0.3 else "")
                + (tag("else") + body() if r.random() < 0.5 else "")
                + tag("endif")
                + space()
            )
        if x < 0.66:
            target = r.choice(["x", "x", "s", "k, v"])
            source = r.choice(
                ["l", "ms", "d", "range(3)", "d.items()", "d | items", "s", e(), "ms | selectattr('k', 'defined')"]
            )
            inside = r.choice(
                [
                    "{{ x }}",
                    "{{ loop.index }}{{ loop.last }}",
                    "{{ loop.length }}",
                    "{{ loop.previtem }}{{ loop.nextitem }}",
                    "{% if loop.first %}{% continue %}{% endif %}",
                    "{% if loop.index0 == 1 %}{% break %}{% endif %}",
                    "{{ loop.cycle('a', 'b') }}",
                    "{{ loop.revindex }}{{ loop.changed(x) }}",
                    "{{ k }}={{ v }}",
                    "{% set n = loop.index %}{{ n }}",
                    "{% set ns.v = ns.v ~ loop.index %}",
                ]
            )
            test = f" if {e()}" if r.random() < 0.25 else ""
            return (
                tag(f"for {target} in {source}{test}")
                + inside
                + body()
                + (tag("else") + body() if r.random() < 0.3 else "")
                + tag("endfor")
                + space()
            )
        if x < 0.74:
            return tag(f"set {r.choice(['s', 'n', 'y', 'l'])} = {e()}") + space()
        if x < 0.79:
            return (
                tag(f"set {r.choice(['s', 'y'])}{r.choice(['', ' | upper', ' | trim'])}")
                + body()
                + tag("endset")
                + show(r.choice(["s", "y"]))
            )
        if x < 0.84:
            name = r.choice(["m", "q"])
            calls = r.choice([f"{name}(1)", f"{name}(s, k=2)", f"{name}()", f"{name}(1, 2, 3)", f"{name}(1, z=3)"])
            inside = r.choice(
                [
                    "{{ a }}{{ k }}",
                    "{{ varargs }}{{ a }}",
                    "{{ kwargs }}",
                    "{{ caller() if caller else '' }}",
                    "{{ s }}",
                ]
            )
            call = tag(f"call {calls}") + body() + tag("endcall") if r.random() < 0.3 else show(calls)
            return tag(f"macro {name}(a, k='def')") + inside + body() + tag("endmacro") + call
        if x < 0.88:
            return (
                tag("filter " + r.choice(["upper", "trim", "replace('a', 'b')", "length", "indent(2)"]))
                + body()
                + tag("endfilter")
            )
        if x < 0.91:
            return "{#" + r.choice(["", "-", "+"]) + " note " + r.choice(["", "-", "+"]) + "#}" + space()
        if x < 0.94:
            return tag(f"with y = {e()}") + show("y") + body() + tag("endwith")
        if x < 0.97:
            return tag("generation") + body() + tag("endgeneration")
        return tag("raw") + "{{ s }} {% x %}" + space() + tag("endraw")

    def case(self):
        parts = "".join(self.statement() for _ in range(self.rng.choice([1, 1, 1, 1, 2, 3])))
        if "ns." in parts:
            parts = "{% set ns = namespace(v='') %}" + parts + "{{ ns.v }}"
        return parts + self.rng.choice(["", "\n", "\r\n", " \n\n"]), self.context()

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""jsonschema and llguidance as the oracles of src/text/forms.

    python3 tools/golden/forms.py PROGRAM [--schemas N] [--seed S] [--answers N] [--prefixes N]

PROGRAM is build/PRESET/tests/form_walk. N random schemas are made. Of each, random answers are written under our masks:
every one must be valid under jsonschema (draft 2020-12, formats checked). Then beginnings of these answers are given to
llguidance: the bytes that may follow, and whether the answer may end, must be the same, or differ for a reason that
explain() knows. Both are asked without white space between the parts.

Needs: jsonschema[format], llguidance. Run from the repository root.
"""

import argparse
import collections
import json
import random
import subprocess
import sys

import jsonschema
from llguidance import LLMatcher, LLTokenizer

KEYS = ["a", "b", "ab", "key", "long name", "é", 'q"uote', "n1"]
PATTERNS = ["^[a-z]{2,4}$", "^x", "ab?c", "[0-9]+$", "^(yes|no)$", "^[^ab]*$", "^\\d{3}-\\d{2}$", "^.{0,5}$"]
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "hostname", "uri"]


def number(rng):
    return rng.choice([rng.randint(-20, 20), rng.randint(-1000, 1000), round(rng.uniform(-5, 5), 2)])


def scalar(rng):
    return rng.choice([None, True, False, rng.randint(-9, 9), "a", "bc", "é", 'x"y', "line\n", 1.5, ""])


def value(rng, depth):
    kind = rng.random()
    if depth <= 0 or kind < 0.7:
        return scalar(rng)
    if kind < 0.85:
        return [value(rng, depth - 1) for _ in range(rng.randint(0, 2))]
    return {rng.choice(KEYS): value(rng, depth - 1) for _ in range(rng.randint(0, 2))}


def of_string(rng, schema):
    kind = rng.random()
    if kind < 0.3:
        schema["minLength"] = rng.randint(0, 3)
    if 0.2 < kind < 0.5:
        schema["maxLength"] = rng.randint(3, 12)
    elif kind > 0.85:
        schema["pattern"] = rng.choice(PATTERNS)
    elif kind > 0.75:
        schema["format"] = rng.choice(FORMATS)


def of_number(rng, schema):
    if rng.random() < 0.4:
        low = number(rng)
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.6:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([3, 10, 0.75, 250])
    elif rng.random() < 0.3:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = number(rng)
    if schema["type"] == "integer" and rng.random() < 0.15:
        schema["multipleOf"] = rng.choice([2, 3, 5, 7, 10, 12])


def of_array(rng, schema, depth, defs):
    if rng.random() < 0.3:
        schema["prefixItems"] = [make(rng, depth - 1, defs) for _ in range(rng.randint(1, 3))]
        schema["items"] = rng.choice([False, make(rng, depth - 1, defs)])
    else:
        schema["items"] = make(rng, depth - 1, defs)
        if rng.random() < 0.4:
            schema["minItems"] = rng.randint(0, 2)
        if rng.random() < 0.4:
            schema["maxItems"] = rng.randint(2, 4)
        if rng.random() < 0.1:
            schema["items"] = {"enum": [scalar(rng) for _ in range(rng.randint(2, 5))]}
            schema["uniqueItems"] = True


def of_object(rng, schema, depth, defs):
    keys = rng.sample(KEYS, rng.randint(0, 4))
    schema["properties"] = {key: make(rng, depth - 1, defs) for key in keys}
    schema["required"] = [key for key in keys if rng.random() < 0.5]
    schema["additionalProperties"] = rng.choice([False, False, False, make(rng, 0, defs)])
    if rng.random() < 0.1:
        schema["patternProperties"] = {rng.choice(["^x_", "_id$"]): make(rng, 0, defs)}
    if rng.random() < 0.1:
        names = {"type": "string"}
        of_string(rng, names)
        schema["propertyNames"] = rng.choice([names, {"enum": rng.choices(KEYS, k=3)}, {"type": "string"}])


def make(rng, depth, defs):
    kind = rng.random()
    if defs and kind < 0.08:
        return {"$ref": "#/$defs/" + rng.choice(defs)}
    if kind < 0.16:
        return {"enum": [value(rng, 1) for _ in range(rng.randint(1, 4))]}
    if kind < 0.22:
        return {"const": value(rng, 2)}
    if depth > 0 and kind < 0.3:
        return {"anyOf": [make(rng, depth - 1, defs) for _ in range(rng.randint(2, 3))]}
    if depth > 0 and kind < 0.34:
        return {
            "oneOf": [{"type": "null"}, {"type": "boolean"}, {"type": "string", "maxLength": 4}][: rng.randint(2, 3)]
        }
    types = ["null", "boolean", "integer", "number", "string", "string"] + (
        ["array", "object", "object"] if depth > 0 else []
    )
    schema = {"type": rng.choice(types)}
    if schema["type"] == "string":
        of_string(rng, schema)
    elif schema["type"] in ("integer", "number"):
        of_number(rng, schema)
    elif schema["type"] == "array":
        of_array(rng, schema, depth, defs)
    elif schema["type"] == "object":
        of_object(rng, schema, depth, defs)
    if depth > 0 and rng.random() < 0.05 and schema["type"] == "integer":
        return {"allOf": [schema, {"type": "number", "minimum": -50}]}
    return schema


def random_schema(rng):
    defs = ["one", "two"] if rng.random() < 0.3 else []
    schema = make(rng, 3, defs)
    if "$ref" in schema:
        schema = {"type": "array", "items": schema}
    if defs:
        tree = {
            "type": "object",
            "properties": {"v": make(rng, 0, []), "kids": {"type": "array", "items": {"$ref": "#/$defs/one"}}},
            "required": ["v"],
            "additionalProperties": False,
        }
        schema["$defs"] = {"one": tree, "two": make(rng, 1, [])}
    return schema


def explain(prefix, only_ours, only_theirs, schema):
    """The reason for a difference, or None."""
    text = json.dumps(schema)
    tail = prefix.decode("utf-8", "replace")
    digits = len(tail) - len(tail.rstrip("0123456789"))
    if '"format"' in text:
        return "format: the expressions differ, ours read less"
    if digits >= 15 and not only_ours:
        return "number: at most 16 digits"
    number_tail = tail.rstrip("0123456789+-.eE")
    if number_tail != tail or only_theirs | only_ours <= set(b"0123456789.eE-,}]") | {-1}:
        if only_theirs <= set(b"0123456789.eE-,}]") | {-1} and only_ours <= set(b"0123456789.eE-,}]") | {-1}:
            if any(word in text for word in ("inimum", "aximum", "multipleOf")):
                return "number: bounds (-0, zeros at the end, exponents)"
            if "e" in tail[len(number_tail) :].lower():
                return "number: exponents of at most two digits"
    if only_ours == {0x7F} or (b"\x7f" in prefix and not only_theirs):
        return "string: DEL, which JSON allows"
    if tail.endswith(("\\ud", "\\uD")) or "\\ud" in tail[-12:].lower():
        return "string: half a surrogate pair"
    if tail.endswith("\\") or "\\u" in tail[-6:] or (not only_theirs and "\\u" in tail):
        return "string: ways to escape"
    if only_ours | only_theirs <= {0x5C} or ("\\/" in tail and not only_theirs):
        return "string: ways to escape"
    return None


class Program:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def theirs(tokenizer, grammar, prefix):
    matcher = LLMatcher(tokenizer, grammar)
    if matcher.is_error():
        raise ValueError(matcher.get_error())
    if prefix and not matcher.consume_tokens(list(prefix)):
        return None
    if matcher.is_stopped():
        return {-1}
    mask = matcher.compute_bitmask()
    out = {b for b in range(256) if mask[b // 8] >> (b % 8) & 1}
    if matcher.is_accepting():
        out.add(-1)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--answers", type=int, default=4)
    parser.add_argument("--prefixes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    ours = Program(args.program)
    tokenizer = LLTokenizer("byte")
    counts, reasons, shown = collections.Counter(), collections.Counter(), 0
    for i in range(args.schemas):
        schema = random_schema(rng)
        request = {"kind": "json_schema", "text": json.dumps(schema), "walks": args.answers, "seed": i + 1}
        reply = ours.ask({**request, "spaces": True})
        if "error" in reply:
            counts["schemas refused"] += 1
            reasons["refused: " + reply["error"][-60:]] += 1
            continue
        counts["schemas"] += 1
        counts["answers cut at their length"] += reply["unfinished"]
        validator = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
        )
        for answer in reply["answers"]:
            counts["answers"] += 1
            try:
                error = next(validator.iter_errors(json.loads(answer)), None)
            except ValueError as e:
                error = e
            if error is not None:
                counts["answers INVALID"] += 1
                print(f"INVALID: {json.dumps(schema)}\n  {answer!r}\n  {str(error)[:300]}")
        answers = ours.ask({**request, "spaces": False}).get("answers", [])
        prefixes = []
        for _ in range(args.prefixes):
            whole = rng.choice(answers).encode() if answers else b""
            prefixes.append(whole[: rng.randint(0, len(whole))])
        grammar = LLMatcher.grammar_from_json_schema(
            json.dumps(schema), defaults={"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        )
        reply = ours.ask({**request, "spaces": False, "walks": 0, "prefixes": [list(p) for p in prefixes]})
        for prefix, mine in zip(prefixes, reply["next"]):
            try:
                other = theirs(tokenizer, grammar, prefix)
            except ValueError as e:
                counts["prefixes that llguidance has no grammar for"] += 1
                reasons["llguidance: " + str(e).split("\n")[0][:70]] += 1
                continue
            counts["prefixes"] += 1
            mine = set(mine)
            if other is None:
                counts["prefixes that llguidance does not read"] += 1
                why = explain(prefix, mine, set(), schema)
                other = set()
            elif mine == other:
                counts["prefixes equal"] += 1
                continue
            else:
                why = explain(prefix, mine - other, other - mine, schema)
            if why:
                counts["prefixes that differ for a known reason"] += 1
                reasons[why] += 1
            else:
                counts["prefixes that DIFFER"] += 1
                if shown < args.show:
                    shown += 1
                    print(f"DIFFERS: {json.dumps(schema)}\n  after {prefix!r}")
                    print(f"  only ours {sorted(mine - other)}, only theirs {sorted(other - mine)}")
    for name, n in sorted(counts.items()):
        print(f"{n:7} {name}")
    for name, n in reasons.most_common(20):
        print(f"{n:7}   {name}")
    return counts["answers INVALID"] > 0 or counts["prefixes that DIFFER"] > 0


if __name__ == "__main__":
    sys.exit(main())

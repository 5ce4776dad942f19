#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a form costs a token: answers of a server with and without one, in turns.

    tools/load/form_cost.py PROGRAM MODEL [-n 200] [--rounds 7]

For each form: the median time of a written token with it and without, over the rounds after the first (in which the
masks of its states are made), and the median of the rounds' ratios with the least and the largest. Sampling is as by
default, with another seed in each round, so that answers differ and new states go on to come. A model with random
weights (tools/shapes/random_weights.py --vocab) writes random words: more new states than a real one.
"""

import argparse
import json
import re
import statistics
import subprocess
import threading
import urllib.request

PEOPLE = {
    "type": "array",
    "minItems": 200,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 3, "maxLength": 40},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "mail": {"type": "string", "format": "email"},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 4},
            "score": {"type": "number"},
        },
        "required": ["name", "age", "mail", "tags", "score"],
        "additionalProperties": False,
    },
}
FORMS = {
    "schema, records": {"json_schema": PEOPLE},
    "schema, a long string": {"json_schema": {"type": "string", "minLength": 3000, "maxLength": 4000}},
    "schema, any array": {"json_schema": {"type": "array", "minItems": 500}},
    "grammar, sentences": {"grammar": 'root ::= (word " ")+ "."\nword ::= [a-zA-Z]+ [,;]?'},
    "expression, sentences": {"regex": "([A-Z][a-z, ]+\\. ){50,}"},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("-n", type=int, default=200, help="tokens an answer (default: 200)")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    server = subprocess.Popen(
        [args.program, "serve", "-m", args.model, "--port", "0", "--pot", "1024"], stderr=subprocess.PIPE, text=True
    )
    try:
        url = next(found[0] for line in server.stderr if (found := re.search(r"http://\S+:\d+", line)))
        threading.Thread(target=server.stderr.read, daemon=True).start()

        def write(form, seed):
            """Milliseconds a token."""
            body = {
                "prompt": "The people of the valley:",
                "max_tokens": args.n,
                "seed": seed,
                "ignore_eos": True,
                **form,
            }
            if form:
                del body["ignore_eos"]
            request = urllib.request.Request(url + "/v1/completions", data=json.dumps(body).encode())
            with urllib.request.urlopen(request, timeout=600) as answer:
                timings = json.load(answer)["timings"]
            if timings["predicted_n"] < args.n:
                raise SystemExit(f"an answer ended after {timings['predicted_n']} tokens")
            return timings["predicted_ms"] / timings["predicted_n"]

        write({}, 1)
        for name, form in FORMS.items():
            first = write(form, 0)
            pairs = [(write(form, seed), write({}, seed)) for seed in range(1, args.rounds + 1)]
            ratios = sorted(with_form / without for with_form, without in pairs)
            row = {
                "form": name,
                "n": args.n,
                "rounds": args.rounds,
                "first_ms": round(first, 3),
                "with_ms": round(statistics.median(one for one, _ in pairs), 3),
                "without_ms": round(statistics.median(one for _, one in pairs), 3),
                "ratio": round(statistics.median(ratios), 4),
                "least": round(ratios[0], 4),
                "largest": round(ratios[-1], 4),
            }
            print(json.dumps(row), flush=True)
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""What a rehearsal showed, in lines and as a dictionary."""

import statistics
from collections import Counter


def quantile(values, q):
    """By nearest rank; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


def times(values):
    return {
        "n": len(values),
        "p50": quantile(values, 0.5),
        "p99": quantile(values, 0.99),
        "max": max(values, default=0),
    }


def report(run, fleet, seen, n_turns, differences):
    restarts = [row for server in fleet for row in server.restarts]
    wrong = seen.wrong + [text for server in fleet for text in server.wrong]
    wrong += [f"session {i}, turn {n}: {a!r} instead of {b!r}" for i, n, a, b in differences]
    failed = Counter(
        f"{what} {status or 'broken'}" for _, _, what, status, *_ in seen.calls if status not in (200, 201)
    )
    # Clients delete what may be left of a session before they restore it, and look for a session until it is back.
    aside = ("delete", "look")
    n_calls = sum(1 for call in seen.calls if call[2] not in aside)
    failed = Counter({what: n for what, n in failed.items() if not what.startswith(aside)})
    n_failed = sum(failed.values())
    allowed = (1 - run.slo) * n_calls
    result = {
        "sessions": run.sessions,
        "seconds": round(run.seconds, 1),
        "store": run.store,
        "proxy": run.proxy,
        "durable": run.durable,
        "kill_every": run.kill_every,
        "kills": {how: sum(1 for row in restarts if row[0].name == how) for how in ("SIGKILL", "SIGTERM")},
        "seconds_to_end": {
            how: times([row[1] for row in restarts if row[0].name == how]) for how in ("SIGKILL", "SIGTERM")
        },
        "seconds_to_serve": times([row[2] for row in restarts]),
        "failed_starts": sum(server.failed_starts for server in fleet),
        "cpu_seconds": round(sum(server.cpu_seconds for server in fleet), 2),
        "turns": len(seen.steps),
        "turns_a_second": round(len(seen.steps) / run.seconds, 2),
        "compared": n_turns,
        "differ": len(differences),
        "restores": seen.restores,
        "restores_after_kill": seen.restores_after_kill,
        "requests": n_calls,
        "failed": dict(failed),
        "failed_share": n_failed / max(1, n_calls),
        "error_budget_used": n_failed / allowed if allowed else 0.0,
        "times": {
            what: times([call[1] for call in seen.calls if call[2] == what and call[3] in (200, 201)])
            for what in ("append", "ask", "save", "restore", "create")
        },
        "turn": times([step[1] for step in seen.steps]),
        "mean_turn": statistics.fmean(step[1] for step in seen.steps) if seen.steps else 0.0,
        "wrong": wrong[:50],
        "n_wrong": len(wrong),
    }
    durable = ", durable" if run.durable else ""
    print(f"{run.sessions} sessions, {result['seconds']:.0f} s, store {run.store}{durable}, proxies {run.proxy}")
    print(f"ended: {result['kills']}; until served again: " + shown(result["seconds_to_serve"]))
    if result["failed_starts"]:
        print(f"  starts that failed and were tried again: {result['failed_starts']}")
    for how, row in result["seconds_to_end"].items():
        print(f"  {how} until the process had ended: " + shown(row))
    print(
        f"turns: {result['turns']}, {result['turns_a_second']} a second; {n_turns} compared, {len(differences)} differ"
    )
    print(f"servers' processor time: {1000 * result['cpu_seconds'] / max(1, result['turns']):.2f} ms a turn")
    if run.durable:
        print(f"requests without a reply, looked into: {seen.restores}")
    else:
        print(f"restored from the last save: {seen.restores}, of these {seen.restores_after_kill} after a kill")
    print(f"requests: {n_calls}, failed {n_failed} ({100 * result['failed_share']:.3f} %): {dict(failed)}")
    print(f"error budget of {100 * (1 - run.slo):.2g} %: {100 * result['error_budget_used']:.1f} % of it used")
    for what, row in result["times"].items():
        print(f"  {what:8}" + shown(row))
    print("  a turn with its save, repeats included: " + shown(result["turn"]))
    for text in wrong[:20]:
        print("WRONG " + text)
    print("WRONG" if wrong else "ok    no acknowledged token lost; all answers as undisturbed")
    return result


def shown(row):
    return (
        f"n {row['n']}, p50 {1000 * row['p50']:.1f} ms, p99 {1000 * row['p99']:.1f} ms, max {1000 * row['max']:.0f} ms"
    )

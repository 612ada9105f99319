# SPDX-License-Identifier: BSL-1.0
"""Runs a client program against a memcached and reads its transcript (transcript.py)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tools.process import finished

CLIENT_SECONDS = 120


@dataclass
class Judgement:
    """The outcome of a client. `wrong`: calls whose answer is not the stated one. `missing`: public methods that were not called, by
    class."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)


def run(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Judgement:
    """Runs a client program. Raises AssertionError if it fails or prints no transcript."""
    done = finished(argv, CLIENT_SECONDS, env=environment)
    assert done.returncode == 0, f"{argv[-3:]} ended with status {done.returncode}:\n{done.stdout[-500:]}\n{done.stderr[-2000:]}"
    return read(done.stdout)


def read(transcript: str) -> Judgement:
    judgement = Judgement()
    called: set[str] = set()
    for line in transcript.splitlines():
        row = json.loads(line)
        if "class" in row:
            judgement.missing[row["class"]] = sorted(set(row["methods"]) - called - set(row["local"]))
            called.clear()
            continue
        called.add(row["method"])
        judgement.calls.append((row["method"], row["arguments"]))
        if row["answer"] != row["stated"]:
            judgement.wrong.append(f"{row['method']}({row['arguments']}) answered {row['answer']}, in place of {row['stated']}")
    assert judgement.missing, f"the transcript does not list a client's methods:\n{transcript[-500:]}"
    assert not called, f"calls after the list of methods: {sorted(called)}"
    return judgement

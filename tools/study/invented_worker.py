# SPDX-License-Identifier: BSL-1.0
"""A worker of a sweep for tests: it invents the figures of a run in no time, from the run's order alone (worker.py has the protocol).

Arguments: a file to which each run appends a line when it begins, the seconds that a run takes, and optionally a text: a run whose words or
loads contain it fails. `die=TEXT` ends the worker instead, and `down` is a real machine that does not answer.
`rebuilt`: a build replaces the image during the first run, which ends the worker.
"""

import hashlib
import json
import os
import sys
import time


def figures(order: dict, load: dict) -> dict:
    digest = hashlib.sha256(json.dumps([order["words"], order["cores"], load], sort_keys=True).encode()).digest()
    seconds, requests = load["window_ms"] / 1e3, round(load["rate"] * load["window_ms"] / 1e3)
    percentiles = {} if not requests else {f"{name}_us": 10.0 + digest[at] for at, name in enumerate(("p50", "p90", "p95", "p99"))}
    return {
        "scheduled": requests,
        "rate_reached": requests / seconds,
        "requests": requests,
        "window_s": seconds,
        "failed_requests": 0,
        "lost_frames": 0,
        **percentiles,
        "power_w": 10.0 + digest[5] / 10,
    }


def main(journal: str, seconds: str, failing: str = "") -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "prepare" in request:
            image = "2" if failing == "rebuilt" and os.path.exists(journal) else "1"
            programs = {"model": {"QEMU": "invented"}, **{system: {f"{system} image": image} for system in request["prepare"]["systems"]}}
            answer = {"programs": programs}
        elif "reach" in request:
            answer = {"error": {"message": "rack1 does not answer", "hint": None}} if failing == "down" else {}
        else:
            order = request["run"]
            text = json.dumps([order["words"], order["loads"]])
            with open(journal, "a") as file:
                file.write(json.dumps([os.getpid(), order["words"], [[load["rate"], load["seed"]] for load in order["loads"]]]) + "\n")
            time.sleep(float(seconds))
            if failing == "rebuilt" or (failing.startswith("die=") and failing[4:] in text):
                os._exit(1)
            if failing and failing in text:
                answer = {"error": {"message": "the machine ended early", "hint": None}}
            else:
                histogram = [[10.0, 1], [20.0, 2]]
                answer = {"results": [{"figures": figures(order, load), "histogram": histogram, "log": None} for load in order["loads"]]}
        print(json.dumps(answer), flush=True)


main(*sys.argv[1:])

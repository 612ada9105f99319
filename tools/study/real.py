# SPDX-License-Identifier: BSL-1.0
"""Runs of a study on a machine that answers to control: a rack machine, or one that `./neap run` runs here.

The machine is up already, and stays up. Each run sets its words over control, offers its load by `./neap load`, and fetches the log of the
window, from which energy, counters and residencies come (docs/study.md, "Real machines").
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools import build, load, machine, machine_registry, process
from tools.control_client import Control, Lost
from tools.errors import Failure
from tools.foreign import parse_json, read_bounded
from tools.log import collect, decode, summary

LOAD_JSON = "load.json"
JSON_BYTES_MAX = 1 << 28
PATIENCE_SECONDS = 20.0
# A load that lasts this much longer than its warm-up and window has hung.
GRACE_SECONDS = 180.0
PERCENTILES = {"p50_us": "p50_ns", "p90_us": "p90_ns", "p95_us": "p95_ns", "p99_us": "p99_ns", "p999_us": "p99.9_ns", "max_us": "p100_ns"}


def reach(name: str, address: str) -> None:
    """Raises Failure if the machine does not answer."""
    _ask(name, address, ["status"])


def _ask(name: str, address: str, lines: list[str]) -> list[str]:
    """Returns control's answers. Raises Failure for a machine that does not answer, and for a line that it refuses."""
    host, port = machine_registry.find_control(address)
    try:
        with Control(host, port) as control:
            answers = []
            for line in lines:
                answer = control.ask(line)
                if not answer.startswith("ok"):
                    raise Failure(f"{name} refuses {line}: {answer}", "leave this value out of the study")
                answers.append(answer)
            return answers
    except Lost as lost:
        raise Failure(f"{name} does not answer: {lost.message}", f"./neap power cycle {name} starts it again") from None


def run(order: Mapping[str, Any], out: Path) -> list[dict[str, Any]]:
    """Runs a unit, which has one load. Returns as modelled.run. Raises Failure."""
    name, address, (wanted,) = order["machine"], order["address"], order["loads"]
    _ask(name, address, [word.replace("=", ",", 1) for word in order["words"]])
    if wanted["rate"]:
        _offer(order, wanted, out)
    else:
        _ask(name, address, ["start"])
        time.sleep(wanted["window_ms"] / 1e3)
        _ask(name, address, ["stop"])
    log = out / "log"
    place = machine_registry.find_control(address)
    if collect.collect(place, log, live=False, token=None, as_json=False, patience_seconds=PATIENCE_SECONDS):
        raise Failure(f"{name}: the log was not fetched whole")
    found = figures_of_log(log, wanted["window_ms"] / 1e3)
    histogram: list[list[float]] = []
    if wanted["rate"]:
        document = _document(out / LOAD_JSON)
        found |= figures_of_load(document, found["energy_j"])
        histogram = histogram_of(document)
    else:
        found |= {"scheduled": 0, "rate_reached": 0.0, "requests": 0, "failed_requests": 0, "lost_frames": None}
    return [{"figures": found, "histogram": histogram, "log": str(log) if wanted["log"] else None}]


def _offer(order: Mapping[str, Any], wanted: Mapping[str, Any], out: Path) -> None:
    """Runs the load generator to its end."""
    host, port = machine_registry.find_control(order["address"])
    running = machine_registry.find(order["address"])
    service = order["service"] or (f"{machine.LOOPBACK}:{load.service_port(running)}" if running else f"{host}:{load.GUEST_PORT}")
    seconds = {name: wanted[f"{name}_ms"] / 1e3 for name in ("warm_up", "window")}
    argv = [
        *(str(build.LOAD), service, "--preset", wanted["mix"], "--rate", f"{wanted['rate']:.15g}", "--seed", str(wanted["seed"])),
        *("--connections", str(wanted["connections"]), "--depth", str(wanted["depth"]), "--protocol", wanted["protocol"]),
        *("--warm-up", f"{seconds['warm_up']:.15g}", "--seconds", f"{seconds['window']:.15g}", "--time-out", str(load.TIME_OUT_SECONDS)),
        *("--json", str(out / LOAD_JSON), "--control", f"{host}:{port}"),
        *order["client"],
    ]
    options = {"--arrivals": "arrivals", "--keys": "keys", "--key-size": "key_bytes", "--value-size": "value_bytes", "--update": "update"}
    for option, member in options.items():
        if wanted[member] is not None:
            argv += [option, str(wanted[member])]
    child = process.spawn(argv)
    try:
        status = child.wait(sum(seconds.values()) + GRACE_SECONDS)
    except process.subprocess.TimeoutExpired:
        raise Failure(f"the load on {order['machine']} did not end") from None
    finally:
        process.stop(child)
    if status != 0 and not (out / LOAD_JSON).is_file():
        raise Failure(f"the load on {order['machine']} failed with status {status}", "the lines above say why")


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = parse_json(read_bounded(path, JSON_BYTES_MAX))
        (run_of_it,) = found["runs"]  # type: ignore[index,call-overload]
        return run_of_it
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path} is no result of one load: {error}") from None


def figures_of_load(document: Mapping[str, Any], energy_j: float | None) -> dict[str, Any]:
    """Latencies are those of the measuring client, if there is one."""
    clients = [document[name] for name in ("loading", "measuring") if document.get(name)]
    latency = clients[-1]["latency"]
    requests = sum(client["latency"]["count"] for client in clients)
    return {
        "scheduled": sum(client["intended"] for client in clients),
        "rate_reached": document["rate"]["achieved"],
        "requests": requests,
        "window_s": document["seconds"],
        "failed_requests": sum(client["requests"]["errors"] for client in clients),
        "lost_frames": None,
        "mean_us": latency["mean_ns"] / 1e3,
        **{name: latency[member] / 1e3 if member in latency else None for name, member in PERCENTILES.items()},
        "energy_uj": energy_j * 1e6 / requests if energy_j is not None and requests else None,
    }


def histogram_of(document: Mapping[str, Any]) -> list[list[float]]:
    """Returns the sum of the histograms of the window's seconds, which have two significant digits."""
    counts: dict[int, int] = {}
    for second in document.get("over_time") or ():
        if second["from_s"] >= 0:
            numbers = [int(word) for word in second["histogram_ns"].split()]
            for value, count in zip(numbers[::2], numbers[1::2], strict=True):
                counts[value] = counts.get(value, 0) + count
    return [[value / 1e3, count] for value, count in sorted(counts.items())]


def figures_of_log(folder: Path, window_s: float) -> dict[str, Any]:
    """Returns the members that a log knows. Its run is the window, and the time until the last reply."""
    found = summary.summarise(decode.load([str(folder)]))
    total, cores = found["total"], found["cores_detail"]

    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if len(known) == len(values) and known else None

    watts = total["watts"]
    cycles, reference = total["cycles"], total["reference_cycles"]
    return {
        "log_requests": total["requests"],
        "window_s": window_s,
        "energy_j": watts * window_s if watts is not None else None,
        "power_w": watts,
        "instructions": total["instructions"],
        "cycles": cycles,
        "ref_cycles": reference,
        "llc_misses": total["llc_misses"],
        "interrupts": total["interrupts"],
        "wake_ups": sum(core["sleeps"] for core in cores),
        "frames_in": total.get("rx_frames"),
        "frames_out": total.get("tx_frames"),
        "bytes_in": total.get("rx_bytes"),
        "bytes_out": total.get("tx_bytes"),
        "c0": 1 - total["asleep_share"] if total["asleep_share"] is not None else None,
        **{state: mean([core["residency_share"][state] for core in cores]) for state in ("c3", "c6", "c7")},
        "mhz": found["tsc_hz"] / 1e6 * cycles / reference if cycles is not None and reference else None,
    }

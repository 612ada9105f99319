# SPDX-License-Identifier: BSL-1.0
"""Runs of a study on the model machine, and their figures as members of a row (schema.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import build, cache, qemu
from tools.bench import modelled
from tools.model import experiment, linux, pair, plugin, results
from tools.study.plan import COMMON, NETPIPE

# By the system that is booted, the application of Neap's image.
APPLICATIONS = {"neap": "memcached", NETPIPE: "netpipe"}
# Memory of a modelled machine: up to this number of cores, and above.
SMALL_CORES, SMALL, LARGE = 4, "512M", "1G"
PERCENTILES = ("mean", "p50", "p90", "p95", "p99", "p999", "max")
STATES = ("c1", "c1e", "c3", "c6", "c7")
_prepared: dict[Path, tuple[int, int]] = {}


def prepare(systems: Sequence[str]) -> dict[str, dict[str, str]]:
    """Builds what is booted. `systems`: those of arms, and NETPIPE. Returns hashes of all that takes part in a run, by system, and under
    COMMON for all systems."""
    modelled.prepare(*(application for system, application in APPLICATIONS.items() if system in systems))
    found = {
        COMMON: {
            "QEMU": qemu.version_of(qemu.command()),
            "neap-world": cache.file_sha256(build.WORLD),
            "plugin": cache.file_sha256(plugin.library()),
        }
    }
    _prepared[build.WORLD] = _signature(build.WORLD)
    for system in systems:
        booted = system_of(system)
        _prepared[booted.kernel] = _signature(booted.kernel)
        found[system] = {f"{system} image": cache.file_sha256(booted.initramfs or booted.kernel)}
        if booted.initramfs:
            found[system][f"{system} kernel"] = cache.file_sha256(booted.kernel)
    return found


def rebuilt() -> Path | None:
    """Returns a file that was made anew since `prepare`. A run that may have booted it MUST NOT count."""
    return next((path for path, signature in _prepared.items() if _signature(path) != signature), None)


def _signature(path: Path) -> tuple[int, int]:
    """Differs between two builds of a file. The linker may be under way, so that there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def system_of(name: str, *, with_trace: bool = False) -> experiment.System:
    if name in APPLICATIONS:
        return experiment.System(build.image(APPLICATIONS[name], "image"))
    return experiment.System(*linux.image(name == "linux-13", with_trace=with_trace))


def run(order: Mapping[str, Any], out: Path) -> list[dict[str, Any]]:
    """Runs a unit (plan.order_of). Returns for each load or size `figures`, `histogram` and `log`: the folder of its log or None. `out`: an
    empty folder for the files of the run. Raises Failure."""
    return _ping_pong(order, out) if order["sizes"] else _loads(order, out)


def _network(order: Mapping[str, Any]) -> str:
    return f"delay_ns={round(order['cable_us'] * 1000)}" if order["cable_us"] else ""


def _loads(order: Mapping[str, Any], out: Path) -> list[dict[str, Any]]:
    loads = [experiment.Load(**{**each, "settings": tuple(each["settings"])}) for each in order["loads"]]
    is_linux = order["system"] != "neap"
    is_logged = any(load.log for load in loads)
    network = _network(order)
    wanted = experiment.Experiment(
        order["model"],
        cores=order["cores"],
        memory=SMALL if order["cores"] <= SMALL_CORES else LARGE,
        seed=order["seed"],
        arguments=[*order["words"], *(["trace=on"] if is_linux and is_logged else [])],
        world_options=["--network", network] if network else [],
    )
    system = system_of(order["system"], with_trace=is_linux and is_logged)
    found = experiment.run_sequence(wanted, loads, system, out)
    return [
        {
            "figures": {**figures(result), "log_requests": requests_of(out / experiment.sequence_log(number, load)) if load.log else None},
            "histogram": [[latency_ns / 1e3, count] for latency_ns, count in result.histogram],
            "log": str(out / experiment.sequence_log(number, load)) if load.log else None,
        }
        for number, (load, result) in enumerate(zip(loads, found, strict=True))
    ]


def _ping_pong(order: Mapping[str, Any], out: Path) -> list[dict[str, Any]]:
    """NetPIPE between two machines with equal words. The figures are those of the machine that measures, because Linux has no others."""
    wanted = pair.Pairing(
        order["model"],
        cores=order["cores"],
        memory=SMALL if order["cores"] <= SMALL_CORES else LARGE,
        seed=order["seed"],
        network=_network(order),
        arguments=order["words"],
        sizes=order["sizes"],
        repeats=order["trips"],
    )
    found = pair.run(wanted, system_of(NETPIPE if order["system"] == "neap" else order["system"]), out)
    return [{"figures": figures_of_point(point), "histogram": [], "log": None} for point in found.points]


def figures_of_point(point: pair.Point) -> dict[str, Any]:
    """Returns the members of a row. A request is a round trip; latency is one way, of NetPIPE's fastest trial. Losses are those of a whole
    run, and the first frames meet a card that does not receive yet. So they are not known for a size."""
    spent = point.spent[pair.TRANSMITTER]
    trips = pair.TRIALS * point.repeats
    return {
        "rate_reached": trips / spent.seconds,
        "requests": trips,
        "window_s": spent.seconds,
        "failed_requests": 0,
        "lost_frames": None,
        "p50_us": point.latency_us,
        "energy_j": spent.package_j,
        "energy_uj": spent.package_j * 1e6 / trips,
        "power_w": spent.watts,
        "instructions": spent.instructions,
        "wake_ups": spent.wakeups,
    }


def requests_of(log: Path) -> int | None:
    """Returns the requests that the application counted in a log."""
    from tools.log import decode, summary

    return summary.summarise(decode.load([str(log)]))["total"]["requests"]


def figures(result: results.Result) -> dict[str, Any]:
    """Returns the members of a row. `scheduled` is for the checks only: requests of the window, by the load's schedule."""
    world, cores = result.world, result.cores
    seconds = result.window_ns / 1e9
    core_ns = result.window_ns * len(cores)
    awake_ns = sum(core.c0_ns for core in cores)
    frames = result.frames_in_window
    has_requests = result.answered > 0
    latency = {f"{name}_us": world["latency_ns"][name] / 1e3 if has_requests else None for name in PERCENTILES}
    asleep: dict[str, float] = dict.fromkeys(STATES, 0.0)
    for core in cores:
        for name, spent_ns in core.residency_ns.items():
            asleep[name.lower()] = asleep.get(name.lower(), 0.0) + spent_ns / core_ns
    return {
        "scheduled": world["offered"],
        "rate_reached": world["achieved_rate"],
        "requests": result.answered,
        "window_s": seconds,
        "failed_requests": world["failed"],
        "lost_frames": world["lost_frames"],
        **latency,
        "energy_j": result.package_j,
        "energy_uj": result.package_j * 1e6 / result.answered if has_requests else None,
        "power_w": result.watts,
        "instructions": result.instructions,
        "cycles": sum(core.cycles for core in cores),
        "interrupts": world["interrupts"],
        "wake_ups": sum(core.wakeups for core in cores),
        "frames_in": frames["to_card"],
        "frames_out": frames["from_card"],
        "bytes_in": frames["bytes_to_card"],
        "bytes_out": frames["bytes_from_card"],
        "c0": awake_ns / core_ns,
        **{name: share for name, share in asleep.items() if name in STATES},
        "mhz": 1e3 * sum(core.cycles for core in cores) / awake_ns if awake_ns else None,
    }

# SPDX-License-Identifier: BSL-1.0
"""Makes studies of any size for tests and for `./neap bench view`, with the columns of the table of runs (schema.py).

The figures follow simple laws, so that pictures look like those of a real study: latency is work divided by the frequency plus a part of
ITR, power grows with frequency and with the share of time awake, and interrupts decrease with ITR. A small noise makes repeats differ.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tools.log import synthetic as synthetic_log
from tools.study import schema

CORES = 8
IDLE_W, POLLING_W = 14.0, 62.0
# Of each arm: system, instructions a request, work in us at 1 GHz, and the share of sleep in the deepest state.
ARMS = {"Neap": ("neap", 9e3, 38.0, 0.9), "Linux static": ("linux", 26e3, 96.0, 0.75), "Linux dynamic": ("linux", 27e3, 99.0, 0.6)}
DYNAMIC = "Linux dynamic"
HISTOGRAM_BUCKETS = 60
LOG_SECONDS = 0.5
TOTALS = ("energy_j", "instructions", "cycles", "llc_misses", "ref_cycles", "interrupts", "wake_ups", "frames_in", "frames_out")
TOTALS += ("bytes_in", "bytes_out")


@dataclasses.dataclass(frozen=True)
class Grid:
    """A study: all combinations of these settings, for each arm. A dynamic arm has one combination for each rate."""

    itr_us: tuple[float, ...] = (2, 10, 50, 100, 200, 400)
    frequencies_ghz: tuple[float, ...] = (1.2, 1.6, 2.2, 2.9)
    rates: tuple[float, ...] = (100_000, 300_000)
    repeats: int = 3
    arms: tuple[str, ...] = tuple(ARMS)
    noise: float = 0.02
    seed: int = 1


def figures(arm: np.ndarray, itr: np.ndarray, ghz: np.ndarray, rate: np.ndarray, noise: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the figures of runs. `arm`: the number in ARMS; `noise`: factors near 1."""
    instructions, work, deep = (np.array([each[at] for each in ARMS.values()])[arm] for at in (1, 2, 3))
    ipc = 1.15 + 0.25 * np.minimum(itr, 300) / 300
    batch = 1 + rate / CORES * itr * 1e-6
    per_request = instructions * (0.6 + 0.4 / np.sqrt(batch))
    cycles = per_request / ipc
    awake = np.minimum(0.985, 0.01 + rate * cycles / (CORES * ghz * 1e9))
    mean = (work / ghz + 0.45 * itr) / np.sqrt(1 - awake) * noise
    p99 = (1.9 * work / ghz + 1.08 * itr) / (1 - awake) * noise
    power = (IDLE_W + (POLLING_W - IDLE_W) * awake * (ghz / 2.9) ** 1.7 + 3.0 * (1 - awake) * (1 - deep)) * noise
    seconds = np.full(len(itr), 10.0)
    requests = np.round(rate * seconds)
    asleep = 1 - awake
    return {
        **{"rate_wanted": rate, "rate_reached": rate * np.minimum(1, 1.01 - 0.02 * awake), "requests": requests, "window_s": seconds},
        **{"mean_us": mean, "p50_us": 0.88 * mean, "p90_us": 0.75 * p99, "p95_us": 0.86 * p99, "p99_us": p99, "p999_us": 1.45 * p99},
        **{"max_us": 2.2 * p99, "power_w": power, "energy_j": power * seconds, "energy_uj": 1e6 * power / rate},
        **{"instructions": per_request * requests, "cycles": cycles * requests, "llc_misses": 0.002 * per_request * requests},
        **{"ref_cycles": awake * seconds * CORES * 2.9e9, "interrupts": requests / batch, "wake_ups": 0.9 * requests / batch},
        **{"frames_in": 1.02 * requests, "frames_out": 1.01 * requests, "bytes_in": 140 * requests, "bytes_out": 320 * requests},
        **{"c0": awake, "c1": asleep * (1 - deep) * 0.6, "c1e": asleep * (1 - deep) * 0.4, "c3": asleep * deep * 0.1},
        **{"c6": asleep * deep * 0.2, "c7": asleep * deep * 0.7, "mhz": 1000 * ghz},
    }


def _rows(grid: Grid) -> list[dict]:
    random = np.random.default_rng(grid.seed)
    places = [
        (arm, itr, ghz, rate, repeat)
        for arm in grid.arms
        for itr in (grid.itr_us if arm != DYNAMIC else (None,))
        for ghz in (grid.frequencies_ghz if arm != DYNAMIC else (None,))
        for rate in grid.rates
        for repeat in range(1, grid.repeats + 1)
    ]
    number = np.array([list(ARMS).index(arm) for arm, *_ in places])
    itr = np.array([30.0 if each is None else each for _, each, *_ in places])
    ghz = np.array([2.6 if each is None else each for _, _, each, *_ in places])
    rate = np.array([each for *_, each, _ in places], float)
    found = figures(number, itr, ghz, rate, 1 + grid.noise * random.standard_normal(len(places)))
    rows = []
    for at, (arm, own_itr, own_ghz, own_rate, repeat) in enumerate(places):
        settings = {"itr": own_itr, "frequency": own_ghz, "idle": "c7"}
        name = hashlib.sha256(json.dumps([arm, settings, own_rate, repeat]).encode()).hexdigest()[:16]
        row = {"study": "synthetic", "run": name, "arm": arm, "system": ARMS[arm][0], "machine": "e5-2690", "modelled": True}
        row |= {"cores": CORES, "load": "etc", "repeat": repeat, "seed": repeat, "status": schema.OK, "took_s": 1.5}
        row |= {"itr_us": own_itr, "frequency_ghz": own_ghz, "idle": "c7", "settings": json.dumps(settings)}
        row |= {"failed_requests": 0, "lost_frames": 0, "idle_w": IDLE_W, "polling_w": POLLING_W}
        row |= {column: values[at].item() for column, values in found.items()}
        row["requests"] = int(row["requests"])
        rows.append(row)
    return rows


def histogram(row: dict) -> list[tuple[float, int]]:
    """Returns a log-normal distribution with the run's median and 99th percentile, as pairs of bucket's end and count."""
    edges = np.geomspace(row["p50_us"] / 4, row["max_us"], HISTOGRAM_BUCKETS)
    width = max(0.05, np.log(row["p99_us"] / row["p50_us"]) / 2.326)
    at = (np.log(edges) - np.log(row["p50_us"])) / width
    below = 1 / (1 + np.exp(-1.702 * at))  # close to the normal distribution
    counts = np.round(np.diff(below, prepend=0.0) * row["requests"]).astype(int)
    return [(float(edge), int(count)) for edge, count in zip(edges, counts) if count]


def write(folder: Path, grid: Grid | None = None, logs: int = 0, packages: int = 1) -> list[dict]:
    """Writes a study's folder and returns its rows. The first `logs` runs have logs, of machines with so many packages."""
    rows = _rows(grid or Grid())
    folder.mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(rows[:logs]):
        row["log"] = f"runs/{row['run']}/log"
        # The window is that of the log.
        row |= {name: row[name] * LOG_SECONDS / row["window_s"] for name in TOTALS}
        row |= {"requests": round(row["requests"] * LOG_SECONDS / row["window_s"]), "window_s": LOG_SECONDS}
        shape = synthetic_log.Shape(
            cores=2,
            packages=packages,
            records=3000,
            seconds=LOG_SECONDS,
            itr_us=int(row["itr_us"] or 8),
            changes=0,
            performance=0x1800,
            power_limit_mw=135_000,
            watts=row["power_w"] / packages,
            run=number + 1,
            idle_records=True,
        )
        synthetic_log.write(folder / row["log"], shape)
    parquet.write_table(schema.runs_table(rows), folder / schema.RUNS, compression="zstd")
    parquet.write_table(schema.histograms_table({row["run"]: histogram(row) for row in rows}), folder / schema.HISTOGRAMS)
    return rows


def write_many(path: Path, count: int, seed: int = 1) -> None:
    """Writes a table of `count` runs at random settings, as a search over many settings makes them."""
    random = np.random.default_rng(seed)
    arm = random.integers(0, len(ARMS), count)
    itr = np.round(np.exp(random.uniform(np.log(2), np.log(1000), count)) / 2) * 2
    ghz = random.integers(12, 30, count) / 10
    rate = random.choice([50_000.0, 100_000.0, 200_000.0, 400_000.0, 600_000.0], count)
    found = figures(arm, itr, ghz, rate, np.exp(0.06 * random.standard_normal(count)))
    # One run in 10,000 was disturbed, which a picture must show.
    found["p99_us"] = np.where(random.random(count) < 1e-4, 30 * found["p99_us"], found["p99_us"])
    of = pa.DictionaryArray.from_arrays
    number = np.arange(count)
    columns: dict = {"study": pa.repeat("many", count), "run": pa.array([f"{each:016x}" for each in number])}
    columns |= {"arm": of(pa.array(arm, pa.int32()), pa.array(list(ARMS))), "load": pa.repeat("etc", count)}
    columns |= {"system": of(pa.array(arm, pa.int32()), pa.array([each[0] for each in ARMS.values()])), "status": pa.repeat("ok", count)}
    columns |= {"machine": pa.repeat("e5-2690", count), "modelled": pa.repeat(True, count), "cores": pa.repeat(CORES, count)}
    columns |= {"repeat": pa.array(number % 3 + 1), "seed": pa.array(number), "idle": pa.repeat("c7", count)}
    columns |= {"itr_us": pa.array(itr), "frequency_ghz": pa.array(ghz), "idle_w": pa.repeat(IDLE_W, count)}
    columns |= {name: pa.array(values) for name, values in found.items()}
    arrays = {}
    for name, kind in schema.TYPES.items():
        values = columns.get(name, None)
        if values is None:
            arrays[name] = pa.nulls(count, kind)
        else:
            arrays[name] = (values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values).cast(kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(arrays), path, compression="zstd")

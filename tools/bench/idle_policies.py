# SPDX-License-Identifier: BSL-1.0
"""`./neap bench idle-policies`: policies for idle cores under memcached's load at four rates, on two modelled CPUs.

A policy decides for each gap between two requests whether a core polls, sleeps lightly or sleeps deeply. `c1` and `deepest` always make the
same choice: race to halt. `menu` predicts the gap, and `adaptive_poll` polls through gaps that are short. Each row is a run in virtual time
(docs/model-machine.md): the figures compare policies, they are not those of a machine. As in `./neap bench sleep-states`, every sleep
record of the log is compared with the sleep that the modelled CPU had.
"""

import dataclasses
from collections.abc import Sequence

from tools import build
from tools.bench import modelled, sleep_states
from tools.bench.rows import Row, aligned
from tools.bench.sleep_states import Cell, Setting
from tools.model import cpu_model, sleeps, wakeup

MODELS = sleep_states.MODELS
# Requests per second, and the window in ms.
WINDOWS_MS = {1_000: 400.0, 10_000: 100.0, 50_000: 40.0, 200_000: 20.0}
POLLING = "adaptive_poll=100us"
FIGURES = {
    "p50_us": "us",
    "p99_us": "us",
    "watts": "W",
    "uj_per_request": "uJ a request",
    "wakeups": "sleeps of the window",
    "interrupts": "of the card, in the window",
}


@dataclasses.dataclass(frozen=True)
class Policy:
    """`idle`: a state of Neap's, or `deepest`. `words`: further words of the command line. `measured`: with `wake_up_times=`."""

    name: str
    idle: str
    words: tuple[str, ...] = ()
    measured: bool = False

    def setting(self, model: str, rate: int) -> Setting:
        cpu = cpu_model.load(model)
        idle = sleep_states.idle_states(cpu)[-2] if self.idle == "deepest" else self.idle
        return Setting(model, rate, idle, (*self.words, wake_up_times(cpu)) if self.measured else self.words)


POLICIES = (
    Policy("poll", "poll"),
    Policy("c1", "c1"),
    Policy("c1, adaptive_poll", "c1", (POLLING,)),
    Policy("deepest", "deepest"),
    Policy("deepest, adaptive_poll", "deepest", (POLLING,)),
    Policy("menu", "menu"),
    Policy("menu, measured times", "menu", measured=True),
    Policy("menu, measured, adaptive_poll", "menu", (POLLING,), measured=True),
)


def wake_up_times(cpu: cpu_model.CpuModel) -> str:
    """The boot option that apps/wakeup prints on this modelled CPU (tests/model/wakeup_test.py compares the two)."""
    times = []
    for idle, state in sleeps.C_STATES.items():
        if idle != "halt" and f"sleep.{state}.hint" in cpu.values:
            times.append(f"{idle}:{wakeup.model_us(cpu, idle, 'timer-all'):.0f}us")
    return "wake_up_times=" + ",".join(times)


def name_of(model: str, rate: int, policy: Policy) -> str:
    return f"{model}.rate_{rate}.{policy.name.replace(', ', '+').replace(' ', '_')}"


def rows() -> list[Row]:
    modelled.prepare("memcached")
    image = build.image("memcached")
    wanted = [(model, rate, policy) for model in MODELS for rate in WINDOWS_MS for policy in POLICIES]
    cells = modelled.run_each(wanted, lambda one: sleep_states.run(one[2].setting(*one[:2]), image, WINDOWS_MS[one[1]]))
    return [row for one, cell in zip(wanted, cells) for row in rows_of(*one, cell)]


def rows_of(model: str, rate: int, policy: Policy, cell: Cell) -> list[Row]:
    name = name_of(model, rate, policy)
    found = [Row(f"{name}.{figure}", f"{unit}, modelled", cell.figures[figure]) for figure, unit in FIGURES.items()]
    return [*found, Row(f"{name}.records", "sleep records that agree with the modelled CPU", float(cell.compared.records))]


def show(found: Sequence[Row]) -> str:
    """A table for each CPU and rate."""
    values = {row.name: row.value or 0.0 for row in found}
    parts = [f"memcached (ETC) by policy of idle cores, {sleep_states.CORES} cores, virtual time: modelled, not measured"]
    for model in MODELS:
        for rate, window_ms in WINDOWS_MS.items():
            cells: list[tuple[str, ...]] = [("policy", "p50 us", "p99 us", "watts", "uJ/request", "sleeps", "interrupts", "records")]
            for policy in POLICIES:
                name = name_of(model, rate, policy)
                shown = [f"{values[f'{name}.{figure}']:.5g}" for figure in FIGURES]
                cells.append((policy.name, *shown, f"{values[f'{name}.records']:.0f}"))
            parts += ["", f"modelled {model}, {rate} requests/s, {window_ms:g} ms", aligned(cells)]
    return "\n".join(parts)

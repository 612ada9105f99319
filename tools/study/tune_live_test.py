# SPDX-License-Identifier: BSL-1.0
"""The live tuner keeps a machine safe: after a violation, a refusal, an interrupt, and if the connection ends."""

import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest
from pyarrow import parquet

from tools import build, process
from tools.errors import Failure
from tools.log import collect, synthetic
from tools.study import tune, tune_live, tune_rows
from tools.study.tune import Options
from tools.study.tune_grid import FREQUENCY, ITR, axis, product, shown
from tools.study.tune_live import Measured, Offered, RealPlant

SAFE = {ITR: 2, FREQUENCY: 2.9}
RISKY = {ITR: 400, FREQUENCY: 1.2}
OPTIONS = Options((500.0,), "power_w", "p99_us", 0.05, 14, 0.0005, None, 1.0)


class Machine:
    """Control of a machine that remembers its settings. `ends`: ends the connection at the line with this number, once. `deaf`: accepts no
    connection afterwards. `refuses`: a beginning of lines that it does not take."""

    def __init__(self, ends: int | None = None, deaf: bool = False, refuses: str = "never"):
        self.settings: dict[str, str] = {}
        self.lines: list[str] = []
        self._ends, self._deaf, self._refuses = ends, deaf, refuses
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()[:2]

    def __enter__(self) -> "Machine":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error) -> None:
        self._stop()

    def _stop(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            for raw in lines:
                line = raw.decode().strip()
                self.lines.append(line)
                if len(self.lines) == self._ends:
                    if self._deaf:
                        self._stop()
                    return
                name, _, value = line.partition(",")
                if line.startswith(self._refuses):
                    connection.sendall(f"error: {name}: not here\n".encode())
                    continue
                self.settings[name] = value
                connection.sendall(f"ok {name}={value}\n".encode())

    def latency(self) -> float:
        return 100 / (float(self.settings["pstate"]) / 10) + 1.05 * float(self.settings["itr"].removesuffix("us"))

    def power(self) -> float:
        return 50 * (float(self.settings["pstate"]) / 10) ** 0.9 * float(self.settings["itr"].removesuffix("us")) ** -0.1

    def step(self, seconds: float, warm_up: float) -> Measured:
        watts, took = self.power(), seconds + warm_up
        return Measured(self.latency(), watts, watts, watts * took, took, figures={"p99_us": self.latency(), "power_w": watts})

    def is_at(self, setting) -> bool:
        return self.settings == dict(tune_live.words(setting))


def plant(machine: Machine, step=None, patience: float = 0.2) -> RealPlant:
    return RealPlant(machine.address, None, step or machine.step, 10.0, 1.0, patience)


def grid():
    return product([axis(ITR, [2, *range(20, 600, 20)]), axis(FREQUENCY, [1.2, 1.6, 2.0, 2.4, 2.9])])


def test_a_machine_is_tuned_and_left_at_the_best_setting(tmp_path: Path) -> None:
    rows = tune_rows.Rows(tmp_path / "trials.parquet", Offered())
    with Machine() as machine:
        found, parked = tune.tune_plant(plant(machine), grid(), OPTIONS, 500.0, rows, 1000.0, quiet=True)
        assert found.setting and machine.is_at(found.setting) and parked == f"the machine is at {shown(found.setting)}"
    assert found.setting[FREQUENCY] == 1.2 and found.violations == 0
    rows.write()
    table = parquet.read_table(tmp_path / "trials.parquet")
    assert table.num_rows == len(found.trials) and table.column("power_w").null_count == 0
    assert len(set(table.column("run").to_pylist())) == table.num_rows and set(table.column("rate_wanted").to_pylist()) == {1000.0}


def test_a_violation_ends_the_trial_and_the_machine_returns_to_the_safe_setting() -> None:
    with Machine() as machine:
        steps = []

        def step(seconds: float, warm_up: float) -> Measured:
            steps.append(seconds)
            return machine.step(seconds, warm_up)

        one = plant(machine, step).measure(RISKY, SAFE, 300.0)
        assert one.ended_early and one.latency_us and one.latency_us > 300 and steps == [2.0], "the whole trial ran above the SLA"
        assert machine.is_at(SAFE)


def test_a_violation_late_in_the_trial_is_set_back_too() -> None:
    with Machine() as machine:
        answers = iter([100.0, 900.0])

        def step(seconds: float, _warm_up: float) -> Measured:
            return Measured(next(answers), 5.0, 5.0, 5.0 * seconds, seconds)

        one = plant(machine, step).measure(RISKY, SAFE, 300.0)
        assert not one.ended_early and one.energy_j == 50 and machine.is_at(SAFE)


def test_an_ended_connection_leaves_the_machine_at_the_safe_setting_and_says_so() -> None:
    # The first trial sets two lines; the connection ends at the second trial's second line.
    with Machine(ends=4) as machine:
        real = plant(machine)
        real.measure(SAFE, SAFE, 500.0)
        with pytest.raises(Failure, match=r"trial of ITR 400 us, 1.2 GHz was lost: .*; the machine is at ITR 2 us, 2.9 GHz"):
            real.measure(RISKY, SAFE, 500.0)
        assert machine.is_at(SAFE)


def test_a_lost_machine_is_named_with_its_last_setting_and_the_remedy() -> None:
    with Machine(ends=3, deaf=True) as machine:
        real = plant(machine)
        real.measure(SAFE, SAFE, 500.0)
        with pytest.raises(
            Failure, match=r"cannot be reached .* was last set to ITR 2 us, 2.9 GHz; when it is back: ./neap ctl .*'itr,2us'"
        ):
            real.measure(RISKY, SAFE, 500.0)


def test_a_refused_setting_leaves_the_machine_at_the_safe_one() -> None:
    with Machine(refuses="pstate,12") as machine:
        with pytest.raises(Failure, match=r"pstate=12: error: pstate: not here; the machine is at ITR 2 us, 2.9 GHz"):
            plant(machine).measure(RISKY, SAFE, 500.0)
        assert machine.is_at(SAFE)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Failure("neap-load ended with status 1")])
def test_an_interrupted_or_failed_load_leaves_the_machine_at_the_safe_setting(error: BaseException) -> None:
    with Machine() as machine:

        def step(_seconds: float, _warm_up: float) -> Measured:
            assert machine.is_at(RISKY)
            raise error

        with pytest.raises(type(error)):
            plant(machine, step).measure(RISKY, SAFE, 500.0)
        assert machine.is_at(SAFE)


def test_an_sla_that_no_setting_meets_names_the_nearest_and_keeps_the_safe_setting() -> None:
    with Machine() as machine:
        found, parked = tune.tune_plant(plant(machine), grid(), OPTIONS, 20.0, tune_rows.Rows(None, Offered()), 1000.0, quiet=True)
        assert found.best is None and "nearest is ITR 2 us, 2.9 GHz" in found.refusal() and len(found.trials) == 2
        assert machine.is_at(SAFE) and "ITR 2 us, 2.9 GHz" in parked


def test_the_words_of_a_setting() -> None:
    setting = {ITR: 8, FREQUENCY: 2.4, "rapl_w": 60, "idle": "c6", "set_tso": "off", "set_rx_ring": 512}
    assert [f"{name},{value}" for name, value in tune_live.words(setting)] == [
        *("itr,8us", "pstate,24", "power_limit,60W", "idle,c6", "tso,off", "rx_ring,512"),
    ]


class Written:
    """Stands for the load generator and the collector: they leave a synthetic load result and log, which has energy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answered: int = 7):
        self.shape = synthetic.Shape(cores=1, records=50, seconds=3.0)
        self.answered = answered
        self.argv: list[str] = []
        monkeypatch.setattr(build, "build_load", lambda: Path("/bin/neap-load"))
        monkeypatch.setattr(process, "run_logged", self.load)
        monkeypatch.setattr(collect, "collect", self.collect)

    def load(self, argv, _log, _what, timeout_seconds=None) -> None:
        self.argv = list(argv)
        latency = {"p50_ns": 100_000, "p99_ns": 450_000, "p100_ns": 900_000}
        clock = {"tsc": 4_000_000_000, "tsc_hz": self.shape.tsc_hz, "unix_ns": 1_000_000_000_000, "uncertainty_ns": 1000}
        run = {"seconds": 2.0, "began_unix_ns": 1_001_500_000_000, "log": {"clock": clock}, "measuring": None}
        run["loading"] = {"answered_in_window": self.answered, "latency": latency}
        Path(argv[argv.index("--json") + 1]).write_text(json.dumps({"runs": [run], "agents": []}))

    def collect(self, _address, out, **_options) -> int:
        out.mkdir()
        synthetic.write(out, self.shape)
        return 0


def test_a_step_takes_latency_from_the_load_and_energy_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(monkeypatch)
    step = tune_live.LoadStep("10.0.0.7:11211", ("10.0.0.7", 5002), None, Offered("usr", 4000.0, connections=8))
    one = step(2.0, 0.5)
    assert one.latency_us == 450 and one.power_w and one.power_w > 0 and one.seconds == 2.5
    assert one.energy_j == pytest.approx(2.5 * one.power_w) and one.energy_uj == pytest.approx(1e6 * 2 * one.power_w / 7)
    words = " ".join(written.argv)
    assert (
        "10.0.0.7:11211 --preset usr --rate 4000 --seconds 2 --warm-up 0.5 --connections 8" in words and "--control 10.0.0.7:5002" in words
    )


def test_a_step_without_an_answer_is_a_failed_load(monkeypatch: pytest.MonkeyPatch) -> None:
    Written(monkeypatch, answered=0)
    one = tune_live.LoadStep("10.0.0.7", ("10.0.0.7", 5002), None, Offered())(2.0, 0.0)
    assert one.latency_us is None and one.failure == "no request was answered"

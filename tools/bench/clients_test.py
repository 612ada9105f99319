# SPDX-License-Identifier: BSL-1.0
"""`./neap bench load` measures a client's own CPU time, reads its figures, and lists clients that are not available."""

import json
import re
import sys

import pytest

from tools import bench
from tools.bench import clients, load_accuracy, programs
from tools.bench.clients import CLIENTS, Round
from tools.bench.rows import Row
from tools.errors import Failure

SPIN = "import time\nwhile time.process_time() < 0.3: pass\nprint('done')"
SLEEP = "import time\ntime.sleep(0.3)\nprint('done')"


def client(name: str) -> clients.Client:
    (found,) = [one for one in CLIENTS if one.name == name]
    return found


def test_only_the_cpu_time_of_a_client_counts() -> None:
    output, _, busy = programs.measured("spinning", [sys.executable, "-S", "-c", SPIN], [])
    _, seconds, idle = programs.measured("sleeping", [sys.executable, "-S", "-c", SLEEP], [])
    assert output == "done\n" and busy >= 0.3 and seconds >= 0.29 and idle < busy


def test_a_client_that_fails_or_never_ends_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match="broken ended with status 3: no such server"):
        programs.measured("broken", ["sh", "-c", "echo no such server; exit 3"], [])
    monkeypatch.setattr(programs, "PATIENCE_SECONDS", 0.2)
    with pytest.raises(Failure, match="endless does not end within"):
        programs.measured("endless", ["sleep", "60"], [])


def test_each_client_s_own_figures_are_read() -> None:
    figures = json.dumps({"runs": [{"loading": {"latency": {"count": 4711}}}]}, indent=2)
    assert client("neap-load, depth 4").count(f"a table\n{figures}\n") == 4711
    assert client("mutilate, depth 4").count("#type avg\nTotal QPS = 12345.6 (37037 / 3.0s)\n\nMisses = 0 (0.0%)\n") == 37037
    assert client("memcaslap (libmemcached)").count("cmd_get: 30\ncmd_set: 12\nget_misses: 0\n") == 42
    assert client("memtier_benchmark, depth 4").count("Type  Ops/sec\nTotals  1000.50  0 0\n") == 3001.5


def test_the_middle_round_is_shown_and_the_missing_are_named() -> None:
    rounds = [Round(100, 1.0, 1.0), Round(300, 1.0, 0.5), Round(200, 1.0, 0.5)]
    rows = clients._rows("a", None, rounds) + clients._rows("b", "no package of it", [])
    assert [row.value for row in rows] == [200, 0.5, 400, None]
    _, first, second = clients.side_by_side(rows).splitlines()
    assert first.split() == ["a", "200", "0.50", "400"]
    assert second.split(maxsplit=4) == ["b", "-", "-", "-", "no package of it"]


def test_a_client_that_cannot_be_had_does_not_stop_the_other_clients(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking() -> list[str]:
        raise Failure("it cannot be had")

    def one_round(one: clients.Client, _argv: list[str]) -> Round:
        if one.name == "broken":
            raise Failure("it broke")
        return Round(10, 1.0, 0.1)

    some = [
        clients.Client(name, argv, lambda _address: [], lambda _output: 0.0)
        for name, argv in (("good", lambda: ["x"]), ("lacking", lacking), ("broken", lambda: ["x"]))
    ]
    monkeypatch.setattr(clients, "CLIENTS", some)
    monkeypatch.setattr(clients, "_round", one_round)
    monkeypatch.setattr(clients.build, "build_load", lambda: None)
    monkeypatch.setattr(load_accuracy, "rows", lambda: [Row("load.rate.10%", "% missed", 0.5, 1.0)])
    monkeypatch.setattr(bench.run, "require_build_packages", lambda: None)
    assert bench.bench(["load"], as_json=True) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["load.good.each"]["value"] == 100
    assert rows["load.lacking"] == {"name": "load.lacking", "unit": "it cannot be had", "value": None, "target": None}
    assert rows["load.broken"]["unit"] == "it broke"
    assert rows["load.rate.10%"]["target"] == 1.0
    assert bench.bench(["load"], as_json=False) == 0
    table = capsys.readouterr().out
    assert re.search(r"^good +10 ", table, re.MULTILINE) and re.search(r"^load\.rate\.10% +0\.500 +< 1 ", table, re.MULTILINE), table

# SPDX-License-Identifier: BSL-1.0
"""The rows of `./neap bench web`: their loads are those of the scripts, and a peer runs the same load."""

import dataclasses
from pathlib import Path

import pytest

from tools import load
from tools.bench import Benchmark, bench, web
from tools.bench.request import Cost
from tools.bench.rows import Selection
from tools.errors import Failure, UsageError
from tools.model import experiment, linux


def test_each_row_has_a_script_that_is_a_preset() -> None:
    scripts = {path.stem for path in linux.WEB_SCRIPTS.glob("*.js")}
    assert scripts == {*load.PRESETS["webserver"]} - {load.HTTP}
    for row in web.LOADS:
        wanted = row.experiment()
        wanted.check()
        assert row.script in scripts and wanted.load == row.script
        assert (wanted.protocol, wanted.only_load().words()["protocol"]) == ("http", "http")
        # Requests of a connection come before the clients' delayed acknowledgement of 5 ms. That frame costs little beside JSON
        # or a burst of 64 requests, for which Linux needs more time.
        assert row.gap_us < 5000 or row.script == "json" or row.depth > 1


def test_the_peers_load_differs_only_in_its_warm_up_and_memory() -> None:
    for row in web.LOADS:
        ours, theirs = row.experiment(), row.of_linux().experiment()
        assert theirs.warm_up_ms > ours.warm_up_ms
        assert dataclasses.replace(theirs, warm_up_ms=ours.warm_up_ms, memory=ours.memory) == ours


def test_rows_stand_beside_their_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    neap, node = experiment.System(Path("neap")), experiment.System(Path("linux"), Path("node"), server=("neap.run=web",))
    monkeypatch.setattr(web, "_system", lambda _script, _image, _folder: neap)
    monkeypatch.setattr(web.modelled, "prepare", lambda *_: None)
    monkeypatch.setattr(web.modelled, "run_each", lambda runs, run: [run(each) for each in runs])
    monkeypatch.setattr(web.linux, "web_image", lambda: (node.kernel, node.initramfs))
    costs = {False: 7000.0, True: 90_000.0}
    monkeypatch.setattr(web.request, "cost", lambda _load, system, _layers: Cost(costs[system.is_linux], 0, 10, 1.0, None))
    alone = web.rows(Selection(["hello.*"]))
    assert [(row.name, row.value, row.target, row.peer) for row in alone] == [
        ("web.hello.1", 7000, 8000, None),
        ("web.hello.16", 7000, None, None),
    ]
    (row,) = web.rows(Selection(["depth_4"], with_linux=True))
    assert (row.value, row.peer, row.peer_is) == (7000, 90_000, web.LINUX)
    monkeypatch.setattr(web.request, "cost", lambda _load, _system, _layers: Cost(7000, 0, 1000, 1000.0, None))
    with pytest.raises(Failure, match="hello.1: the server cannot keep up with a burst every 250 us"):
        web.rows(Selection(["hello.1"]))
    with pytest.raises(UsageError, match="no row is named get"):
        web.rows(Selection(["get"]))


def test_linux_is_an_option_of_two_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.run.require_build_packages", lambda: None)
    asked: list[Selection] = []
    one = Benchmark(lambda selection: asked.append(selection) or [], has_selection=True)
    monkeypatch.setattr("tools.bench.BENCHMARKS", {"web": one, "request": one, "network": one})
    for name in ("web", "request"):
        assert bench([name], as_json=False, with_linux=True) == 0
    assert [selection.with_linux for selection in asked] == [True, True]
    with pytest.raises(UsageError, match="--linux: network has no such choice"):
        bench(["network"], as_json=False, with_linux=True)

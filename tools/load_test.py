# SPDX-License-Identifier: BSL-1.0
"""`./neap load` makes the load generator's arguments, and `./neap run --load` refuses invalid arguments."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import build, load, run
from tools.cli import main
from tools.errors import Failure, UsageError
from tools.log.fake_machine import FakeMachine

PROGRAM = Path("/there/neap-load")


class Became(Exception):
    """Raised in place of exec, with the arguments of the program that would replace this process."""


@pytest.fixture(autouse=True)
def replaced(runs: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    def become(program: Path, words: list[str]) -> None:
        assert str(program) == words[0] == str(PROGRAM)
        raise Became(*words[1:])

    monkeypatch.setattr(build, "build_load", lambda: PROGRAM)
    monkeypatch.setattr(load.packages, "require", lambda *_groups: None)
    monkeypatch.setattr(os, "execv", become)


def becomes(*words: str) -> list[str]:
    with pytest.raises(Became) as caught:
        load.load(words)
    return list(caught.value.args)


def test_words_about_other_machines_are_passed_on() -> None:
    for words in (["10.0.0.7:11211", "--rate", "5"], ["--help"], [], ["agent", "0.0.0.0:7000"], ["--rate", "memcached", "10.0.0.7"]):
        assert becomes(*words) == words


def test_a_name_becomes_the_address_of_a_running_application(runs: Callable[..., None]) -> None:
    runs("memcached", 7, {11211: 2007})
    assert becomes("memcached", "--rate", "5") == ["127.0.0.1:2007", "--rate", "5"]
    assert becomes("--rate", "5", "memcached") == ["--rate", "5", "127.0.0.1:2007"]


def test_pid_chooses_among_several_runs_of_a_name(runs: Callable[..., None]) -> None:
    runs("memcached", 7, {11211: 2007})
    runs("memcached", 8, {11211: 2008})
    with pytest.raises(Failure, match="memcached runs 2 times on this host"):
        load.load(["memcached"])
    assert becomes("memcached", "--pid", "8", "-q") == ["127.0.0.1:2008", "-q"]
    assert becomes("memcached", "--pid=7") == ["127.0.0.1:2007"]
    for words in (["memcached", "--pid"], ["memcached", "--pid", "x"], ["10.0.0.7", "--pid", "8"]):
        with pytest.raises(UsageError, match="--pid"):
            load.load(words)


def test_an_application_that_does_not_run_or_answer_is_one_line(runs: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "memcached"]) == 1
    assert capsys.readouterr().err == "neap: error: no memcached runs on this host\nneap: ./neap run memcached starts one\n"
    runs("memcached", 7, {5002: 2007}, 2007)
    with pytest.raises(Failure, match="none of its ports leads there"):
        load.load(["memcached"])
    runs("store", 8, {1: 2008, 2: 2009})
    with pytest.raises(Failure, match="which of its ports is meant is not clear"):
        load.load(["store"])


def test_the_log_is_started_and_stopped_unless_one_is_on(runs: Callable[..., None]) -> None:
    for pid, logging in ((7, "off"), (8, "on")):
        with FakeMachine([], answers={"status": lambda told=logging: f"ok application=memcached; logging={told}; lines=0"}) as fake:
            port = fake.address[1]
            runs("memcached", pid, {11211: 2000 + pid, 5002: port}, port)
            address = f"127.0.0.1:{2000 + pid}"
            control = ["--control", f"127.0.0.1:{port}", *(["--log-from", "never"] if logging == "on" else [])]
            assert becomes("memcached", "--pid", str(pid)) == [address, *control]
            earlier = ["--log-from", "preload"]
            if logging == "off":
                assert becomes("memcached", "--pid", str(pid), *earlier) == [address, *earlier, *control]
            else:
                with pytest.raises(UsageError, match="--log-from preload: a run of its log is on"):
                    load.load(["memcached", "--pid", str(pid), *earlier])
                never = ["--log-from", "never"]
                assert becomes("memcached", "--pid", str(pid), *never) == [address, *never, *control[:2]]
            asked = len(fake.requests)
            own = ["--control", "10.0.0.7:5002"]
            for words, become in ((["--no-control"], []), (["--help"], ["--help"]), (own, own)):
                assert becomes("memcached", "--pid", str(pid), *words) == [address, *become]
            assert len(fake.requests) == asked, "it is not asked without need"


def test_a_web_server_is_loaded_by_http(runs: Callable[..., None]) -> None:
    runs("webserver", 7, {5002: 2006, 8080: 2007})
    for words, expected in (
        (["webserver", "--preset", "study"], ["127.0.0.1:2007", "--preset", "study", "--protocol", "http"]),
        (["webserver", "--protocol", "http"], ["127.0.0.1:2007", "--protocol", "http"]),
        (["http"], ["127.0.0.1:2007", "--protocol", "http"]),
        (["http", "--rate", "5"], ["127.0.0.1:2007", "--rate", "5", "--protocol", "http"]),
        (["http", "webserver", "-q"], ["127.0.0.1:2007", "-q", "--protocol", "http"]),
        (["http", "10.0.0.7:80", "-q"], ["10.0.0.7:80", "-q", "--protocol", "http"]),
        (["http://10.0.0.7/a"], ["http://10.0.0.7/a"]),
    ):
        assert becomes(*words) == expected


def test_presets_are_those_of_the_application() -> None:
    assert {load.Offer(preset).protocol for preset in load.PRESETS["webserver"]} == {"http"}
    assert {load.Offer(preset).protocol for preset in load.PRESETS["memcached"]} == {"text"}
    load.Offer("study").check("webserver")
    load.Offer("etc").check()
    for preset, application in (("etc", "webserver"), ("study", "memcached")):
        with pytest.raises(UsageError, match=f"not '{preset}'"):
            load.Offer(preset).check(application)


def test_a_control_with_a_token_is_unlocked_by_the_named_file(runs: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with FakeMachine([], token="secret", answers={"status": lambda: "ok logging=off"}) as fake:
        port = fake.address[1]
        runs("memcached", 7, {11211: 2007, 5002: port}, port)
        with pytest.raises(Failure, match="token needed") as caught:
            load.load(["memcached"])
        assert "--control-token-file" in caught.value.hint
        own = ["--control-token-file", str(tmp_path / "token")]
        assert becomes("memcached", *own) == ["127.0.0.1:2007", *own, "--control", f"127.0.0.1:{port}"]


def test_a_load_on_another_application_is_refused_before_the_build() -> None:
    offer = load.Offer("etc")
    for options, complaint in (
        (run.Options("hello", load=offer), "only memcached, tpcc and webserver accept it, hello does not"),
        (run.Options("memcached", debugger=True, load=offer), "does not answer"),
        (run.Options("memcached", vfio="0000:03:00.0", load=offer), "no port of this host leads to a real card"),
        (run.Options("memcached", load=load.Offer("mixed")), "--load takes etc, usr, fixed, not 'mixed'"),
        (run.Options("memcached", load=load.Offer("study")), "--load takes etc, usr, fixed, not 'study'"),
        (run.Options("memcached", load=load.Offer("etc", rate=0)), "--rate takes a number above 0"),
        (run.Options("memcached", load=load.Offer("etc", seconds=float("nan"))), "--load-seconds takes a number above 0"),
    ):
        with pytest.raises(UsageError, match=complaint):
            run.run(options)


def test_figures_are_not_written_over_others(tmp_path: Path) -> None:
    load.Offer("etc", out=tmp_path).check()
    load.Offer("etc", out=tmp_path / "new").check()
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(UsageError, match="is not an empty folder"):
            load.Offer("etc", out=place).check()


def test_options_of_load_need_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "memcached", "--rate", "5"]) == 2
    assert "belong to --load" in capsys.readouterr().err

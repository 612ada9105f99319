# SPDX-License-Identifier: BSL-1.0
"""`ctl`, `top`, and the search for the machine that the user means."""

import contextlib
import http.server
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools import control_client, ctl, machine, machine_registry, run, run_directory, top
from tools.errors import Failure, UsageError
from tools.log.fake_machine import FakeMachine

Runs = Callable[[int, int | None], tuple[Path, int]]


@pytest.fixture(autouse=True)
def memcached(runs: Callable[..., tuple[Path, int]]) -> Runs:
    """Returns a function that makes `./neap` believe that memcached runs, with a control port or without."""
    return lambda pid, control_port: runs("memcached", pid, {11211: 2000 + pid, 5002: control_port or 0}, control_port)


def test_a_running_application_is_found_by_its_name(memcached: Runs) -> None:
    memcached(7, 5002)
    assert machine_registry.find_control("memcached") == ("127.0.0.1", 5002)
    assert machine_registry.machines(run_directory.run_base(), run_directory.RUN_PREFIX)[0].ports == {11211: 2007, 5002: 5002}


def test_without_a_run_there_is_one_error_with_a_hint(memcached: Runs) -> None:
    with pytest.raises(Failure, match="no memcached runs on this host") as caught:
        machine_registry.find_control("memcached")
    assert caught.value.hint == "./neap run memcached starts one"


def test_several_runs_of_a_name_are_listed_and_pid_chooses(memcached: Runs) -> None:
    memcached(7, 5002)
    memcached(8, 40000)
    with pytest.raises(Failure, match="memcached runs 2 times on this host") as caught:
        machine_registry.find_control("memcached")
    assert caught.value.details == [f"--pid {pid}: memcached, control on 127.0.0.1:{port}" for pid, port in ((7, 5002), (8, 40000))]
    assert machine_registry.find_control("memcached", 8) == ("127.0.0.1", 40000)
    with pytest.raises(Failure, match="no memcached runs as process 9"):
        machine_registry.find_control("memcached", 9)


def test_a_run_that_was_killed_or_is_starting_is_not_listed(memcached: Runs) -> None:
    os.close(memcached(7, 5002)[1])
    (memcached(8, 5002)[0] / machine_registry.DESCRIPTION).write_text("{")
    assert machine_registry.machines(run_directory.run_base(), run_directory.RUN_PREFIX) == []


def test_a_run_without_control_says_so(memcached: Runs) -> None:
    memcached(7, None)
    with pytest.raises(Failure, match="was started without control"):
        machine_registry.find_control("memcached")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("server", ("server", 5002)),
        ("10.0.0.7", ("10.0.0.7", 5002)),
        ("10.0.0.7:6000", ("10.0.0.7", 6000)),
        ("[fe80::1]:77", ("fe80::1", 77)),
        ("[::1]", ("::1", 5002)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert machine_registry.find_control(text) == address


@pytest.mark.parametrize("text", ["", ":5002", "host:", "host:0", "host:65536", "a b", "::1", "host:12:3"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"neither an application nor HOST\[:PORT\]"):
        machine_registry.parse_address(text)


def test_the_control_port_is_forwarded_to_itself_or_a_free_one() -> None:
    assert run.control_port("hello", []) is None
    assert [run.control_port("memcached", words) for words in ([], ["memory=1G", "control=6000"], ["control=off"])] == [5002, 6000, None]
    port = machine.free_port()
    assert run.control_forward(port, [(11211, 11211)]) == [(port, port)]
    ((host, guest),) = run.control_forward(port, [(port, 11211)])
    assert guest == port and host != port
    assert run.control_forward(port, [(2000, port)]) == [] and run.control_forward(None, []) == []


def ask(machine_: FakeMachine, *lines: str, token_file: str | None = None, as_json: bool = False) -> int:
    return ctl.ctl(f"127.0.0.1:{machine_.address[1]}", lines, pid=None, token_file=token_file, as_json=as_json)


ANSWERS = {"status": lambda: "ok run=1; logging=on", "itr": lambda: "ok itr=8us generation=5 cores=0-3"}


def test_answers_are_printed_in_order_after_their_questions_and_an_error_is_the_status(capsys) -> None:
    with FakeMachine([], answers=ANSWERS) as fake:
        assert ask(fake, "itr,8us", "status") == 0
        printed = ["> itr,8us", "ok itr=8us generation=5 cores=0-3", "> status", "ok run=1; logging=on"]
        assert capsys.readouterr().out.splitlines() == printed
        assert ask(fake, "walk", "status") == 1
        assert capsys.readouterr().out.splitlines() == ["> walk", "error: no command walk", "> status", "ok run=1; logging=on"]
        assert (ask(fake, "status"), capsys.readouterr().out) == (0, "ok run=1; logging=on\n")
        assert ask(fake, "walk", "status", as_json=True) == 1
        rows = json.loads(capsys.readouterr().out)
    assert [(row["line"], row["ok"]) for row in rows] == [("walk", False), ("status", True)]


def test_text_in_one_answer_line_is_printed_as_separate_lines(capsys) -> None:
    pieces = [r"ok first=7; next=30; end=61; text=neap: hello\x3b \\n is no line\n\xc3end\n", r"ok first=30; next=61; end=61; text=last\n"]
    panic = r"ok boot=2; text=panic on core 0: x\n"
    with FakeMachine([], answers={"dmesg": lambda: pieces[min(len(fake.requests) - 1, 1)], "last_panic": lambda: panic}) as fake:
        assert (ask(fake, "dmesg,7"), capsys.readouterr().out) == (0, "neap: hello; \\n is no line\n\u00c3end\nlast\n")
        assert fake.requests == ["dmesg,7", "dmesg,30"]
        assert (ask(fake, "last_panic"), capsys.readouterr().out) == (0, "panic on core 0: x\n")
        assert ask(fake, "last_panic", as_json=True) == 0
        assert json.loads(capsys.readouterr().out)[0]["answer"] == panic
    with FakeMachine([], answers={"dmesg": lambda: "error: no such thing"}) as fake:
        assert (ask(fake, "dmesg"), capsys.readouterr().out) == (1, "error: no such thing\n")


def test_a_token_comes_from_a_file_and_is_never_shown(tmp_path: Path, capsys) -> None:
    (tmp_path / "token").write_text("s3cret\nsecond line\n")
    (tmp_path / "wrong").write_text("oth3r\n")
    with FakeMachine([], answers=ANSWERS, token="s3cret") as fake:
        assert (ask(fake, "status"), ask(fake, "status", token_file=str(tmp_path / "token"))) == (1, 0)
        with pytest.raises(control_client.Refused) as caught:
            ask(fake, "status", token_file=str(tmp_path / "wrong"))
        assert ask(fake, "token,s3cret", "status", as_json=True) == 0
        assert ask(fake, "token,s3cret", "status") == 0
    output = capsys.readouterr()
    assert output.out.splitlines()[-4] == "> token,..."
    assert "oth3r" not in caught.value.report() and "s3cret" not in output.out + output.err
    for content in (b"", b"\n", b"a,b\n", b"\xff\n"):
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(Failure, match="holds no token in its first line"):
            control_client.read_token(str(tmp_path / "token"))
    with pytest.raises(Failure, match="cannot read the token file"):
        control_client.read_token(str(tmp_path / "none"))


@pytest.fixture
def peer() -> Iterator[Callable[[bytes, bool], int]]:
    """Returns a function that starts a server on a port, which it returns. The server sends `answer` at the end of the first line, or at
    once if it greets, and waits then for the client's end."""
    servers: list[socket.socket] = []

    def start(answer: bytes, greets: bool) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as lines:
                    if not greets:
                        lines.readline()
                    connection.sendall(answer)
                    lines.readline()

        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1]

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("answer", "greets", "kind"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", False, "an HTTP server answers there"),
        (b"ERROR\r\n", False, "a memcached answers there"),
        (b"STAT pid 1\r\nEND\r\n", False, "a memcached answers there"),
        (b"SSH-2.0-OpenSSH_10.0p2 Debian-7\r\n", True, "an SSH server answers there"),
        (b"220 mail.example ESMTP\r\n", True, "a mail or FTP server answers there"),
        (b"okay\x1b[2J\n", False, r"it answers 'okay\\x1b\[2J'"),
    ],
)
def test_another_server_is_named(peer: Callable[[bytes, bool], int], answer: bytes, greets: bool, kind: str) -> None:
    port = peer(answer, greets)
    with pytest.raises(control_client.NotControl, match=f"^127.0.0.1:{port} is no control server: {kind}") as caught:
        ctl.ctl(f"127.0.0.1:{port}", ["status"], pid=None, token_file=None, as_json=False)
    assert caught.value.hint == control_client.WHERE_CONTROL_IS


class EbbrtMachine(FakeMachine):
    """Answers as a machine with `dialect=ebbrt`: `rdtsc,0` has no line feed, and `start,0` no answer."""

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                self.requests.append(line.decode().strip())
                connection.sendall(
                    {
                        b"status\n": b"ok application=x; dialect=ebbrt\n",
                        b"rdtsc,0\n": b"17 45",
                        b"getcounters,0\n": b"0 1 2\n1 3 4\n",
                        b"rapl,1\n": b"error: power_limit: no\n",
                        b"itr,8\n": b"ok itr=8us\n",
                    }.get(line, b"")
                )


def test_a_machine_in_ebbrts_dialect_is_no_foreign_server(capsys: pytest.CaptureFixture[str]) -> None:
    with EbbrtMachine([]) as fake:
        target = f"127.0.0.1:{fake.address[1]}"
        assert ctl.ctl(target, ["start,0", "rdtsc,0", "itr,8", "getcounters,0"], pid=None, token_file=None, as_json=False) == 0
        assert capsys.readouterr().out.splitlines() == [
            "> start,0",
            ctl.EBBRT_SILENCE,
            "> rdtsc,0",
            "17 45",
            "> itr,8",
            "ok itr=8us",
            "> getcounters,0",
            "0 1 2",
            "1 3 4",
        ]
        assert ctl.ctl(target, ["stop,0", "rapl,1"], pid=None, token_file=None, as_json=True) == 1
        assert json.loads(capsys.readouterr().out) == [
            {"line": "stop,0", "ok": True, "answer": ""},
            {"line": "rapl,1", "ok": False, "answer": "error: power_limit: no\n"},
        ]
    # Other machines get such lines on the one connection, as all lines.
    with FakeMachine([], answers={"status": lambda: "ok application=x; dialect=none", "rx_usecs": lambda: "ok itr=8us"}) as fake:
        assert ctl.ctl(f"127.0.0.1:{fake.address[1]}", ["rx_usecs,8"], pid=None, token_file=None, as_json=False) == 0
        assert capsys.readouterr().out == "ok itr=8us\n"
    assert not ctl.EBBRT_LINE.match("start,10s") and not ctl.EBBRT_LINE.match("stop") and not ctl.EBBRT_LINE.match("itr,8")


def test_pythons_own_http_server_is_named() -> None:
    # It takes a line of one word for HTTP 0.9, and answers with a page without a status line.
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        server.RequestHandlerClass.log_message = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(control_client.NotControl, match="an HTTP server answers there"):
            ctl.ctl(f"127.0.0.1:{server.server_port}", ["status"], pid=None, token_file=None, as_json=False)


def test_a_server_without_line_ends_is_named_when_it_stops(peer: Callable[[bytes, bool], int]) -> None:
    alert = bytes([0x15, 3, 1, 0, 2, 2, 70])
    named = pytest.raises(control_client.NotControl, match="a TLS server answers there")
    with control_client.Control("127.0.0.1", peer(alert, False), answer_seconds=0.2) as connection, named:
        connection.ask("status")


def test_a_silent_peer_is_one_error_with_the_port_of_control(peer: Callable[[bytes, bool], int]) -> None:
    named = pytest.raises(control_client.Lost, match=r"sent nothing for 0.2 s \(a machine serves control on port 5002")
    with control_client.Control("127.0.0.1", peer(b"", False), answer_seconds=0.2) as connection, named:
        connection.ask("status")


def test_a_port_without_a_server_or_that_closes_is_one_error() -> None:
    with pytest.raises(control_client.Lost, match="nothing answers on 127.0.0.1"):
        ctl.ctl(f"127.0.0.1:{machine.free_port()}", ["status"], pid=None, token_file=None, as_json=False)
    with FakeMachine([]) as fake:
        fake._serve = lambda connection: connection.close()
        with pytest.raises(control_client.Lost, match="ended the connection"):
            ask(fake, "status")
    # A host name that never resolves (RFC 2606) gives the same error as a misspelt application.
    with pytest.raises(control_client.Lost, match="no host is named so, and no application that runs here"):
        ctl.ctl("memcachedd.invalid", ["status"], pid=None, token_file=None, as_json=False)


class Counting:
    """Answers the command `cores`. In each second of the machine's clock, a core has 500 interrupts and sleeps for half a second."""

    def __init__(self) -> None:
        self.second = 0
        self.guard = threading.Lock()

    def __call__(self) -> str:
        with self.guard:
            self.second += 1
            t = self.second
        rows = [
            f"{core} idle=halt itr_us=8 poll_budget_us=0 pstate=0x0 power_limit_mw=0 turbo=unknown generation=1 interrupts={500 * t} "
            f"records={600 * t} unwritten=0 rx_frames={1000 * t} rx_bytes={66000 * t} tx_frames={10 * t} tx_bytes={1000 * t} "
            f"sleeps={400 * t} asleep_ns={500_000_000 * t} now_ns={1_000_000_000 * t}"
            for core in (0, 1)
        ]
        return "ok " + "; ".join(rows)


def test_top_shows_differences_over_the_machines_own_clock(capsys) -> None:
    with FakeMachine([], answers={"cores": Counting()}) as fake:
        target = f"127.0.0.1:{fake.address[1]}"
        assert top.top(target, pid=None, token_file=None, seconds=0.1, once=True, as_json=True) == 0
        row = json.loads(capsys.readouterr().out)["cores"][1]
        assert (row["core"], row["interrupts_per_second"], row["rx_bytes_per_second"], row["asleep_share"]) == (1, 500, 66000, 0.5)
        assert (row["idle"], row["itr_us"], row["seconds"]) == ("halt", 8, 1.0)
        assert top.top(target, pid=None, token_file=None, seconds=0.1, once=True, as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "each look wakes the core" in lines[0] and "\x1b" not in "".join(lines)
    assert lines[2].split()[:8] == ["0", "500", "1,000", "66.0", "10", "1.0", "400", "50.0%"]


def test_a_counter_that_the_machine_does_not_give_is_not_zero() -> None:
    rows = top.parse("ok 0 idle=poll now_ns=5", "a")
    row = top.rates(rows[0], top.parse("ok 0 idle=poll now_ns=9", "a")[0])
    assert row["interrupts_per_second"] is None and row["asleep_share"] is None
    assert top.table("a", [row], 1)[2].split()[:3] == ["0", "-", "-"]


def test_a_core_without_any_change_is_not_reported_as_awake() -> None:
    """An older image counts a sleep at its end, so no counter includes a sleep in progress."""
    still = "ok 0 interrupts=5 records=5 sleeps=7 asleep_ns=100 now_ns={}"
    before, now = (top.parse(still.format(moment), "a")[0] for moment in (1000, 2000))
    assert top.rates(before, now)["asleep_share"] is None
    assert top.rates(before, {**now, "interrupts": 6})["asleep_share"] == 0


@pytest.mark.parametrize("answer", ["error: no", "ok", "ok x", "ok 0", "ok 0 now_ns", "ok 0 now_ns=x", "ok a now_ns=1"])
def test_an_invalid_answer_is_one_error(answer: str) -> None:
    with pytest.raises(Failure):
        top.parse(answer, "a machine")

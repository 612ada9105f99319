# SPDX-License-Identifier: BSL-1.0
"""Text of other programs is limited in size, and printed without effect on the terminal."""

import io
import socket
import tarfile
import threading
import time
from pathlib import Path

import pytest

from tools import boot_serve, control_client, ctl, exchange, foreign, progress, top
from tools.errors import Failure
from tools.log.fake_machine import FakeMachine


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\r\x00\x7f\x9b", "a\\r\\x00\\x7f\\x9b"),
        ("\u202eabc\ud800", "\\u202eabc\\ud800"),
        ("jürgen", "jürgen"),
        ("x" * 3000, "x" * 2000 + "..."),
    ],
)
def test_shown_text_has_no_control_characters(text: str, expected: str) -> None:
    assert foreign.shown(text) == expected


def test_an_error_and_progress_escape_what_they_quote(capsys: pytest.CaptureFixture[str]) -> None:
    report = Failure("a \x1b[2J b", "\x07 hint", ["\x9b31m detail"]).report()
    progress.say("one\n\x1b]0;title\x07")
    progress.show_status("\x1b[H")
    assert all(line.isprintable() for line in (report + capsys.readouterr().err).splitlines())


@pytest.mark.parametrize("text", ["1e999", "NaN", "-Infinity", "9" * 21, "[" * 5000, b"\xff", "{"])
def test_json_with_impossible_values_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        foreign.parse_json(text)


@pytest.mark.parametrize("text", ["", "-1", "٣", "9" * 3000, str(1 << 64), "1_0", " 1"])
def test_a_decimal_number_has_ascii_digits_and_an_end(text: str) -> None:
    with pytest.raises(ValueError):
        foreign.decimal(text)


def test_answers_of_control_are_printed_escaped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"status": lambda: "ok \x1b[2J\x9b", "dmesg": lambda: "ok first=0; next=1; end=1; text=a\\x1b[31m\\nb\\n"}
    with FakeMachine([], answers=answers) as fake:
        monkeypatch.setattr(ctl, "find_control", lambda *_: fake.address)
        assert ctl.ctl("x", ["status", "dmesg"], pid=None, token_file=None, as_json=False) == 0
    assert capsys.readouterr().out == "> status\nok \\x1b[2J\\x9b\n> dmesg\na\\x1b[31m\nb\n"


@pytest.mark.parametrize(
    "row", ["0 now_ns=" + "9" * 3000, "٣ now_ns=1", "256 now_ns=1", "0 now_ns=1 idle=\x1b", "0 now_ns=1 rx_bytes=x", "0 now_ns=1 core=x"]
)
def test_impossible_numbers_of_a_machine_are_refused(row: str) -> None:
    with pytest.raises(Failure, match="does not understand"):
        top.parse(f"ok {row}", "a machine")


def _dripping(seconds: float, piece: bytes) -> tuple[str, int]:
    """Returns a peer that sends a few bytes again and again."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                try:
                    connection.sendall(piece)
                except OSError:
                    return
                time.sleep(0.02)

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[:2]


def test_a_peer_that_sends_single_bytes_slowly_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_client, "SLOWEST_BYTES_PER_SECOND", 100_000)
    start = time.monotonic()
    too_slowly = pytest.raises(control_client.Lost, match="too slowly")
    with control_client.Control(*_dripping(20, b"x"), answer_seconds=0.3) as connection, too_slowly:
        connection.ask("status")
    with control_client.Control(*_dripping(20, b"x")) as connection, pytest.raises(control_client.Lost, match="too slowly"):
        connection.read(4096, 0.3)
    assert time.monotonic() - start < 10


def test_one_client_cannot_take_all_connections_of_the_boot_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_serve, "HTTP_CONNECTIONS_OF_ONE", 3)
    (tmp_path / "file").write_bytes(b"content")
    server = boot_serve._start_http(tmp_path, "127.0.0.1", 0)
    try:
        held = [socket.create_connection(server.server_address[:2], 10) for _ in range(3)]
        deadline = time.monotonic() + 10
        while server._open.total() < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        with socket.create_connection(server.server_address[:2], 10) as refused:
            assert refused.recv(1) == b"", "closed at once"
        for one in held:
            one.close()
        while server._open.total() and time.monotonic() < deadline:
            time.sleep(0.01)
        with socket.create_connection(server.server_address[:2], 10) as again, again.makefile("rb") as answer:
            again.sendall(b"GET /file HTTP/1.0\r\n\r\n")
            assert answer.read().endswith(b"\r\n\r\ncontent")
    finally:
        server.shutdown()
        server.server_close()


def _archive(members: list[tuple[str, str | bytes]]) -> tarfile.TarFile:
    """Returns an archive of links (members given as text) and files (members given as bytes)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(f"prefix/{name}")
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    data.seek(0)
    return tarfile.open(fileobj=data)


def test_an_import_writes_through_no_link_of_its_archive(tmp_path: Path) -> None:
    """Computed from the names alone, both links point into the prefix. But `a/b/c` leads to the prefix itself, so `a/b/c/out` is written as
    `out`, and its target is outside of the prefix."""
    prefix = tmp_path / "x/y/prefix"
    prefix.mkdir(parents=True)
    links = {"a/b/c": "../..", "a/b/c/out": "../../../victim"}
    broken = Failure("broken")
    (tmp_path / "victim").mkdir()
    archive = _archive([*links.items(), ("a/b/c/out/evil", b"evil")])
    files = {"a/b/c/out/evil": "4d2fd6e2ce4a0ed7d8e8d6a7d8d9bd4b"}
    with pytest.raises(Failure, match="broken"):
        for member in archive:
            exchange._take(archive, member, files, links, prefix, broken)
    assert not list((tmp_path / "victim").iterdir()) and not (prefix / "out").is_symlink()

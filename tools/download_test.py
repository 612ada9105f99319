# SPDX-License-Identifier: BSL-1.0
"""Tests of downloads, from a web server on loopback that breaks, stalls and lies."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import download
from tools.conftest import on_small_disk
from tools.errors import Failure
from tools.fake_web import FakeWeb, Page

DATA = os.urandom(300_000)
TAGGED = {"ETag": '"one"'}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWeb]:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
    fake = FakeWeb()
    yield fake
    fake.close()


@pytest.fixture
def into(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in/file"


def fetch(web: FakeWeb, into: Path, bytes_max: int = 1_000_000) -> list[str]:
    """Downloads /file. Returns the Range headers of the requests."""
    web.requests.clear()
    download.fetch(f"{web.url}/file", into, bytes_max)
    return [asked for _, asked in web.requests]


def test_a_file_is_downloaded_and_nothing_else_stays(web: FakeWeb, into: Path) -> None:
    web.pages["/file"] = Page(DATA, TAGGED)
    assert fetch(web, into) == [""]
    assert into.read_bytes() == DATA
    assert list(into.parent.iterdir()) == [into]


@pytest.mark.parametrize("headers", [TAGGED, {"Last-Modified": "Sat, 28 Nov 2026 10:00:00 GMT"}])
def test_a_broken_connection_is_resumed(web: FakeWeb, into: Path, headers: dict[str, str]) -> None:
    web.pages["/file"] = Page(DATA, headers, cuts=[1000, 2000])
    assert fetch(web, into) == ["", "bytes=1000-", "bytes=3000-"]
    assert into.read_bytes() == DATA


def test_a_server_that_sends_single_bytes_is_left(web: FakeWeb, into: Path) -> None:
    web.pages["/file"] = Page(DATA, TAGGED, cuts=[1] * 100)
    with pytest.raises(Failure, match=f"ended after {download.ATTEMPTS_MAX} of 300000 bytes"):
        fetch(web, into)


def test_without_a_validator_the_download_begins_again(web: FakeWeb, into: Path) -> None:
    web.pages["/file"] = Page(DATA, {"ETag": 'W/"weak"'}, cuts=[1000])
    assert fetch(web, into) == ["", ""]
    assert into.read_bytes() == DATA


def test_a_later_run_resumes_and_notices_another_file(web: FakeWeb, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "ATTEMPTS_MAX", 1)
    web.pages["/file"] = Page(DATA, TAGGED, cuts=[1000])
    with pytest.raises(Failure, match="the connection ended after 1000 of 300000 bytes"):
        fetch(web, into)
    web.pages["/file"] = Page(DATA, TAGGED, cuts=[500])
    with pytest.raises(Failure, match="ended after 1500 of"):
        fetch(web, into)
    web.pages["/file"] = Page(DATA[::-1], {"ETag": '"two"'})
    assert fetch(web, into) == ["bytes=1500-"]
    assert into.read_bytes() == DATA[::-1]


def test_a_partial_file_that_is_longer_than_the_file_begins_again(web: FakeWeb, into: Path) -> None:
    web.pages["/file"] = Page(DATA, TAGGED, answers=[416])
    into.with_name("file.partial").write_bytes(b"x" * 400_000)
    into.with_name("file.partial.json").write_text(f'{{"url": "{web.url}/file", "validator": "\\"one\\""}}')
    assert fetch(web, into) == ["bytes=400000-", ""]
    assert into.read_bytes() == DATA


@pytest.mark.parametrize("states_length", [True, False])
def test_a_file_over_the_limit_is_refused(web: FakeWeb, into: Path, states_length: bool) -> None:
    web.pages["/file"] = Page(DATA, TAGGED, states_length=states_length)
    with pytest.raises(Failure, match="more than"):
        fetch(web, into, 299_999)
    assert not list(into.parent.iterdir())
    assert len(web.requests) == 1
    fetch(web, into, 300_000)


def test_a_file_without_a_stated_length_is_downloaded(web: FakeWeb, into: Path) -> None:
    web.pages["/file"] = Page(DATA, states_length=False)
    fetch(web, into)
    assert into.read_bytes() == DATA


def test_a_missing_file_is_named_at_once(web: FakeWeb, into: Path) -> None:
    with pytest.raises(download.Missing, match="file: the server has no such file"):
        fetch(web, into)
    assert len(web.requests) == 1


def test_a_refusal_is_final_and_a_busy_server_is_asked_again(web: FakeWeb, into: Path) -> None:
    web.pages["/file"] = Page(DATA, answers=[403])
    with pytest.raises(Failure, match="the server answered 403 Forbidden"):
        fetch(web, into)
    web.pages["/file"] = Page(DATA, answers=[503] * (download.ATTEMPTS_MAX - 1))
    assert len(fetch(web, into)) == download.ATTEMPTS_MAX
    web.pages["/file"] = Page(DATA, answers=[503] * download.ATTEMPTS_MAX)
    with pytest.raises(Failure, match="cannot download file: the server answered 503"):
        fetch(web, into)


def test_a_server_that_does_not_answer_is_left(web: FakeWeb, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "READ_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(download, "ATTEMPTS_MAX", 1)
    web.pages["/file"] = Page(DATA, TAGGED, stalls=True)
    with pytest.raises(Failure, match="no answer within"):
        fetch(web, into)
    web.close()
    with pytest.raises(Failure, match="Connection refused"):
        download.fetch(f"{web.url}/file", into, 1)


def test_a_slow_server_is_left() -> None:
    now = [0.0]
    meter = download.Meter("file", 10**9, lambda: now[0])
    meter.update(0)
    for _ in range(5):
        now[0] += download.PACE_WINDOW_SECONDS
        meter.update(round(now[0] * download.SLOWEST_BYTES_PER_SECOND))
    last = round(now[0] * download.SLOWEST_BYTES_PER_SECOND)
    now[0] += download.PACE_WINDOW_SECONDS
    with pytest.raises(download.Broken, match="the server sent 1000 bytes in 60 s"):
        meter.update(last + 1000)


def test_redirections_are_followed_but_not_to_files_or_without_encryption(web: FakeWeb, into: Path) -> None:
    web.pages["/file"] = Page(headers={"Location": f"{web.url}/other"}, answers=[302])
    web.pages["/other"] = Page(DATA)
    fetch(web, into)
    assert into.read_bytes() == DATA
    web.pages["/file"] = Page(headers={"Location": "file:///etc/passwd"}, answers=[302])
    with pytest.raises(Failure, match="Redirection to url .file:///etc/passwd. is not allowed"):
        fetch(web, into)
    with pytest.raises(Failure, match="not encrypted"):
        download._check_scheme("http://example.org/file", "https://example.org/file")


def test_an_invalid_certificate_is_refused(into: Path, tmp_path: Path) -> None:
    pair = tmp_path / "pair.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subprocess.run([*request, *subject, "-keyout", str(pair), "-out", f"{pair}.crt"], check=True, capture_output=True, timeout=60)
    pair.write_bytes(pair.read_bytes() + Path(f"{pair}.crt").read_bytes())
    web = FakeWeb(pair)
    web.pages["/file"] = Page(DATA)
    try:
        with pytest.raises(Failure, match="the server's certificate is not valid: self-signed certificate"):
            fetch(web, into)
    finally:
        web.close()
    assert web.requests == []


def test_a_full_disk_is_named(web: FakeWeb, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    web.pages["/file"] = Page(DATA, states_length=False)
    web.pages["/stated"] = Page(DATA)
    program = f"""
from pathlib import Path
from tools import download
from tools.errors import Failure
for name in ("file", "stated"):
    try:
        download.fetch("{web.url}/" + name, Path({str(small)!r}) / name, 10**9)
    except Failure as failure:
        print(failure.report())
"""
    done = on_small_disk(small, "128k", program)
    assert "downloading file: no space left on the disk" in done.stdout, done.stdout + done.stderr
    assert "downloading stated needs" in done.stdout

# SPDX-License-Identifier: BSL-1.0
"""Downloads one large file by HTTP or HTTPS, with limits on its size and its time, and resumes after an interruption.

A server may be slow, hostile or wrong, so every limit is checked here: the size before and while the file is written, the time of each
read, and the pace over a minute. HTTPS servers MUST have a valid certificate. A redirection from HTTPS to HTTP is refused.

A download that was interrupted resumes, in the same run or a later one. It resumes only if the server still has the same file (RFC 9110,
13.1.5: If-Range). The description of that file lies beside the partial download. Otherwise the download begins again.
"""

import contextlib
import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tools import cache, progress
from tools.errors import Failure
from tools.foreign import decimal, parse_json, read_bounded

READ_TIMEOUT_SECONDS = 30
# Attempts in a row that add fewer than PROGRESS_BYTES to the file. So a server cannot keep us busy with single bytes.
ATTEMPTS_MAX = 5
PROGRESS_BYTES = 1 << 16
PAUSE_SECONDS = 1.0
PIECE_BYTES = 1 << 18
# A server that sends fewer bytes than this over a window is too slow to wait for.
SLOWEST_BYTES_PER_SECOND = 2_000
PACE_WINDOW_SECONDS = 60
REDIRECTIONS_MAX = 5
DESCRIPTION_BYTES_MAX = 10_000


class Missing(Failure):
    """The server has no such file (status 404 or 410)."""


def is_url(text: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def fetch(url: str, into: Path, bytes_max: int) -> None:
    """Downloads `url` to the file `into`. A partial download `<into>.partial` is resumed, and stays if the download fails half-way. Raises
    Missing if the server has no such file, and Failure for all other problems: the file is larger than `bytes_max`, the server is too slow,
    or ATTEMPTS_MAX attempts failed without progress."""
    _check_scheme(url, "")
    attempt = Attempt(url, into, bytes_max)
    failures = 0
    while True:
        before = attempt.size()
        try:
            with cache.disk_full_named(f"downloading {attempt.shown}"):
                attempt.run()
                attempt.partial.replace(into)
                attempt.description.unlink(missing_ok=True)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in (404, 410):
                attempt.discard()
                raise Missing(f"{attempt.shown}: the server has no such file") from None
            if error.code < 500 and error.code != 416:
                raise Failure(f"{attempt.shown}: the server answered {error.code} {error.reason}") from None
            problem = f"the server answered {error.code} {error.reason}"
            if error.code == 416:  # the partial file does not fit the server's file
                attempt.discard()
        except (http.client.HTTPException, OSError, Broken) as error:
            problem = _reason(error)
        failures = 1 if attempt.size() >= before + PROGRESS_BYTES else failures + 1
        if failures >= ATTEMPTS_MAX:
            raise Failure(f"cannot download {attempt.shown}: {problem}", "start again; a download that was interrupted resumes")
        progress.say(f"neap: {attempt.shown}: {problem}; trying again")
        time.sleep(PAUSE_SECONDS * failures)


class Broken(Exception):
    """The connection ended too early or was too slow. Another attempt may succeed."""


class Attempt:
    """One download with its partial file. `run` is called until it succeeds."""

    def __init__(self, url: str, into: Path, bytes_max: int):
        self.url = url
        self.shown = urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1] or url
        self.partial = into.with_name(f"{into.name}.partial")
        self.description = into.with_name(f"{into.name}.partial.json")
        self._into = into
        self._bytes_max = bytes_max

    def size(self) -> int:
        return self.partial.stat().st_size if self.partial.is_file() else 0

    def discard(self) -> None:
        self.partial.unlink(missing_ok=True)
        self.description.unlink(missing_ok=True)

    def run(self) -> None:
        self._into.parent.mkdir(parents=True, exist_ok=True)
        request = urllib.request.Request(self.url, headers={"User-Agent": "neap", "Accept-Encoding": "identity"})
        known = self._known()
        if known:
            request.add_header("Range", f"bytes={self.size()}-")
            request.add_header("If-Range", known)
        else:
            self.discard()
        opener = urllib.request.build_opener(Redirections())
        with opener.open(request, timeout=READ_TIMEOUT_SECONDS) as answer:
            start = self._start(answer)
            total = self._total(answer, start)
            self._describe(answer)
            self._receive(answer, start, total)

    def _known(self) -> str:
        """Returns the validator of the file of which there is a part; "" if there is none, so that the download begins again."""
        try:
            row = parse_json(read_bounded(self.description, DESCRIPTION_BYTES_MAX))
        except (OSError, ValueError):
            return ""
        validator = row.get("validator") if isinstance(row, dict) and row.get("url") == self.url else ""
        usable = isinstance(validator, str) and validator.isascii() and validator.isprintable()
        return validator if usable and self.size() > 0 else ""

    def _describe(self, answer) -> None:
        """Remembers the file's validator: a strong entity tag or the date of the last change. Without one, nothing can be resumed."""
        tag = answer.headers.get("ETag", "")
        validator = tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")
        self.description.write_text(json.dumps({"url": self.url, "validator": validator[:1000]}))

    def _start(self, answer) -> int:
        """Returns the offset of the first byte of this answer. Status 200 means that the server sends the whole file."""
        if answer.status != 206:
            return 0
        match = re.match(r"bytes (\d{1,18})-", answer.headers.get("Content-Range", ""))
        if not match or int(match[1]) != self.size():
            self.discard()
            raise Broken("the server sent another part than the requested one")
        return int(match[1])

    def _total(self, answer, start: int) -> int | None:
        """Returns the size of the whole file; None if the server does not state it. Raises Failure if it is too large."""
        try:
            length = decimal(answer.headers.get("Content-Length", ""))
        except ValueError:
            return None
        if start + length > self._bytes_max:
            self.discard()
            raise Failure(f"{self.shown} has {start + length} bytes, more than the limit of {self._bytes_max}")
        cache.require_space(self._into.parent, length, f"downloading {self.shown}")
        return start + length

    def _receive(self, answer, start: int, total: int | None) -> None:
        meter = Meter(self.shown, total)
        with open(self.partial, "r+b" if start else "wb") as out:
            out.seek(start)
            out.truncate()
            done = start
            try:
                while piece := answer.read1(PIECE_BYTES):
                    done += len(piece)
                    if done > self._bytes_max:
                        self.discard()
                        raise Failure(f"{self.shown} has more than {self._bytes_max} bytes")
                    out.write(piece)
                    meter.update(done)
            finally:
                progress.show_status("")
        if total is not None and done != total:
            raise Broken(f"the connection ended after {done} of {total} bytes")


class Meter:
    """Shows the progress of a download, and raises Broken if the server is too slow."""

    def __init__(self, name: str, total: int | None, clock: Callable[[], float] = time.monotonic):
        self._name = name
        self._total = total
        self._clock = clock
        self._shown_at = clock()
        self._window_start = clock()
        self._window_bytes: int | None = None

    def update(self, done: int) -> None:
        now = self._clock()
        if self._window_bytes is None:
            self._window_bytes = done
        elapsed = now - self._window_start
        if elapsed >= PACE_WINDOW_SECONDS:
            if (done - self._window_bytes) / elapsed < SLOWEST_BYTES_PER_SECOND:
                raise Broken(f"the server sent {done - self._window_bytes} bytes in {elapsed:.0f} s")
            self._window_start, self._window_bytes = now, done
        interval = progress.TERMINAL_INTERVAL_SECONDS if progress.on_terminal() else progress.QUIET_INTERVAL_SECONDS
        if now - self._shown_at >= interval:
            self._shown_at = now
            share = f" of {self._total / 1e6:.1f} MB, {100 * done // self._total}%" if self._total else " MB"
            progress.show_status(f"neap: downloading {self._name}: {done / 1e6:.1f}{share}")


class Redirections(urllib.request.HTTPRedirectHandler):
    max_redirections = REDIRECTIONS_MAX

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        _check_scheme(newurl, req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_scheme(url: str, before: str) -> None:
    scheme = urllib.parse.urlsplit(url).scheme.lower()
    if scheme not in ("http", "https"):
        raise Failure(f"cannot download {url}: only http, https and file are supported")
    if before.lower().startswith("https:") and scheme != "https":
        raise Failure(f"{before} leads to {url}, which is not encrypted")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError):
        error = error.reason if isinstance(error.reason, Exception) else error
    if isinstance(error, TimeoutError):
        return f"no answer within {READ_TIMEOUT_SECONDS} s"
    with contextlib.suppress(AttributeError):
        if error.verify_message:
            raise Failure(f"the server's certificate is not valid: {error.verify_message}", "nothing was downloaded") from None
    return str(getattr(error, "strerror", None) or error or type(error).__name__)

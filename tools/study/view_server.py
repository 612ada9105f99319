# SPDX-License-Identifier: BSL-1.0
"""The server of `./neap view`: the page, and answers to its questions, for this host only.

It listens on the loopback address, and each address has a random token, so other users of the host and other pages in the browser cannot
ask. Requests name quantities, filters and row numbers, never files. All sizes and times are bounded: connections, the length of an address,
the time of a question, rows of an answer. A request whose Host is not this server is refused (DNS rebinding).
"""

import contextlib
import hmac
import html
import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from tools.errors import Failure, UsageError
from tools.launcher_name import worded
from tools.log import page_template
from tools.study import schema, view_figures, view_filter, view_query, view_svg, view_table, view_timeline
from tools.study.view_source import Source

HERE = Path(__file__).parent / "page"
LOG_PAGE = Path(__file__).parent.parent / "log/page"
SCRIPTS = (LOG_PAGE / "scales.js", LOG_PAGE / "axes.js")
SCRIPTS += tuple(HERE / name for name in ("shared.js", "svg_context.js", "plot.js", "choices.js", "timeline.js", "page.js"))
STYLES = (LOG_PAGE / "page.css", HERE / "page.css")
ADDRESS = "127.0.0.1"
CONNECTIONS_MAX = 32
SECONDS_MAX = 20.0  # until a request has arrived
TARGET_BYTES_MAX = 16 << 10
ROWS_AT_ONCE = 20_000
# Numbers that the page offers as filters, beside swept settings.
SETTINGS = ("itr_us", "frequency_ghz", "rapl_w", "rate_wanted", "repeat", "cores")
# The page of a run has these bytes at most; `./neap log report` makes longer ones.
REPORT_BYTES_MAX = 256 << 20
# Pages with scripts in their text, as ./neap log report writes them, and no connection to any other host.
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
NO_SCRIPTS = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"


class Server(ThreadingHTTPServer):
    """Serves one source. `address` is what a browser opens."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, source: Source, port: int = 0):
        self.show(source)
        self.token = secrets.token_urlsafe(24)
        self.slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self.report_guard = threading.Lock()
        self.reload_guard = threading.Lock()
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            raise Failure(f"port {port} of {ADDRESS} cannot be used: {error.strerror}", "--port 0 takes a free one") from None

    def show(self, source: Source) -> None:
        """Answers come from this source from now on. Answers that have begun keep the earlier one."""
        self.source, self.timelines = source, view_timeline.Timelines(source)

    @property
    def address(self) -> str:
        return f"http://{ADDRESS}:{self.server_address[1]}/{self.token}/"

    def process_request(self, request, client_address) -> None:
        # More connections than CONNECTIONS_MAX are closed at once, so that threads are bounded.
        if not self.slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def handle_error(self, request, client_address) -> None:
        """A browser may close a connection at any time, which is no news."""


class Handler(BaseHTTPRequestHandler):
    """One connection. A request's last part chooses one of ANSWERS."""

    server: Server  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "neap", ""
    timeout = SECONDS_MAX

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_arguments) -> None:
        """Requests are not listed on the terminal."""

    def do_GET(self) -> None:
        try:
            self._answer()
        except UsageError as error:
            self._text(HTTPStatus.BAD_REQUEST, str(error))
        except Failure as error:
            self._text(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))

    def _answer(self) -> None:
        host = self.headers.get("Host", "")
        port = self.server.server_address[1]
        if len(self.path) > TARGET_BYTES_MAX:
            return self._text(HTTPStatus.REQUEST_URI_TOO_LONG, "the address is too long")
        if host not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            return self._text(HTTPStatus.FORBIDDEN, "this host is not served")
        parts = urlsplit(self.path)
        words = parts.path.split("/")
        if len(words) != 3 or not hmac.compare_digest(words[1].encode(), self.server.token.encode()):
            return self._text(HTTPStatus.NOT_FOUND, "not found")
        answer = ANSWERS.get(words[2])
        if answer is None:
            return self._text(HTTPStatus.NOT_FOUND, "not found")
        try:
            asked = dict(parse_qsl(parts.query, max_num_fields=60, keep_blank_values=True, errors="strict"))
        except ValueError:
            raise UsageError("the address cannot be understood") from None
        answer(self, asked)

    # ---- kinds of answers ----

    def send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, policy: str | None = NO_SCRIPTS, name: str = "") -> None:
        self.send_response(status)
        self._headers(kind, policy, name)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _headers(self, kind: str, policy: str | None, name: str) -> None:
        self.send_header("Content-Type", kind)
        if policy:
            self.send_header("Content-Security-Policy", policy)
        if name:
            self.send_header("Content-Disposition", f'attachment; filename="{name}"')
        for header, value in (
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(header, value)

    def _text(self, status: HTTPStatus, text: str) -> None:
        self.send(text.encode(), "text/plain; charset=utf-8", status)

    def json(self, found: object) -> None:
        self.send(json.dumps(found, separators=(",", ":")).encode(), "application/json")

    def columns(self, about: Mapping, arrays: Mapping[str, np.ndarray]) -> None:
        self.send(packed(about, arrays), "application/octet-stream")

    def pieces(self, found: Iterator[bytes], kind: str, name: str) -> None:
        """Sends an answer of unknown length, in chunks. An error after the first chunk ends the connection."""
        first = next(found, b"")  # an error of the query is an answer of its own
        self.send_response(HTTPStatus.OK)
        self._headers(kind, NO_SCRIPTS, name)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self._chunk(first)
            for piece in found:
                self._chunk(piece)
        except Failure:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, piece: bytes) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))


def packed(about: Mapping, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Returns numbers for a browser: the length of a JSON text, the text, and the arrays, each at a multiple of 8 bytes."""
    listed: list[list] = []
    parts: list[bytes] = []
    at = 0
    for name, values in arrays.items():
        kind, code = (
            ("Int32", "<i4") if values.dtype.kind in "iu" else ("Float32", "<f4") if values.dtype == np.float32 else ("Float64", "<f8")
        )
        data = np.ascontiguousarray(values, code).tobytes()
        listed.append([name, kind, at, len(values)])
        parts.append(data + bytes(-len(data) % 8))
        at += len(parts[-1])
    text = json.dumps({**about, "arrays": listed}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


# ---- answers ----


def _page(handler: Handler, _asked: Mapping[str, str]) -> None:
    nonce = secrets.token_urlsafe(16)
    handler.send(page(handler.server.source, nonce).encode(), "text/html; charset=utf-8", policy=POLICY.format(nonce=nonce))


def page(source: Source, nonce: str) -> str:
    """Returns the page with a description of the table. Its scripts have the nonce that the policy allows."""
    data = {
        "places": [place.name or str(place) for place in source.places],
        "count": source.count,
        "notes": source.notes,
        "quantities": [_described(source, name) for name in source.quantities],
        "filters": _filters(source),
        "figures": [{"name": each.name, "title": each.title} for each in view_figures.FIGURES.values() if each.lacks(source) is None],
        "points_max": view_query.POINTS_MAX,
    }
    replacements = {
        page_template.TITLE: html.escape(f"runs of {', '.join(place.name or str(place) for place in source.places)}"),
        "@STYLE@": "\n".join(path.read_text() for path in STYLES),
        "@DATA@": page_template.json_text(data),
        "@SCRIPT@": "\n".join(path.read_text() for path in SCRIPTS),
    }
    return page_template.fill(worded((HERE / "page.html").read_text()).replace("@NONCE@", nonce), replacements)


def _described(source: Source, name: str) -> dict:
    found, kind = source.quantities[name], source.kind(name)
    return {"name": name, "label": found.label, "title": found.title, "scale": found.scale, "number": kind.is_number, "values": kind.values}


def _filters(source: Source) -> list[dict]:
    """Returns the columns that the page offers as filters: texts with their values, settings and rates with theirs."""
    found = []
    for name in source.quantities:
        is_setting = name in SETTINGS or name.startswith(schema.SET)
        is_text = not source.kind(name).is_number
        if not (is_setting or is_text):
            continue
        known = view_query.categories(source, name, view_query.CATEGORIES_MAX)
        if known and len(known.values) > 1 and (is_text or is_setting):
            found.append({"name": name, "values": list(known.values)})
        elif is_setting and known is None:
            found.append({"name": name, "values": None})
    return found


def _picture(handler: Handler, asked: Mapping[str, str]) -> None:
    source = handler.server.source
    handler.columns(*view_query.answer(source, view_query.parse(asked, source)))


def _whole(asked: Mapping[str, str], name: str) -> int:
    text = asked.get(name, "")
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{name} is a whole number")
    return int(text)


def _number(asked: Mapping[str, str], name: str) -> float:
    try:
        found = float(asked.get(name, ""))
    except ValueError:
        raise UsageError(f"{name} is a number") from None
    if not np.isfinite(found):
        raise UsageError(f"{name} is a finite number")
    return found


def _nearest(handler: Handler, asked: Mapping[str, str]) -> None:
    source = handler.server.source
    picture = view_query.parse(asked, source)
    if picture.mode != view_query.POINTS:
        raise UsageError("a picture of points has single runs")
    row = view_query.nearest(source, picture, _whole(asked, "panel"), (_number(asked, "at_x"), _number(asked, "at_y")))
    handler.json(None if row is None else {"row": row, **_run_of(source, row)})


def _run(handler: Handler, asked: Mapping[str, str]) -> None:
    row = _whole(asked, "row")
    handler.json({"row": row, **_run_of(handler.server.source, row)})


def _run_of(source: Source, row: int) -> dict:
    has_log = False
    with contextlib.suppress(Failure):
        has_log = bool(source.log_places(row))
    return {"columns": view_query.run(source, row), "has_log": has_log}


def _news(handler: Handler, _asked: Mapping[str, str]) -> None:
    handler.json(handler.server.source.news())


def _reload(handler: Handler, _asked: Mapping[str, str]) -> None:
    """Reads the places again. If that fails, the runs that were read before stay."""
    server = handler.server
    with server.reload_guard:
        if server.source.news()["changed"]:
            server.show(Source([str(place) for place in server.source.places]))
    handler.json({"count": server.source.count})


def _csv(handler: Handler, asked: Mapping[str, str]) -> None:
    source = handler.server.source
    query, values = view_query.shown_rows(source, view_query.parse(asked, source))
    handler.pieces(view_table.csv_pieces(source, query, values, ROWS_AT_ONCE), "text/csv; charset=utf-8", "runs.csv")


def _timeline(handler: Handler, asked: Mapping[str, str]) -> None:
    handler.columns(*handler.server.timelines.answer(_whole(asked, "row"), view_timeline.parse(asked)))


def _report(handler: Handler, asked: Mapping[str, str]) -> None:
    """Sends the report page of a run's log. Its own policy forbids all connections. One page is made at a time."""
    from tools.log import report

    places = handler.server.source.log_places(_whole(asked, "row"))
    with handler.server.report_guard:
        body = report.build(report.load(places)).encode()
    if len(body) > REPORT_BYTES_MAX:
        raise Failure("the page of this run is too large for a browser", "./neap log report makes a file")
    handler.send(body, "text/html; charset=utf-8", policy=None)


def _figure(handler: Handler, asked: Mapping[str, str]) -> None:
    source = handler.server.source
    filters = view_filter.parse_json(asked["filters"]) if asked.get("filters") else []
    row = _whole(asked, "row") if asked.get("row") else None
    made = view_figures.make(source, asked.get("name", ""), view_figures.Options(tuple(filters), row=row))
    if asked.get("as") == "csv":
        return handler.send(made.csv().encode(), "text/csv; charset=utf-8", name=f"{made.name}.csv")
    return handler.send(
        view_svg.draw(made).encode(), "image/svg+xml; charset=utf-8", name="" if asked.get("as") != "file" else f"{made.name}.svg"
    )


ANSWERS: dict[str, Callable[[Handler, Mapping[str, str]], None]] = {
    "": _page,
    "picture": _picture,
    "nearest": _nearest,
    "run": _run,
    "news": _news,
    "reload": _reload,
    "rows.csv": _csv,
    "timeline": _timeline,
    "report.html": _report,
    "figure": _figure,
}

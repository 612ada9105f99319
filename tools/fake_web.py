# SPDX-License-Identifier: BSL-1.0
"""A web server on loopback for tests of downloads. It can answer slowly, break connections and redirect."""

import http.server
import re
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Page:
    """The answer for one path. `cuts` are the numbers of bytes after which the first answers break off. `answers` are statuses that come
    before the page itself."""

    data: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    states_length: bool = True
    stalls: bool = False


class FakeWeb:
    """Serves `pages`, and records (path, Range header) of each request. `certificate`: a file with key and certificate, for HTTPS."""

    def __init__(self, certificate: Path | None = None):
        self.pages: dict[str, Page] = {}
        self.requests: list[tuple[str, str]] = []
        self.ending = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked = self.headers.get("Range", "")
                web.requests.append((self.path, asked))
                page = web.pages.get(self.path)
                status = 404 if page is None else page.answers.pop(0) if page.answers else 200
                self.close_connection = True
                if page is None or status != 200:
                    self.send_response(status)
                    for name, value in (page.headers if page else {}).items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self._send(page, asked)

            def _send(self, page: Page, asked: str) -> None:
                validator = page.headers.get("ETag", page.headers.get("Last-Modified"))
                match = re.fullmatch(r"bytes=(\d+)-", asked)
                start = int(match[1]) if match and self.headers.get("If-Range") == validator else 0
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(page.data) - 1}/{len(page.data)}")
                if page.states_length:
                    self.send_header("Content-Length", str(len(page.data) - start))
                for name, value in page.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if page.stalls:
                    web.ending.wait(60)
                    return
                end = min(start + page.cuts.pop(0), len(page.data)) if page.cuts else len(page.data)
                self.wfile.write(page.data[start:end])

            def log_message(self, *_: object) -> None:
                pass

        return Handler

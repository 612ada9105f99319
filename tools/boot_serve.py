# SPDX-License-Identifier: BSL-1.0
"""Serves a boot tree (boot_tree.py) on one network until interrupted: dnsmasq serves proxy-DHCP and TFTP, Python's http.server serves HTTP.

A laboratory's network usually has a DHCP server already, and a second server must not assign addresses. So dnsmasq runs as proxy-DHCP. The
existing server assigns addresses, and dnsmasq adds only the location of the boot file.
"""

import collections
import contextlib
import fcntl
import functools
import http.server
import ipaddress
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tools import boot_tree, cache, packages, progress
from tools.errors import Failure
from tools.process import spawn, stop

SIOCGIFADDR = 0x8915
SIOCGIFNETMASK = 0x891B
HTTP_TIMEOUT_SECONDS = 30
# Limits of HTTP connections, in total and for one address, because each connection takes a thread. Further connections are closed. A
# machine that boots opens several connections.
HTTP_CONNECTIONS = 256
HTTP_CONNECTIONS_OF_ONE = 16


def serve(out: Path, interface: str, http_port: int) -> int:
    """Serves until interrupted, or until dnsmasq ends. Returns the exit status. With `http_port` 0 there is no HTTP."""
    out = Path(os.path.abspath(out))
    boot_tree.read_record(out)
    address = address_of(interface)
    _require_readable(out)
    if os.geteuid() != 0:
        raise Failure("answering boot questions needs root (UDP ports 67, 69 and 4011)", "start it by sudo")
    packages.require("serve")
    with _alone_on(interface):
        return _serve(out, interface, address, http_port)


def _serve(out: Path, interface: str, address: ipaddress.IPv4Interface, http_port: int) -> int:
    web = _start_http(out, str(address.ip), http_port) if http_port else None
    dnsmasq = None
    try:
        # dnsmasq assigns no addresses here, so it has no leases to keep.
        argv = ["dnsmasq", "--keep-in-foreground", "--log-facility=-", "--pid-file=", "--dhcp-leasefile=/dev/null"]
        argv += [f"--conf-file={out / 'dnsmasq.conf'}", f"--interface={interface}", "--except-interface=lo"]
        argv += [f"--dhcp-range={address.network.network_address},proxy,{address.network.netmask}"]
        dnsmasq = spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        by = f"TFTP and HTTP on port {http_port}" if web else "TFTP"
        progress.say(f"neap: serving {out} on {interface} ({address.ip}) by {by}; Ctrl-C ends it")
        for line in dnsmasq.stdout:
            progress.say(line.decode(errors="replace").rstrip())
        raise Failure(f"dnsmasq ended with status {dnsmasq.wait()}", "its own words are above; another server may have its ports")
    finally:
        if dnsmasq:
            stop(dnsmasq)
        if web:
            web.shutdown()
            web.server_close()


@contextlib.contextmanager
def _alone_on(interface: str) -> Iterator[None]:
    """Raises Failure if another neap serves on this interface. Two dnsmasq processes could share ports and answer each machine twice."""
    folder = cache.root() / "boot-trees"
    folder.mkdir(exist_ok=True)
    namespace = str(os.stat("/proc/self/ns/net").st_ino)  # interface names belong to a network namespace
    held = cache.try_lock(folder / f"serve-{cache.digest(namespace, interface)}.lock")
    if held is None:
        raise Failure(f"another neap serves on {interface} already", "end it by Ctrl-C there")
    try:
        yield
    finally:
        os.close(held)


def address_of(interface: str) -> ipaddress.IPv4Interface:
    """Returns a network card's IPv4 address with its network. Raises Failure if the card does not exist or has no IPv4 address."""
    there = [name for _, name in socket.if_nameindex()]
    if interface not in there:
        raise Failure(f"there is no network card '{interface}'", f"cards: {', '.join(there)}")
    request = struct.pack("256s", interface.encode())
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            address, mask = (fcntl.ioctl(probe, number, request)[20:24] for number in (SIOCGIFADDR, SIOCGIFNETMASK))
    except OSError:
        raise Failure(f"{interface} has no IPv4 address", "give it one in the network of the machines that are to boot") from None
    return ipaddress.IPv4Interface(f"{socket.inet_ntoa(address)}/{socket.inet_ntoa(mask)}")


def _require_readable(out: Path) -> None:
    """Raises Failure for a tree that dnsmasq cannot read without root's rights. Such a tree would look empty to machines."""
    for folder in (out, *out.parents):
        if not folder.stat().st_mode & 0o001:
            hint = f"chmod o+x {folder}, or put the tree elsewhere"
            raise Failure(f"{folder} cannot be entered by everybody, so not by the TFTP server", hint)


class _Handler(http.server.SimpleHTTPRequestHandler):
    timeout = HTTP_TIMEOUT_SECONDS

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        progress.say(f"http: {self.client_address[0]} {format % arguments}")


class _Server(http.server.ThreadingHTTPServer):
    """Limits connections in total and per address, so that one slow client does not block other machines."""

    def __init__(self, *arguments: object) -> None:
        self._guard = threading.Lock()
        self._open: collections.Counter[str] = collections.Counter()
        super().__init__(*arguments)

    def process_request(self, request, client_address) -> None:
        peer = client_address[0]
        with self._guard:
            admitted = self._open.total() < HTTP_CONNECTIONS and self._open[peer] < HTTP_CONNECTIONS_OF_ONE
            self._open[peer] += admitted
        if not admitted:
            progress.say(f"http: {peer}: too many connections, one closed")
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._open[client_address[0]] -= 1
                self._open += collections.Counter()  # drops addresses without connections

    def handle_error(self, request, client_address) -> None:
        """Prints one line without a traceback, because a peer that disconnects is no error of this server."""
        error = sys.exc_info()[1]
        progress.say(f"http: {client_address[0]}: {type(error).__name__}: {error}")


def _start_http(out: Path, address: str, port: int) -> http.server.ThreadingHTTPServer:
    try:
        server = _Server((address, port), functools.partial(_Handler, directory=str(out)))
    except OSError as error:
        raise Failure(f"cannot serve HTTP on {address}:{port}: {error.strerror}", "--http N takes another port, 0 none") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server

# SPDX-License-Identifier: BSL-1.0
"""A DHCP server (RFC 2131) for one client: at first it refuses requests for its own offers, then its leases are short."""

import socket
import struct
import threading
import time

SERVER_PORT, CLIENT_PORT = 67, 68
COOKIE = bytes.fromhex("63825363")
DISCOVER, OFFER, REQUEST, ACK, NAK = 1, 2, 3, 5, 6
OPTIONS_AT = 240
POLL_SECONDS = 0.2


class DhcpServer(threading.Thread):
    """Serves on `device` until `end` is called. For `refusal_seconds` after the first message, it answers each request with a NAK."""

    def __init__(self, device: str, own: str, address: str, *, refusal_seconds: float, lease_seconds: int) -> None:
        super().__init__(daemon=True)
        self._own, self._address = socket.inet_aton(own), socket.inet_aton(address)
        self._refusal_seconds, self._lease_seconds = refusal_seconds, lease_seconds
        self._end_wanted = threading.Event()
        self.messages_while_refusing = 0
        self.leases = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        self._socket.bind(("", SERVER_PORT))
        self._socket.settimeout(POLL_SECONDS)

    def run(self) -> None:
        grants_from = None
        while not self._end_wanted.is_set():
            try:
                message = self._socket.recv(2048)
            except TimeoutError:
                continue
            kind = message_kind(message)
            if kind not in (DISCOVER, REQUEST):
                continue
            if grants_from is None:
                grants_from = time.monotonic() + self._refusal_seconds
            refuses = time.monotonic() < grants_from
            self.messages_while_refusing += refuses
            if kind == DISCOVER:
                self._answer(message, OFFER)
            else:
                self.leases += not refuses
                self._answer(message, NAK if refuses else ACK)

    def end(self) -> None:
        self._end_wanted.set()
        self.join(5)
        self._socket.close()

    def _answer(self, message: bytes, kind: int) -> None:
        reply = bytearray(OPTIONS_AT)
        reply[0:3] = bytes((2, 1, 6))
        reply[4:8] = message[4:8]
        reply[28:44] = message[28:44]
        reply[236:240] = COOKIE
        reply += bytes((53, 1, kind, 54, 4)) + self._own
        if kind != NAK:
            reply[16:20] = self._address
            reply += struct.pack("!BBIBB4s", 51, 4, self._lease_seconds, 1, 4, socket.inet_aton("255.255.255.0"))
            reply += struct.pack("!BB4s", 3, 4, self._own)
        self._socket.sendto(bytes(reply) + b"\xff", ("255.255.255.255", CLIENT_PORT))


def message_kind(message: bytes) -> int:
    """Returns the value of option 53; 0 if the message has none."""
    at = OPTIONS_AT
    if len(message) <= at or message[236:240] != COOKIE:
        return 0
    while at + 2 < len(message) and message[at] != 255:
        if message[at] == 0:
            at += 1
            continue
        if message[at] == 53:
            return message[at + 2]
        at += 2 + message[at + 1]
    return 0

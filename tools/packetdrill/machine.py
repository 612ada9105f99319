# SPDX-License-Identifier: BSL-1.0
"""libneap_network.so by ctypes. net/object/neap_network.h describes the functions."""

import ctypes
from pathlib import Path

VERSION = 1
PACKET_BYTES_MAX = 65536


class Endpoint(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint32), ("port", ctypes.c_uint16)]


class ConnectionState(ctypes.Structure):
    _fields_ = [
        ("established", ctypes.c_uint32),
        ("peer_closed", ctypes.c_uint32),
        ("ended", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("readable_bytes", ctypes.c_uint64),
        ("unacknowledged_bytes", ctypes.c_uint64),
        ("send_space_bytes", ctypes.c_uint64),
        ("held_bytes", ctypes.c_uint64),
        ("congestion_window_bytes", ctypes.c_uint64),
        ("threshold_bytes", ctypes.c_uint64),
        ("timeout_us", ctypes.c_uint64),
    ]


class MachineError(Exception):
    """The object refuses the settings."""


class Machine:
    """The process's machine. Times are in nanoseconds. Calls return a negative errno on failure, as the object does."""

    def __init__(self, library: Path):
        self.calls = ctypes.CDLL(str(library))
        for name in ("neap_now_ns",):
            getattr(self.calls, name).restype = ctypes.c_uint64
        for name in ("neap_take_packet", "neap_send", "neap_receive", "neap_send_datagram", "neap_receive_datagram"):
            getattr(self.calls, name).restype = ctypes.c_long
        self.calls.neap_counter.restype = ctypes.c_int64
        if self.calls.neap_network_version() != VERSION:
            raise MachineError(f"{library} is not of version {VERSION}")
        self.buffer = ctypes.create_string_buffer(PACKET_BYTES_MAX)

    def make(self, settings: str) -> None:
        error = ctypes.create_string_buffer(256)
        if not self.calls.neap_machine_make(settings.encode(), error, len(error)):
            raise MachineError(error.value.decode(errors="replace"))

    def destroy(self) -> None:
        self.calls.neap_machine_destroy()

    def now_ns(self) -> int:
        return self.calls.neap_now_ns()

    def advance_to_ns(self, time_ns: int) -> None:
        self.calls.neap_advance_to_ns(ctypes.c_uint64(time_ns))

    def advance_to_packet_ns(self, time_ns: int) -> bool:
        return bool(self.calls.neap_advance_to_packet_ns(ctypes.c_uint64(time_ns)))

    def put_packet(self, packet: bytes) -> None:
        self.calls.neap_put_packet(packet, ctypes.c_size_t(len(packet)))

    def take_packet(self) -> tuple[bytes, int] | None:
        """Returns the oldest sent packet and its time."""
        time_ns = ctypes.c_uint64()
        taken = self.calls.neap_take_packet(self.buffer, ctypes.c_size_t(PACKET_BYTES_MAX), ctypes.byref(time_ns))
        return (self.buffer.raw[:taken], time_ns.value) if taken else None

    def listen(self, port: int) -> int:
        return self.calls.neap_listen(ctypes.c_uint16(port))

    def accept(self, listener: int) -> int:
        return self.calls.neap_accept(listener, None)

    def connect(self, address: int, port: int) -> int:
        return self.calls.neap_connect(ctypes.c_uint32(address), ctypes.c_uint16(port))

    def connected(self, handle: int) -> int:
        return self.calls.neap_connected(handle)

    def send(self, handle: int, data: bytes) -> int:
        return self.calls.neap_send(handle, data, ctypes.c_size_t(len(data)))

    def receive(self, handle: int, length: int) -> tuple[int, bytes]:
        room = ctypes.create_string_buffer(max(length, 1))
        taken = self.calls.neap_receive(handle, room, ctypes.c_size_t(length))
        return taken, room.raw[: max(taken, 0)]

    def shutdown(self, handle: int) -> int:
        return self.calls.neap_shutdown(handle)

    def close(self, handle: int) -> int:
        return self.calls.neap_close(handle)

    def abort(self, handle: int) -> int:
        return self.calls.neap_abort(handle)

    def state(self, handle: int) -> dict[str, int]:
        state = ConnectionState()
        self.calls.neap_state(handle, ctypes.byref(state), ctypes.c_size_t(ctypes.sizeof(state)))
        return {field[0]: getattr(state, field[0]) for field in ConnectionState._fields_}

    def counter(self, name: str) -> int:
        value = self.calls.neap_counter(name.encode())
        if value < 0:
            raise KeyError(f"there is no counter {name}")
        return value

    def open_datagrams(self, port: int) -> int:
        return self.calls.neap_open_datagrams(ctypes.c_uint16(port))

    def send_datagram(self, handle: int, address: int, port: int, data: bytes) -> int:
        return self.calls.neap_send_datagram(handle, Endpoint(address, port), data, ctypes.c_size_t(len(data)))

    def receive_datagram(self, handle: int, length: int) -> tuple[int, bytes]:
        room = ctypes.create_string_buffer(max(length, 1))
        taken = self.calls.neap_receive_datagram(handle, None, room, ctypes.c_size_t(length))
        return taken, room.raw[: max(taken, 0)]

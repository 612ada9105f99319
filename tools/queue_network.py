# SPDX-License-Identifier: BSL-1.0
"""A wire with several queues between a virtio card and QEMU's user network.

QEMU's user network has one queue, so only one core of a machine would serve. A tap device of the kernel has as many as one wants, but only
a privileged user may make one. In a network namespace of one's own, everybody may, if the host allows user namespaces. So a child process
makes such a namespace with two tap devices that a bridge joins: one for the card, one for the user network. It passes the open devices to
this process, and these to QEMU. QEMU itself stays outside, so that its forwarded ports are on this host.

The namespace and all that is in it end with the last process that has the devices open.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.errors import Failure
from tools.process import output_of, spawn, stop

CARD, WIRE, BRIDGE = "card0", "wire0", "bridge0"
START_SECONDS = 30.0
# The kernel keeps this many frames for a machine that reads them late.
QUEUE_FRAMES = 20_000
# linux/if_tun.h
TUNSETIFF = 0x400454CA
TAP, WITHOUT_INFORMATION, MULTI_QUEUE, NET_HEADER = 0x0002, 0x1000, 0x0100, 0x4000


@contextlib.contextmanager
def joined(queues: int) -> Iterator[tuple[list[int], int]]:
    """Yields the files of a tap device with so many queues, and that of the tap device at the other end. They are closed at the end. Raises
    Failure if this host does not let this user make them."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ours)
        with theirs:
            user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
            argv = ["unshare", *user, "--net", sys.executable, "-m", "tools.queue_network", str(theirs.fileno()), str(queues)]
            root = Path(__file__).resolve().parent.parent
            child = spawn(argv, pass_fds=[theirs.fileno()], cwd=root, stderr=subprocess.PIPE)
        stack.callback(stop, child)
        ours.settimeout(START_SECONDS)
        try:
            answer, data, _flags, _address = ours.recvmsg(1, socket.CMSG_SPACE((queues + 1) * array.array("i").itemsize))
        except TimeoutError:
            answer, data = b"", []
        files = array.array("i")
        for level, kind, content in data:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files.frombytes(content)
        for file in files:
            stack.callback(os.close, file)
        if not answer or len(files) != queues + 1:
            stop(child)
            why = child.stderr.read().decode(errors="replace").strip().splitlines() if child.stderr else []
            raise Failure("this host does not let this user make tap devices in a network namespace", details=why[-3:])
        yield list(files[:-1]), files[-1]


def _open(name: str, flags: int) -> int:
    file = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP | WITHOUT_INFORMATION | flags))
    return file


def _serve(connection: socket.socket, queues: int) -> None:
    """Makes the devices in this process's namespace, and passes their files on. Returns when the other side closes."""
    # The kernel is a wire here: it has no addresses, and asks for none.
    for place in ("all", "default"):
        with contextlib.suppress(OSError):
            Path(f"/proc/sys/net/ipv6/conf/{place}/disable_ipv6").write_text("1")
    files = [_open(CARD, NET_HEADER | (MULTI_QUEUE if queues > 1 else 0)) for _ in range(queues)]
    files.append(_open(WIRE, 0))
    script = [f"ip link add {BRIDGE} type bridge forward_delay 0 stp_state 0 mcast_snooping 0", f"ip link set {BRIDGE} up"]
    script += [f"ip link set {name} txqueuelen {QUEUE_FRAMES} master {BRIDGE} up" for name in (CARD, WIRE)]
    output_of(["sh", "-c", " && ".join(script)], timeout_seconds=START_SECONDS)
    socket.send_fds(connection, [b"1"], files)
    connection.recv(1)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        _serve(inherited, int(sys.argv[2]))

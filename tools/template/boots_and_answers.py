# SPDX-License-Identifier: BSL-1.0
"""Boots the image on an emulated machine and checks that it echoes. Run by ctest: boots_and_answers.py PATH/OF/neap"""

import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PORT = 7007  # of the image
BOOT_SECONDS = 200


def main(launcher: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    folder = Path(__file__).resolve().parent
    argv = [sys.executable, launcher, "run", str(folder), "--cores", "2", "--forward", f"{port}:{PORT}"]
    machine = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        console = wait_for(machine, rb"answers on 127\.0\.0\.1:%d" % port)
        assert b"hello from core 0" in console and b"hello from core 1" in console, "not every core said hello"
        sent = bytes(range(256)) * 1024
        assert ask(port, sent) == sent, "what came back is not what was sent"
    finally:
        machine.send_signal(signal.SIGINT)
        machine.communicate(timeout=60)
    print("boots, and answers")


def wait_for(machine: subprocess.Popen, pattern: bytes) -> bytes:
    """Waits until `pattern` is in the machine's output. Returns the output."""
    console = b""
    deadline = time.monotonic() + BOOT_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(machine.stdout, selectors.EVENT_READ)
        while not re.search(pattern, console):
            piece = machine.stdout.read1() if selector.select(max(0.0, deadline - time.monotonic())) else b""
            if not piece:
                sys.exit(f"it did not come up:\n{console.decode(errors='replace')}")
            console += piece
    return console


def ask(port: int, sent: bytes) -> bytes:
    """Sends `sent` in pieces, and returns the same number of bytes from the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        back = b""
        for first in range(0, len(sent), 16384):
            client.sendall(sent[first : first + 16384])
            while len(back) < min(first + 16384, len(sent)):
                piece = client.recv(65536)
                assert piece, "the connection was closed too early"
                back += piece
        return back


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: boots_and_answers.py PATH/OF/neap")
    main(sys.argv[1])

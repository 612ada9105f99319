# SPDX-License-Identifier: BSL-1.0
"""Neap's answer to one client, from the program `memcached_replay`, and its comparison with another server's."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tools.machine import REPOSITORY

REPLAY = Path(os.environ.get("NEAP_HOST_BUILD", REPOSITORY / "build/host")) / "apps/memcached/memcached_replay"
ANSWER_SECONDS = 20.0


def ask_neap(request: bytes) -> bytes:
    return subprocess.run([REPLAY], input=request, stdout=subprocess.PIPE, check=True, timeout=ANSWER_SECONDS).stdout


def compare(ours: object, theirs: object, request: bytes, round_number: int) -> None:
    """Asserts that the answers are equal. On failure, shows the place of the difference instead of both whole answers."""
    if ours == theirs:
        return
    assert isinstance(ours, bytes | list) and isinstance(theirs, bytes | list)
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    around = slice(max(0, at - 1 if isinstance(ours, list) else at - 40), at + (2 if isinstance(ours, list) else 60))
    short = re.sub(rb"([kv])\1{20,}", rb"\1...", request)
    pytest.fail(
        f"round {round_number}, at {at}:\n  Neap      {ours[around]!r}\n  memcached {theirs[around]!r}\n  after {short!r}", pytrace=False
    )

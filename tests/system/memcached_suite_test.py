# SPDX-License-Identifier: BSL-1.0
"""memcached's own tests (`t/*.t` of its source package) against our server, by the suite's own setting for that (T_MEMD_USE_DAEMON).

The list below has the tests that need only the protocols. The others need features that this server lacks (slab statistics, extstore, TLS,
the proxy), start memcached with options, set its clock, or check the limits of its single process.
"""

import os
import re
import tarfile
from pathlib import Path

import pytest
from servers import Server

from tools import cache
from tools.archive import Archive
from tools.errors import Failure
from tools.process import finished

SUITE_SECONDS = 120
FILES = (
    "binary-get bogus-commands cas flags getandtouch incrdecr issue_108 issue_152 issue_192 issue_3 issue_41 issue_68 issue_70"
    " malicious-commands metaget multiversioning noreply quit touch"
).split()
# This test expects a limit of 1 MiB for a value, but the tests start the stock server with a higher limit.
FILES.append(pytest.param("getset", marks=pytest.mark.image_only))


@pytest.fixture(scope="module")
def suite() -> Path:
    """The suite's folder, unpacked into the cache. It has a fake `memcached`, because the suite asks that program for its options."""
    archive = Archive()
    versions = archive.versions("memcached", source=True)
    if not versions:
        raise Failure("Debian's archive has no source of memcached")
    entry = cache.Entry("memcached-tests", f"{versions[0]}-{cache.digest(__file__)}")
    with entry.making() as needed:
        if needed:
            archive.download_source("memcached", versions[0], entry.path / "source")
            (original,) = (entry.path / "source").glob("memcached_*.orig.tar.*[!c]")
            with tarfile.open(original) as tar:
                tar.extractall(entry.path, members=[member for member in tar if re.match(r"[^/]+/t/", member.name)], filter="data")
            cache.remove(entry.path / "source")
            (folder,) = entry.path.glob("memcached-*")
            folder.rename(entry.path / "memcached")
            program = entry.path / "memcached" / "memcached-debug"
            program.write_text("#!/bin/sh\nexit 0\n")
            program.chmod(0o755)
    return entry.path / "memcached"


@pytest.mark.parametrize("name", FILES)
def test_memcached_suite(server: Server, suite: Path, name: str) -> None:
    host, port = server.address
    environment = {**os.environ, "T_MEMD_USE_DAEMON": f"{host}:{port}", "PERL5LIB": str(suite / "t/lib")}
    with server.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
    argv = ["perl", f"t/{name}.t"]
    try:
        done = finished(argv, SUITE_SECONDS, cwd=suite, env=environment)
    except FileNotFoundError:
        raise Failure("these tests need perl", "as root: apt-get install perl") from None
    failed = re.findall(r"^not ok .*", done.stdout, re.MULTILINE)
    passed = len(re.findall(r"^ok \d+", done.stdout, re.MULTILINE))
    if done.returncode or failed or not passed:
        complaints = [line for line in done.stderr.splitlines() if not line.startswith("WANT TO ISSUE KILL")]
        shown = [f"{name}: status {done.returncode}, {passed} passed, {len(failed)} failed", *failed[:5], *complaints[:30]]
        pytest.fail("\n".join(line[:160] for line in shown), pytrace=False)

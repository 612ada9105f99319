# SPDX-License-Identifier: BSL-1.0
"""memcached's own tests (`t/*.t` of its source package) against our server.

Tests that need no option and no fresh cache run against the shared server, by the suite's own setting for that (T_MEMD_USE_DAEMON). The
others start `memcached_program.py` in place of memcached, which boots an image with the words for their options; some of them run at the
same time, because they spend most of their time in pauses. `NOT_RUN` has a reason for each file that does not apply here. A file of the
suite that is in no list fails a test.
"""

import os
import re
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from servers import Server

from tools import build, cache
from tools.archive import Archive
from tools.errors import Failure
from tools.process import finished

SUITE_SECONDS = 180
AT_ONCE = 3
OWN_SERVER_TEST = "test_memcached_suite_with_options"
PROGRAM = Path(__file__).with_name("memcached_program.py")

ON_SHARED_SERVER = """
    binary-get bogus-commands cas flags getandtouch incrdecr issue_108 issue_152 issue_192 issue_3 issue_41 issue_68 issue_70
    malicious-commands metaget multiversioning noreply quit strtol-testing touch
""".split()
# This test expects a limit of 1 MiB for a value, but the tests start the stock server with a higher limit.
ON_SHARED_IMAGE = ["getset"]
ON_OWN_SERVER = """
    chunked-items dash-M evictions expirations flush-all idle-timeout issue_104 issue_183 issue_29 issue_42 issue_50 issue_61 item_size_max
    shutdown stats stats-conns stats-detail udp watcher_connid
""".split()
# Tests of a file that fail here, by their number, and why. All other tests of the file must pass, and these must fail.
EXPECTED_FAILURES = {
    "stats": {1: "it counts the statistics; names without a meaning here are left out (docs/memcached.md)"},
}
NOT_RUN = {
    "TLS": "ssl_cert_refresh ssl_ports ssl_proto_version ssl_session_resumption ssl_settings ssl_verify_modes",
    "SASL and authentication by a file": "ascii-auth ascii-auth2 binary-sasl",
    "the proxy": """
        proxyantiflap proxybestats proxyconfig proxyconfigmulti proxycron proxydepthlim proxyfuncgen proxyins proxyinternal proxyinternal2
        proxyintext proxyintstats proxylimits proxymatch proxymut proxyratelim proxyrctxtimeout proxyrequest proxyroutelib proxyrouter
        proxyslotcache proxytags proxyunits proxyustats
    """,
    "extstore": """
        binary-extstore chunked-extstore error-extstore extstore extstore-buckets extstore-cas extstore-jbod extstore-overdel
        extstore-tiered extstore-tiered2
    """,
    "UNIX sockets": "unixsocket",
    "a restart with the old memory": "restart",
    "processes and privileges": "daemonize misbehave",
    "a file with the chosen ports": "issue_67",
    "slab classes: the page mover, the memory of a class, or exact evictions of a class": """
        issue_14 issue_163 issue_22 lru dyn-maxbytes slabs-cas slabs-mover slabs-reassign-chunked slabs-reassign2 slabs_reassign
    """,
    "a segmented LRU": "lru-maintainer",
    "a faked size of the memory": "64bit",
    "buffers of memcached's threads": "conn-limits",
    "mostly options that are refused here; options_test.cpp has each option": "00-startup",
    # limits_test.cpp, operations_test.cpp and watch_test.cpp have these cases.
    "a thousand connections or 90 MB of requests take minutes in emulation": "binary lru-crawler maxconns watcher",
    "the suite itself skips them": "issue_140 issue_260 refhang slabhang",
    "texts of memcached's source": "line-lengths whitespace",
}


def folder_name(versions: list[str]) -> str:
    return f"{versions[0]}-{cache.digest(Path(__file__).read_text())}"


@pytest.fixture(scope="module")
def suite() -> Path:
    """The suite's folder, unpacked into the cache, with programs in place of those that the suite builds."""
    archive = Archive()
    versions = archive.versions("memcached", source=True)
    if not versions:
        raise Failure("Debian's archive has no source of memcached")
    entry = cache.Entry("memcached-tests", folder_name(versions))
    with entry.making() as needed:
        if needed:
            archive.download_source("memcached", versions[0], entry.path / "source")
            (original,) = (entry.path / "source").glob("memcached_*.orig.tar.*[!c]")
            with tarfile.open(original) as tar:
                tar.extractall(entry.path, members=[member for member in tar if re.match(r"[^/]+/t/", member.name)], filter="data")
            cache.remove(entry.path / "source")
            (folder,) = entry.path.glob("memcached-*")
            folder.rename(entry.path / "memcached")
            make_programs(entry.path / "memcached")
    return entry.path / "memcached"


def make_programs(folder: Path) -> None:
    # The suite asks the program for its options, and starts it by `timedrun SECONDS PROGRAM OPTIONS…`.
    for name, text in [("memcached-debug", '#!/bin/sh\nexec $NEAP_SUITE_PROGRAM "$@"\n'), ("timedrun", '#!/bin/sh\nshift\nexec "$@"\n')]:
        program = folder / name
        program.write_text(text)
        program.chmod(0o755)
    # memcached's build for tests can move its clock. Here the time passes, and two seconds more: dates are compared in
    # whole seconds, and the machine's clock begins with a whole second.
    library = folder / "t/lib/MemcachedTest.pm"
    moved = re.sub(
        r"(sub mem_move_time \{.*?@_;\n).*?\n\}", r"\1    select undef, undef, undef, $move + 2;\n}", library.read_text(), flags=re.DOTALL
    )
    library.write_text(moved)
    # 16,000 appends, each with a get, and 350 MB of long values take a minute. A tenth of each, with longer appends, makes items of the
    # same sizes.
    long = folder / "t/chunked-items.t"
    shorter = long.read_text()
    for old, new, times in [
        ("1 .. 8000", "1 .. 800", 1),
        ('"x" x 10;', '"x" x 100;', 2),
        ("1..100", "1..10", 1),
        ("+= 2048", "+= 20480", 1),
    ]:
        assert shorter.count(old) == times, f"{long.name} has changed: {old}"
        shorter = shorter.replace(old, new)
    long.write_text(shorter)


def run(suite: Path, name: str, **variables: str) -> str:
    """Runs a file of the suite. Returns what is wrong; an empty text if all tests passed that should."""
    environment = {**os.environ, "PERL5LIB": str(suite / "t/lib"), **variables}
    environment |= {"NEAP_SUITE_PROGRAM": f"{sys.executable} {PROGRAM}", "PYTHONPATH": str(build.REPOSITORY)}
    try:
        done = finished(["perl", f"t/{name}.t"], SUITE_SECONDS, cwd=suite, env=environment)
    except FileNotFoundError:
        raise Failure("these tests need perl", "as root: apt-get install perl") from None
    expected = EXPECTED_FAILURES.get(name, {})
    failed = {int(number): line for line, number in re.findall(r"^(not ok (\d+).*)", done.stdout, re.MULTILINE)}
    passed = {int(number) for number in re.findall(r"^ok (\d+)", done.stdout, re.MULTILINE)}
    wrong = [line for number, line in failed.items() if number not in expected]
    wrong += [f"test {number} passes, although {why}" for number, why in expected.items() if number in passed]
    # The status is the number of failed tests, or another one if the script ended early.
    if passed and not wrong and done.returncode == len(failed):
        return ""
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("WANT TO ISSUE KILL")]
    shown = [f"{name}: status {done.returncode}, {len(passed)} passed, {len(failed)} failed", *wrong[:5], *complaints[:30]]
    return "\n".join(line[:160] for line in shown)


def expect(complaint: str) -> None:
    if complaint:
        pytest.fail(complaint, pytrace=False)


@pytest.fixture(scope="module")
def own_server_runs(suite: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[str]]]:
    selected = [item.callspec.params["name"] for item in request.session.items if item.originalname == OWN_SERVER_TEST]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run, suite, name) for name in selected}


def test_each_file_of_the_suite_is_run_or_has_a_reason(suite: Path) -> None:
    listed = [*ON_SHARED_SERVER, *ON_SHARED_IMAGE, *ON_OWN_SERVER, *(name for names in NOT_RUN.values() for name in names.split())]
    assert sorted(listed) == sorted(path.stem for path in (suite / "t").glob("*.t"))
    assert set(EXPECTED_FAILURES) <= set(ON_SHARED_SERVER + ON_OWN_SERVER)


@pytest.mark.parametrize("name", [*ON_SHARED_SERVER, *(pytest.param(name, marks=pytest.mark.image_only) for name in ON_SHARED_IMAGE)])
def test_memcached_suite(server: Server, suite: Path, name: str) -> None:
    host, port = server.address
    with server.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
    expect(run(suite, name, T_MEMD_USE_DAEMON=f"{host}:{port}"))


@pytest.mark.image_only
@pytest.mark.parametrize("name", ON_OWN_SERVER)
def test_memcached_suite_with_options(own_server_runs: dict[str, Future[str]], name: str) -> None:
    expect(own_server_runs[name].result())

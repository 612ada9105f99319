# SPDX-License-Identifier: BSL-1.0
"""memcached's own tests (`t/*.t` of its source package) against our server.

Tests that need no option and no fresh cache run against the shared server, by the suite's own setting for that (T_MEMD_USE_DAEMON). The
others start `memcached_program.py` in place of memcached, which boots an image with the words for their options. Some of them run at the
same time, and beside the first ones, because they spend most of their time in pauses. The files of `IN_SOAK` take minutes, or add little:
memcached_suite_soak.py (`./neap soak suite`) runs them. `NOT_RUN` has a reason for each file that does not apply here. A file of the suite
that is in no list, or in two, fails a test.
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
AT_ONCE = 4
OWN_SERVER_TEST = "test_memcached_suite_with_options"
PROGRAM = Path(__file__).with_name("memcached_program.py")

ON_SHARED_SERVER = """
    binary-get bogus-commands cas flags getandtouch incrdecr issue_108 issue_152 issue_192 issue_3 issue_41 issue_68 issue_70
    malicious-commands metaget multiversioning noreply quit strtol-testing touch
""".split()
# This test expects a limit of 1 MiB for a value, but the tests start the stock server with a higher limit.
ON_SHARED_IMAGE = ["getset"]
# A copy of chunked-items with fewer requests, which is not one of the suite's files.
SHORTER = "chunked-items-shorter"
# The files with the longest pauses are first.
ON_OWN_SERVER = """
    chunked-items-shorter expirations idle-timeout dash-M dyn-maxbytes stats-conns flush-all item_size_max issue_42 issue_61 evictions
    issue_104 issue_183 issue_29 issue_50 shutdown stats stats-detail udp watcher_connid
""".split()
# A thousand connections (maxconns), 350 MB of values (chunked-items), 90 MB of requests (watcher), 5,000 requests for long values (binary),
# 70,000 items (lru-crawler), 15 machines (00-startup), or pauses and few requests.
IN_SOAK = "00-startup binary chunked-items issue_14 issue_163 issue_22 lru-crawler maxconns slabs-cas watcher".split()
# Tests of a file that fail here, by their number, and why. All other tests of the file must pass, and these must fail.
OTHER_CLASS = "it reads the counter of slab class 31; here such an item has another class"
EXPECTED_FAILURES = {
    "00-startup": {
        5: "disable-cas is refused: every item has a CAS id",
        6: "listen-backlog is refused: the backlog is fixed",
    },
    "dyn-maxbytes": {41: "here 3 MiB have room for 40 values of 65 KiB"},
    "issue_163": {4: OTHER_CLASS},
    "issue_22": {43: OTHER_CLASS, 84: OTHER_CLASS},
    "slabs-cas": {61: OTHER_CLASS, 118: "there is no page mover"},
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
    "a file with the chosen ports, which memcached writes for its tests": "issue_67",
    "slab classes: the page mover": "slabs-mover slabs-reassign-chunked slabs-reassign2 slabs_reassign",
    "evictions in the exact order of use": "lru",
    "a segmented LRU": "lru-maintainer",
    "a faked size of the memory": "64bit",
    "limits for buffers of memcached's threads": "conn-limits",
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
    # 16,000 appends, each with a get, and 350 MB of long values take minutes. The copy has a tenth of each, with appends ten times as long,
    # which makes items of the same sizes.
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
    (folder / f"t/{SHORTER}.t").write_text(shorter)


def run(suite: Path, name: str, seconds: float = SUITE_SECONDS, **variables: str) -> str:
    """Runs a file of the suite. Returns what is wrong; an empty text if all tests passed that should."""
    environment = {**os.environ, "PERL5LIB": str(suite / "t/lib"), **variables}
    environment |= {"NEAP_SUITE_PROGRAM": f"{sys.executable} {PROGRAM}", "PYTHONPATH": str(build.REPOSITORY)}
    try:
        done = finished(["perl", f"t/{name}.t"], seconds, cwd=suite, env=environment)
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


# They begin before the tests on the shared server, and run beside these.
@pytest.fixture(scope="module", autouse=True)
def own_server_runs(suite: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[str]]]:
    selected = [item.callspec.params["name"] for item in request.session.items if item.originalname == OWN_SERVER_TEST]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run, suite, name) for name in selected}


def test_each_file_of_the_suite_is_run_or_has_a_reason(suite: Path) -> None:
    listed = [
        *ON_SHARED_SERVER,
        *ON_SHARED_IMAGE,
        *ON_OWN_SERVER,
        *IN_SOAK,
        *(name for names in NOT_RUN.values() for name in names.split()),
    ]
    assert sorted(listed) == sorted(path.stem for path in (suite / "t").glob("*.t"))
    assert set(EXPECTED_FAILURES) <= set(ON_SHARED_SERVER + ON_OWN_SERVER + IN_SOAK)


def test_the_manual_has_the_numbers_of_files() -> None:
    fast, slow = len({*ON_SHARED_SERVER, *ON_SHARED_IMAGE, *ON_OWN_SERVER} - {SHORTER}), len(IN_SOAK)
    every = fast + slow + sum(len(names.split()) for names in NOT_RUN.values())
    text = f"the {every} files of memcached's own tests. {fast} of them run in `./neap test`, and {slow} that take minutes in"
    assert text in (build.REPOSITORY / "docs/memcached.md").read_text()


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

# SPDX-License-Identifier: BSL-1.0
"""The common clients of memcached against four cores: every public call of each library, and each of memcached's own programs.

Each library's program (folder clients) makes its calls on four connections in turn, and states the answer that the library's documentation
promises. Debian's stock memcached answers the same calls in the same test, so a wrong expectation fails, too.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clients import judge
from servers import DebianProgram, NeapServer, Server, StockServer

from tools import client_programs, debian
from tools.process import finished, wait_until

CORES = 4
PROGRAM_SECONDS = 120
CAPABILITIES = 27  # of each protocol


@pytest.fixture(scope="module")
def _four_cores(stock: bool) -> Iterator[Server]:
    ours = NeapServer(cores=CORES, memory="512M", arguments=["memory=256M"], udp=True)
    with StockServer("-m", "256", udp=True) if stock else ours as server:
        yield server


@pytest.fixture
def server(_four_cores: Server) -> Iterator[Server]:
    """The memcached on four cores. It must still serve after each test."""
    yield _four_cores
    _four_cores.check()


@pytest.fixture
def stock_memcached() -> Iterator[Server]:
    """A new process for each test: `incr` of Debian 12's memcached, 1.6.18, refuses numbers above 2^63 if a minus sign of an earlier item
    is behind them in memory."""
    with StockServer("-m", "256", udp=True) as server:
        yield server


# ---- libraries ----


def of_tests(name: str) -> tuple[list[str], Mapping[str, str] | None]:
    """A client in the Python environment of the tests."""
    return [sys.executable, "-B", str(client_programs.CLIENTS / f"{name}_calls.py")], None


def pylibmc() -> tuple[list[str], Mapping[str, str] | None]:
    return client_programs.debian_python(client_programs.CLIENTS / "pylibmc_calls.py", "python3-pylibmc")


def spymemcached() -> tuple[list[str], Mapping[str, str] | None]:
    return client_programs.java("SpymemcachedCalls", "libspymemcached-java", "spymemcached.jar"), None


# For each library: its program, and the form of its last arguments.
LIBRARIES: dict[str, tuple[Callable[[], tuple[list[str], Mapping[str, str] | None]], str]] = {
    "pymemcache": (lambda: of_tests("pymemcache"), "{0} {1}"),
    "pylibmc": (pylibmc, "{0} {1}"),
    "python-binary-memcached": (lambda: of_tests("bmemcached"), "{0} {1}"),
    "aiomcache": (lambda: of_tests("aiomcache"), "{0} {1}"),
    "gomemcache": (lambda: (client_programs.go("gomemcache"), None), "{0}:{1}"),
    "memjs": (lambda: (client_programs.node("memjs_calls.js"), None), "{0}:{1}"),
    "spymemcached": (spymemcached, "{0} {1}"),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_call_of_a_library_answers_as_stated(server: Server, stock_memcached: Server, name: str) -> None:
    program, form = LIBRARIES[name]
    argv, environment = program()

    def judged(memcached: Server) -> judge.Judgement:
        return judge.run([*argv, *form.format(*memcached.address).split()], environment)

    with ThreadPoolExecutor(2) as both:
        ours, theirs = both.map(judged, (server, stock_memcached))
    assert theirs.wrong == [], "stock memcached does not answer as stated"
    assert ours.wrong == []
    assert {kind: names for kind, names in ours.missing.items() if names} == {}, "public methods that the program does not call"
    assert [method for method, _ in ours.calls] == [method for method, _ in theirs.calls]


@pytest.mark.parametrize(
    "line, fault",
    [
        ('{"method": "get", "arguments": "a", "answer": "1", "stated": "2"}', "get(a) answered 1, in place of 2"),
        ('{"method": "set", "arguments": "a", "answer": "1", "stated": "1"}', "get"),
    ],
)
def test_a_wrong_answer_and_a_missing_call_are_found(line: str, fault: str) -> None:
    judgement = judge.read(f'{line}\n{{"class": "Client", "methods": ["get", "set", "close"], "local": ["close", "set"]}}\n')
    assert fault in [*judgement.wrong, *judgement.missing["Client"]]


# ---- libmemcached's programs ----


def libmemcached(program: str, server: Server, *options: str) -> tuple[int, str]:
    """Runs a program of libmemcached's tools. Returns its exit status and its output."""
    host, port = server.address
    argv = [*DebianProgram("libmemcached-tools", program).argv, f"--servers={host}:{port}", *options]
    done = finished(argv, PROGRAM_SECONDS)
    return done.returncode, done.stdout + done.stderr


def capability_tests(server: Server, *options: str) -> dict[str, str]:
    """Runs memccapable (elsewhere named memcapable). Returns each test's result by its name. The program deletes all items of the
    server."""
    host, port = server.address
    argv = [*DebianProgram("libmemcached-tools", "memccapable").argv, "-h", host, "-p", str(port), "-t", "20", *options]
    done = finished(argv, PROGRAM_SECONDS)
    outcomes = dict(re.findall(r"^((?:ascii|binary) [a-z ]+?)\s+\[(\w+)\]", done.stdout, re.MULTILINE))
    assert outcomes, f"memccapable printed no outcome:\n{done.stdout}{done.stderr}"
    return outcomes


@pytest.mark.parametrize("protocol", ["-a", "-b"], ids=["text", "binary"])
def test_all_capabilities_of_libmemcached(server: Server, protocol: str) -> None:
    outcomes = capability_tests(server, protocol)
    assert len(outcomes) == CAPABILITIES
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "pass"} == {}


@pytest.mark.parametrize("protocol", [[], ["--binary"]], ids=["text", "binary"])
def test_programs_of_libmemcached_store_show_and_remove(server: Server, tmp_path: Path, protocol: list[str]) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"value of {name}")
    files = [str(tmp_path / name) for name in ("one", "two")]
    assert libmemcached("memcrm", server, *protocol, "one", "two")[0] in (0, 1)
    assert libmemcached("memccp", server, *protocol, "--add", "--flags=7", "--expire=100", *files) == (0, "")
    assert libmemcached("memccp", server, *protocol, "--add", files[0])[0] == 1
    assert libmemcached("memccp", server, *protocol, "--replace", *files) == (0, "")
    assert libmemcached("memccp", server, *protocol, "--set", "--flags=7", *files) == (0, "")
    assert libmemcached("memccat", server, *protocol, "one", "two") == (0, "value of one\nvalue of two\n")
    assert libmemcached("memccat", server, *protocol, "--flags", "one") == (0, "7\nvalue of one\n")
    assert libmemcached("memccat", server, *protocol, "missing")[0] == 1
    assert libmemcached("memcexist", server, *protocol, "one") == (0, "")
    assert libmemcached("memcexist", server, *protocol, "missing")[0] == 1
    assert libmemcached("memctouch", server, *protocol, "--expire=100", "one") == (0, "")
    assert libmemcached("memctouch", server, *protocol, "--expire=100", "missing")[0] == 1
    assert libmemcached("memcrm", server, *protocol, "one") == (0, "")
    assert libmemcached("memcrm", server, *protocol, "one")[0] == 1
    assert libmemcached("memcflush", server, *protocol) == (0, "")
    assert libmemcached("memccat", server, *protocol, "two")[0] == 1


@pytest.mark.parametrize("protocol", [[], ["--binary"]], ids=["text", "binary"])
def test_programs_of_libmemcached_ask_the_server(server: Server, protocol: list[str]) -> None:
    status, general = libmemcached("memcstat", server, *protocol)
    shown = set(re.findall(r"^\t(\w+): ", general, re.MULTILINE))
    with server.connect() as wire:
        assert status == 0 and shown == set(wire.statistics())
    status, settings = libmemcached("memcstat", server, *protocol, "--args=settings")
    assert status == 0 and re.search(r"^\tmaxbytes: \d+$", settings, re.MULTILINE)
    status, version = libmemcached("memcstat", server, *protocol, "--server-version")
    assert status == 0 and re.search(r":\d+ 1\.\d+\.\d+$", version, re.MULTILINE)
    status, analysis = libmemcached("memcstat", server, *protocol, "--analyze")
    assert status == 0 and "Number of Servers Analyzed         : 1" in analysis


def test_memcdump_lists_no_other_key(server: Server) -> None:
    """Stock memcached lists only items that have not been used for some seconds."""
    with server.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        wire.store(b"dumped", b"1")
    status, keys = libmemcached("memcdump", server)
    assert status == 0 and set(keys.split()) <= {"dumped"}
    if not isinstance(server, StockServer):
        assert keys.split() == ["dumped"]


def test_memcping_finds_the_server(server: Server) -> None:
    assert libmemcached("memcping", server) == (0, "")


# ---- load generators of libmemcached ----

SLAP_CLIENTS, SLAP_COUNT = 4, 150


@pytest.mark.parametrize("options", [["--tcp-nodelay"], ["--binary"], ["--non-blocking"], ["--noreply"]], ids=" ".join)
def test_memcslap_finds_all_it_has_stored(server: Server, options: list[str]) -> None:
    # The option --buffer ends the program with a failed assertion of its own.
    for test in ("get", "mget", "set"):
        with server.connect() as wire:
            before = wire.statistics()
            words = [f"--test={test}", f"--concurrency={SLAP_CLIENTS}", f"--execute-number={SLAP_COUNT}", "--flush"]
            status, output = libmemcached("memcslap", server, *options, *words)
            after = wire.statistics()
        grown = {name: int(after[name]) - int(before[name]) for name in ("cmd_set", "cmd_get", "get_hits", "get_misses")}
        assert status == 0, output
        assert re.search(rf"Time to {test}\s+{SLAP_CLIENTS * SLAP_COUNT} keys by +{SLAP_CLIENTS} threads", output), output
        # Some of the random keys may be equal, and a quiet store may be in flight.
        assert grown["get_misses"] == 0
        assert grown["cmd_get"] == grown["get_hits"] >= (0 if test == "set" else SLAP_COUNT)
        assert grown["cmd_set"] >= SLAP_COUNT


def test_memcslap_stores_by_udp(server: Server, stock_memcached: Server) -> None:
    """By UDP the library can only store. It reads no replies, so it is faster than any server, and most datagrams may be lost."""
    for memcached in (stock_memcached, server):
        with memcached.connect() as wire:
            before = int(wire.statistics()["cmd_set"])
            words = ["--udp", "--test=set", f"--concurrency={SLAP_CLIENTS}", f"--execute-number={SLAP_COUNT}"]
            status, output = libmemcached("memcslap", memcached, *words)
            assert status == 0, output
            assert wait_until(lambda: int(wire.statistics()["cmd_set"]) > before, 20, 0.1)  # noqa: B023


@pytest.mark.parametrize("options", [[], ["-B"], ["-d", "10"], ["-B", "-d", "10"], ["-n", "2"]], ids=" ".join)
def test_memaslap_verifies_all_values(server: Server, options: list[str]) -> None:
    """Debian names the program memcaslap."""
    expect_verified(server, *options)


def expect_verified(server: Server, *options: str) -> dict[str, int]:
    """Runs memaslap. Returns its figures."""
    with server.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
    words = ["--threads=4", "--concurrency=16", "--execute_number=2000", "--fixed_size=100", "--win_size=1k", "--verify=1.0"]
    status, output = libmemcached("memcaslap", server, *words, *options)
    figures = {name: int(value) for name, value in re.findall(r"^(\w+): (\d+)$", output, re.MULTILINE)}
    assert status == 0 and re.search(r"Ops: 2000 ", output), output
    assert (figures["get_misses"], figures["verify_misses"], figures["verify_failed"]) == (0, 0, 0)
    assert figures["cmd_get"] + figures["cmd_set"] == 2000
    return figures


def test_memaslap_verifies_all_values_by_udp(server: Server, stock_memcached: Server) -> None:
    """The program has UDP for the text protocol only: with --binary it ends with errors on stock memcached, too."""
    for memcached in (stock_memcached, server):
        figures = expect_verified(memcached, "--udp")
        assert (figures["packet_disorder"], figures["packet_drop"], figures["udp_timeout"]) == (0, 0, 0)


# ---- memcached's own program ----


def memcached_tool(server: Server, *words: str) -> str:
    """Returns what memcached-tool prints."""
    host, port = server.address
    script = debian.unpacked("memcached") / "usr/share/memcached/scripts/memcached-tool"
    done = finished(["perl", str(script), f"{host}:{port}", *words], PROGRAM_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(shown: str) -> dict[str, str]:
    return dict(re.findall(r"^ *(\S+) +(\S+)$", shown, re.MULTILINE))


def test_memcached_tool_shows_statistics_settings_and_sizes(server: Server) -> None:
    with server.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        wire.store(b"tool", b"x" * 300)
        general = table(memcached_tool(server, "stats"))
        assert set(general) == set(wire.statistics())
        assert int(general["curr_items"]) >= 1
        assert table(memcached_tool(server, "settings")) == wire.statistics(b"settings")
        assert table(memcached_tool(server, "sizes"))
        rows = [line.split() for line in memcached_tool(server, "display").splitlines()[1:]]
        items = wire.statistics(b"items")
        # Each row begins with the number of the size, and its fifth word is the count of items.
        assert any(int(row[4]) > 0 for row in rows)
        assert [row[4] for row in rows] == [items.get(f"items:{row[0]}:number", "0") for row in rows]


def test_memcached_tool_dumps_keys_and_items(server: Server) -> None:
    with server.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        for key in (b"one", b"two"):
            wire.store(key, b"value of " + key, flags=7)
    assert set(re.findall(r"^key=(\S+) exp=-1 ", memcached_tool(server, "keys"), re.MULTILINE)) == {"one", "two"}
    added = memcached_tool(server, "dump").split("add ")[1:]
    assert sorted(added) == ["one 7 0 12\nvalue of one\n", "two 7 0 12\nvalue of two\n"]


# ---- memcached_exporter, which is neither in Debian nor in a registry ----

HITS = "get delete incr decr cas touch".split()
# The names that the program reads, for each list of statistics. It exports only those that the server has. Names of `items` and `slabs` are
# without their class.
EXPORTED: dict[bytes, set[str]] = {
    b"": set(
        """
        accepting_conns bytes bytes_read bytes_written cas_badval cmd_flush cmd_set conn_yields crawler_items_checked crawler_reclaimed
        curr_connections curr_items direct_reclaims evictions limit_maxbytes listen_disabled_num lru_crawler_starts moves_to_cold
        moves_to_warm moves_within_lru reclaimed rejected_connections rusage_system rusage_user store_no_memory store_too_large time
        total_connections total_items uptime version
        """.split()
    )
    | {f"{command}_{outcome}" for command in HITS for outcome in ("hits", "misses")},
    b"settings": set(
        """
        hot_lru_pct hot_max_factor lru_crawler lru_crawler_sleep lru_crawler_tocrawl lru_maintainer_thread maxconns warm_lru_pct
        warm_max_factor
        """.split()
    ),
    b"items": set(
        """
        age age_hot age_warm crawler_reclaimed evicted evicted_nonzero evicted_time evicted_unfetched expired_unfetched hits_to_cold
        hits_to_hot hits_to_temp hits_to_warm mem_requested moves_to_cold moves_to_warm moves_within_lru number number_cold number_hot
        number_temp number_warm outofmemory reclaimed tailrepairs
        """.split()
    ),
    b"slabs": set(
        """
        active_slabs cas_badval chunk_size chunks_per_page cmd_set free_chunks free_chunks_end total_chunks total_malloced total_pages
        used_chunks
        """.split()
    )
    | {f"{command}_hits" for command in HITS},
}
SEGMENTS = "items are in no segments of an LRU; stock memcached leaves most of these names out, too, if its LRU has none"
NOT_EXPORTED: dict[bytes, dict[str, str]] = {
    b"": dict.fromkeys("moves_to_cold moves_to_warm moves_within_lru".split(), SEGMENTS),
    b"settings": dict.fromkeys("hot_lru_pct hot_max_factor warm_lru_pct warm_max_factor".split(), SEGMENTS),
    b"items": dict.fromkeys(
        """
        age_hot age_warm hits_to_cold hits_to_hot hits_to_temp hits_to_warm moves_to_cold moves_to_warm moves_within_lru number_cold
        number_hot number_temp number_warm
        """.split(),
        SEGMENTS,
    ),
    b"slabs": dict.fromkeys(
        "get_hits delete_hits incr_hits decr_hits touch_hits".split(), "commands are counted for all sizes together, so that they cost less"
    ),
}


def exported(server: Server, topic: bytes) -> set[str]:
    with server.connect() as wire:
        wire.store(b"exported", b"x" * 300)
        return {name.rpartition(":")[2] for name in wire.statistics(topic)} & EXPORTED[topic]


@pytest.mark.parametrize("topic", EXPORTED, ids=lambda topic: topic.decode() or "general")
def test_memcached_exporter_finds_what_stock_memcached_has(server: Server, stock_memcached: Server, topic: bytes) -> None:
    ours = exported(server, topic)
    assert exported(stock_memcached, topic) - ours <= set(NOT_EXPORTED[topic])
    if not isinstance(server, StockServer):
        assert ours & set(NOT_EXPORTED[topic]) == set()


def test_memcached_exporter_accepts_the_statistics_of_sizes(server: Server) -> None:
    """The program refuses all statistics of a server that has one name in both `stats items` and `stats slabs`."""
    of_items, of_slabs = exported(server, b"items"), exported(server, b"slabs")
    # Without one of these names of a size, the program calls the server down.
    assert {"cmd_set", "cas_hits", "cas_badval"} <= of_slabs
    assert of_items & of_slabs == set()


def test_memcached_exporter_reads_the_times_of_the_cpu(server: Server) -> None:
    with server.connect() as wire:
        for name in ("rusage_user", "rusage_system"):
            assert re.fullmatch(r"\d+\.\d{6}", wire.statistics()[name])

# SPDX-License-Identifier: BSL-1.0
"""The load generator against independent servers: stock memcached on loopback, and Neap's memcached, whose log must agree with the
generator's figures.

The tests do not check the servers' speed. They check that the generator keeps its rate: it sends as many requests as the schedule has, and
accounts for each of them.
"""

import contextlib
import json
import math
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from linux_guest.namespace import Network
from servers import CONTROL_PORT, GUEST_PORT, NeapServer, Server, StockServer

from tools import build
from tools.debian import DebianProgram
from tools.errors import Failure
from tools.load import spelled_out
from tools.log import collect, decode, summary
from tools.machine import LOOPBACK, free_port, port_is_free
from tools.process import finished, kill_session, spawn, wait_until

RUN_SECONDS = 180.0
START_SECONDS = 30.0
NETWORK = "198.51.100"  # TEST-NET-2, RFC 5737
NEAP = [sys.executable, str(build.REPOSITORY / "neap")]
# On a busy machine, the peak differs from one measurement to the next. So each attempt measures its own peak.
ATTEMPTS = 3
STOCK_CONNECTIONS = ["--connections", "16", "--depth", "4"]
# On a busy machine, requests are answered late but never lost.
PATIENT = ["--time-out", "60"]


def load(server: Server, *words: str) -> dict:
    """Runs the load generator once and returns its figures."""
    address = f"{server.address[0]}:{server.address[1]}"
    done = finished([str(build.LOAD), address, "--quiet", "--json", "-", *PATIENT, *words], RUN_SECONDS)
    assert done.returncode == 0, done.stderr + done.stdout
    table, brace, text = done.stdout.partition("\n{\n")
    print(" ".join(words), table, done.stderr, sep="\n")
    (figures,) = json.loads(brace + text)["runs"]
    return figures


def answered(figures: dict, client: str = "loading") -> int:
    """Returns the number of answered requests in the measured window. All answers must be right, and none may be missing."""
    requests = figures[client]["requests"]
    assert requests["errors"] == 0, requests
    count = sum(requests["outcomes"].values())
    assert count == figures[client]["intended"] == figures[client]["latency"]["count"]
    return count


@pytest.fixture(scope="module")
def stock_memcached() -> Iterator[StockServer]:
    with StockServer("-t", "1", "-m", "128", udp=True) as server:
        yield server


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_rate_below_the_peak_is_kept_within_a_percent(stock_memcached: StockServer, share: float) -> None:
    """The gaps between requests are fixed, so that the number of requests in a window is not random. A busy machine may stop both programs
    just before the window ends. The last answers then arrive after its end, with latencies that show the delay. So the number of missing
    answers must not exceed the number of requests due within the longest latency."""
    for attempt in range(1, ATTEMPTS + 1):
        peak = load(stock_memcached, "--closed", "--seconds", "1", "--warm-up", "0.2", *STOCK_CONNECTIONS)["rate"]["achieved"]
        asked = ["--rate", f"{peak * share:.0f}", "--arrivals", "fixed", "--seconds", "2", "--warm-up", "0", "--no-preload"]
        figures = load(stock_memcached, *asked, *STOCK_CONNECTIONS)
        rate, loading = figures["rate"], figures["loading"]
        missing = answered(figures) - loading["answered_in_window"]
        assert abs(rate["intended"] / rate["asked"] - 1) < 0.001, rate
        assert 0 <= missing <= loading["latency"]["p100_ns"] * 1.001 / 1e9 * rate["asked"] + 1, loading
        kept = rate["achieved"] / rate["asked"]
        print(f"attempt {attempt}: {kept:.2%} of {rate['asked']} requests/s, {share:.0%} of the peak")
        if abs(kept - 1) < 0.01:
            return
    print("this machine has been too busy for a percent")


@pytest.mark.parametrize("arrivals", ["exponential", "gpareto", "bursts:4"])
def test_random_arrivals_come_to_the_asked_rate_as_closely_as_chance_lets_them(stock_memcached: StockServer, arrivals: str) -> None:
    """All requests of the schedule are answered. Their number matches the requested rate, within its random variation."""
    count = answered(load(stock_memcached, "--rate", "2000", "--arrivals", arrivals, "--seconds", "2", *STOCK_CONNECTIONS))
    # The limit is five standard deviations of the number of requests in bursts of four. With other distributions the number varies less.
    assert abs(count - 4000) < 5 * math.sqrt(4 * 4000), count


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("protocol", ["text", "meta", "binary"])
def test_each_protocol_brings_back_every_byte(stock_memcached: StockServer, protocol: str, transport: str) -> None:
    """Some replies consist of several datagrams. A request has to fit into one datagram."""
    largest = 1300 if transport == "udp" else 5000
    words = ["--protocol", protocol, "--check-bytes", "--update", "0.3", "--value-size", f"uniform:1:{largest}", "--keys", "500"]
    figures = load(stock_memcached, *words, "--rate", "1500", "--seconds", "1", "--warm-up", "0", *["--udp"][: transport == "udp"])
    count = answered(figures)
    outcomes = figures["loading"]["requests"]["outcomes"]
    assert outcomes["hit"] > count / 2 and outcomes["done"] > count / 5 and outcomes["miss"] == 0, outcomes


@pytest.mark.image_only
def test_agents_on_machines_of_their_own_load_while_another_measures() -> None:
    """The server, two agents and the measuring generator are in networks of their own, joined by a bridge. The generators' totals equal the
    server's."""
    with contextlib.ExitStack() as resources:
        site = resources.enter_context(Network())
        site.run(f"ip link add bridge type bridge && ip address add {NETWORK}.1/24 dev bridge && ip link set bridge up")
        machines = [resources.enter_context(Network(site)) for _ in range(3)]
        for number, machine in enumerate(machines, 2):
            site.run(f"ip link add port{number} type veth peer name cable netns {machine.pid} && ip link set port{number} master bridge up")
            machine.run(f"ip address add {NETWORK}.{number}/24 dev cable && ip link set cable up")

        def start(machine: Network, *words: str, **popen) -> subprocess.Popen:
            child = spawn(machine.inside(words), **popen)
            resources.callback(kill_session, child)
            return child

        start(site, *DebianProgram("memcached", "memcached").argv, "-l", f"{NETWORK}.1", "-U", "0", "-u", "root")
        assert wait_until(lambda: asked_for(site) is not None, START_SECONDS), "memcached does not start"
        agents = [f"{NETWORK}.{number}:7000" for number in (2, 3)]
        for machine, address in zip(machines, agents):
            agent = start(machine, str(build.LOAD), "agent", address, stderr=subprocess.PIPE, text=True)
            assert agent.stderr.readline() == f"neap-load agent: listening on {address}\n"
        words = ["--agents", ",".join(agents), "--agent-connections", "20", "--threads", "2", "--rate", "2000", "--preset", "etc"]
        words += ["--measure-connections", "4", "--measure-rate", "200", "--check-bytes"]
        words += ["--keys", "500", "--seconds", "2", "--warm-up", "0"]
        done = finished(machines[2].inside([str(build.LOAD), f"{NETWORK}.1", *words, *PATIENT, "--quiet", "--json", "-"]), RUN_SECONDS)
        assert done.returncode == 0, done.stderr
        table, brace, text = done.stdout.partition("\n{\n")
        print(table)
        whole = json.loads(brace + text)
        (figures,) = whole["runs"]
        assert asked_for(site) == 500 + answered(figures) + answered(figures, "measuring")
        assert figures["connections"] == {"opened": 44, "refused": 0, "lost": 0}
        # All agents run on one kernel and use one clock, so their true clock offset is zero. The measured offset must not exceed the time
        # of a reading.
        assert [agent["name"] for agent in whole["agents"]] == agents
        assert all(abs(agent["clock"]["wall_offset_ns"]) <= agent["clock"]["rtt_ns"] for agent in whole["agents"]), whole["agents"]
        # Proof that each agent sent load: each agent's cable has carried frames.
        links = [json.loads(machine.run("ip -json -statistics link show cable")) for machine in machines]
        sent_bytes = [link["stats64"]["tx"]["bytes"] for (link,) in links]
        assert min(sent_bytes) > 20_000, sent_bytes


def asked_for(site: Network) -> int | None:
    """Returns the number of gets and sets that the server in a namespace has received; None if it does not answer."""
    try:
        output = site.run(f"printf 'stats\\r\\nquit\\r\\n' | nc {NETWORK}.1 11211")
    except Failure:
        return None
    counts = dict(re.findall(r"^STAT (\w+) (\d+)$", output, re.MULTILINE))
    return int(counts["cmd_get"]) + int(counts["cmd_set"])


def lines_of_the_page(section: str) -> list[list[str]]:
    """Returns the commands of a section of docs/load.md, as words for `./neap load`."""
    page = (build.REPOSITORY / "docs/load.md").read_text()
    block = re.search(rf"^## {section}$.*?^```sh$(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [shlex.split(line, comments=True)[2:] for line in block[1].splitlines() if line.startswith("./neap load ")]


@pytest.mark.image_only
def test_each_line_of_the_page_does_what_it_says(
    stock_memcached: StockServer, neap_memcached: NeapServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line runs with a shorter time, and with a target that only an overloaded server misses. A line about the log needs Neap."""
    monkeypatch.chdir(tmp_path)
    Path("day.csv").write_text("0,500\n0.2,1000\n0.4,500\n")
    Path("requests.csv").write_text("0.000,set,20,300\n0.001,get,20,0\n0.004,get,31,0\n")
    shorter = {"--seconds": "0.2", "--warm-up": "0.1", "--search": "p50<10s", "--rate": "1000", "--scan": "500:1000:500"}
    lines = lines_of_the_page("Options by group")
    assert len(lines) > 12
    for _, *words in lines:
        address = f"{stock_memcached.address[0]}:{stock_memcached.address[1]}"
        changed = [shorter.get(before, word) for before, word in zip(["", *words], words)]
        own_time = {"--rate-file", "--trace"} & set(words)
        if "--log-from" in words:  # `./neap load` adds the machine's control
            address = f"{neap_memcached.address[0]}:{neap_memcached.address[1]}"
            changed = [*changed, "--control", neap_memcached.control_target]
        added = [word for name in ("--seconds", "--warm-up") if name not in words and not own_time for word in (name, shorter[name])]
        done = finished([str(build.LOAD), address, *changed, *added], RUN_SECONDS)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        assert "errors 0\n" in done.stdout or "--search" in words, f"{words}: {done.stdout}"
    assert Path("load.json").stat().st_size > 0 and "[StartTime:" in Path("load.hlog").read_text()


@contextlib.contextmanager
def web_server(preset: str) -> Iterator[str]:
    """Serves the page of a preset. Gives the address."""
    stub = spawn([str(build.LOAD_STUB), "--preset", preset], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield stub.stdout.readline().decode().split()[-1]
    finally:
        kill_session(stub)


def test_each_line_about_http_does_what_it_says() -> None:
    lines = lines_of_the_page("HTTP")
    assert len(lines) >= 5
    for words in lines:
        preset = words[words.index("--preset") + 1] if "--preset" in words else "http"
        target, *options = spelled_out(words)
        with web_server(preset) as address:
            place = re.sub(r"//[^/]*", f"//{address}", target) if "://" in target else address
            added = [] if preset == "study" or "--requests" in words else ["--seconds", "0.2"]
            done = finished([str(build.LOAD), place, *options, "--warm-up", "0.1", *added], RUN_SECONDS)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        assert "errors 0\n" in done.stdout and "waiting" in done.stderr, f"{words}: {done.stdout}"


def watched_server() -> NeapServer:
    return NeapServer(cores=2, arguments=["memory=128M"])


def counted_by(server: Server) -> int:
    """Returns the server's own count of gets and sets since boot."""
    with server.connect() as wire:
        counts = wire.statistics()
    return int(counts["cmd_get"]) + int(counts["cmd_set"])


@pytest.fixture(scope="module")
def neap_memcached() -> Iterator[NeapServer]:
    with watched_server() as server:
        yield server


@pytest.mark.image_only
@pytest.mark.parametrize("rate", [100, 300, 900])
@pytest.mark.parametrize("preset", ["etc", "usr"])
def test_log_and_load_agree_on_the_number_of_requests(neap_memcached: NeapServer, preset: str, rate: int, tmp_path: Path) -> None:
    """Log, load generator and server count exactly the same number of requests. There is no warm-up, because its last requests would still
    be in flight when the log begins."""
    mix = ["--preset", preset, "--keys", "300", "--check-bytes"]
    load(neap_memcached, *mix, "--rate", "100", "--seconds", "0.1", "--warm-up", "0")
    before, port = counted_by(neap_memcached), neap_memcached.machine.port(CONTROL_PORT)
    window = ["--rate", str(rate), "--seconds", "2", "--warm-up", "0", "--no-preload", "--control", f"{LOOPBACK}:{port}"]
    figures = load(neap_memcached, *mix, *window)
    count = answered(figures)
    assert counted_by(neap_memcached) - before == count
    collect.collect((LOOPBACK, port), tmp_path / "log", live=False, token=None, as_json=False, patience_seconds=60.0)
    assert summary.summarise(decode.load([str(tmp_path / "log")]))["total"]["requests"] == count
    # The clocks of machine and host are compared by readings. At least one reading must have had a short enough round trip.
    clock = figures["log"]["clock"]
    assert clock["tsc_hz"] > 1e6 and clock["uncertainty_ns"] < RUN_SECONDS * 1e9


@pytest.mark.image_only
@pytest.mark.parametrize("protocol", ["text", "meta", "binary"])
def test_neap_brings_back_every_byte(neap_memcached: NeapServer, protocol: str) -> None:
    words = ["--protocol", protocol, "--check-bytes", "--update", "0.3", "--value-size", "uniform:1:5000", "--keys", "200"]
    figures = load(neap_memcached, *words, "--rate", "300", "--seconds", "1", "--warm-up", "0")
    count = answered(figures)
    outcomes = figures["loading"]["requests"]["outcomes"]
    assert outcomes["hit"] > count / 2 and outcomes["done"] > count / 5 and outcomes["miss"] == 0, outcomes


def start(*words: str) -> subprocess.Popen:
    return subprocess.Popen([*NEAP, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.image_only
def test_one_command_boots_loads_and_keeps_log_and_figures(own_runs: None, tmp_path: Path) -> None:
    port, out = free_port(), tmp_path / "out"
    words = ["--forward", f"{port}:{GUEST_PORT}", "--load", "etc", "--rate", "200", "--load-seconds", "2", "--load-out", str(out)]
    child = start("run", "memcached", *words)
    text, complaints = child.communicate(timeout=RUN_SECONDS)
    assert child.returncode == 0, text + complaints
    assert re.search(r"^[\d.]+ requests/s achieved of 200\.0 asked", text, re.MULTILINE), text
    (figures,) = json.loads((out / "load.json").read_text())["runs"]
    count = answered(figures)
    assert "[StartTime:" in (out / "load.hlog").read_text()
    # The log begins at about the start of the window. If it begins earlier, it has some warm-up requests; if later, it lacks some requests.
    logged = summary.summarise(decode.load([str(out / "log")]))["total"]["requests"]
    assert logged > 0 and abs(logged - count) < 200
    assert port_is_free(port)


@pytest.mark.image_only
def test_ctrl_c_ends_load_and_machine_and_prints_the_results_so_far(own_runs: None) -> None:
    port = free_port()
    child = start("run", "memcached", "--forward", f"{port}:{GUEST_PORT}", "--load", "usr", "--rate", "200", "--load-seconds", "600")
    patience = threading.Timer(RUN_SECONDS, child.terminate)
    patience.start()
    try:
        for line in child.stderr:
            if line.startswith("    s   requests/s"):
                break
        child.stderr.readline()
        child.send_signal(signal.SIGINT)
        text, complaints = child.communicate(timeout=RUN_SECONDS)
    finally:
        patience.cancel()
        child.kill()
        child.wait()
    assert child.returncode == 128 + signal.SIGINT, text + complaints
    assert "stopped before its time" in text and "requests/s achieved of 200.0 asked" in text, text + complaints
    assert complaints.endswith("\nneap: interrupted\n")
    assert port_is_free(port)


@pytest.mark.image_only
def test_a_name_is_enough_for_a_local_run_whose_running_log_is_left_alone(own_runs: None) -> None:
    with watched_server() as server:
        server.machine.describe("memcached", CONTROL_PORT)
        done = start("load", "memcached", "--rate", "100", "--seconds", "0.5", "--warm-up", "0", "--keys", "50", "--json", "-")
        text, complaints = done.communicate(timeout=RUN_SECONDS)
        assert done.returncode == 0 and '"started": "run=1' in text, text + complaints
        with server.control() as connection:
            assert connection.ask("start").startswith("ok run=2")
        done = start("load", "--rate", "100", "--seconds", "0.5", "--keys", "50", "--json", "-", "memcached")
        text, complaints = done.communicate(timeout=RUN_SECONDS)
        assert done.returncode == 0 and '"started": null' in text and "a run of its log is on" in complaints, text + complaints
        with server.control() as connection:
            assert "; run=2; logging=on;" in connection.ask("status")

# SPDX-License-Identifier: BSL-1.0
"""Fuzzes the readers of other programs' bytes: `python -m tools.log.fuzz_collector [SECONDS] [SEED] [FIRST]`.

A case runs one of the launcher's commands in this process. The command's input is made by inventions.py, and imitates a hostile machine,
file or BMC. The command must end in time and within MEMORY_BYTES, with success or with one clear error. It must print no traceback and no
control character. It must write only inside its folder, and leave only files there that the next collection recognises.

A case depends only on the seed and the case's number. A finding reports that number; FIRST is the number of the first case.
"""

import contextlib
import dataclasses
import gc
import io
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from tools import boot_machines, control_client, ctl, machine_registry, power_control, progress, top
from tools.errors import Failure
from tools.log import collect, decode, diff, fetch, folder, report, study, study_layout, summary, synthetic, tables
from tools.log.inventions import CORES, Inventor
from tools.log.trim import trim

NAME = "fuzz_collector"
# Limits of CPU time and of real time; on a busy host a case may wait for long.
CASE_SECONDS = 10
CASE_SECONDS_WAITING = 180
MEMORY_BYTES = 1 << 31
FILES, _ = synthetic.make(synthetic.Shape(cores=CORES, records=12, changes=1, idle_records=True, facts=True))
ADDRESS = ("a-machine", 5002)
SECRET = "the right one"
ANSWER = "ok 0 now_ns=5000000000 idle=halt itr_us=16 interrupts=7 records=9 rx_frames=3 sleeps=2 asleep_ns=7; 1 now_ns=5 idle=poll"
NEXT = "ok 0 now_ns=6000000000 idle=halt itr_us=16 interrupts=9 records=19 rx_frames=4 sleeps=3 asleep_ns=9; 1 now_ns=7 idle=poll"
TEXT = "ok first=0; next=64; end=128; text=one\\ntwo\\x1b\\\\"


class Hang(BaseException):
    """Raised if a case takes longer than CASE_SECONDS."""


class Wrong(Exception):
    """Raised if a command ends in a way that is not allowed."""


@dataclasses.dataclass
class Finding:
    case: int
    seconds: float
    what: str
    trace: str


class Socket:
    """A peer that sends its data in pieces, and then closes, resets or stops sending."""

    def __init__(self, data: bytes, piece: int, end: str) -> None:
        self._data = memoryview(data)
        self._piece = piece
        self._end = end

    def recv(self, bytes_max: int) -> bytes:
        piece = bytes(self._data[: min(bytes_max, self._piece)])
        self._data = self._data[len(piece) :]
        if not piece and self._end == "reset":
            raise ConnectionResetError(104, "Connection reset by peer")
        if not piece and self._end == "silence":
            raise TimeoutError
        return piece

    def sendall(self, data: bytes) -> None: ...
    def settimeout(self, seconds: float) -> None: ...
    def setsockopt(self, *arguments: int) -> None: ...
    def close(self) -> None: ...


@contextlib.contextmanager
def machine(inventor: Inventor, answers: list[bytes]) -> Iterator[None]:
    """Imitates a machine: each connection gets the next of `answers`. After the last answer, connections are refused."""
    pieces = (1 << 18, 1 << 18, 1000, 63)

    def connect(_address: tuple, _seconds: float) -> Socket:
        if not answers:
            raise ConnectionRefusedError(111, "Connection refused")
        end = inventor.random.choice(("end", "end", "reset", "silence"))
        return Socket(answers.pop(0), inventor.random.choice(pieces), end)

    with mock.patch.object(control_client.socket, "create_connection", connect):
        yield


# ---- the commands ----


@contextlib.contextmanager
def fetching(inventor: Inventor, answers: list[bytes], out: Path) -> Iterator[None]:
    """Serves `answers` to the command in the `with` block. Then checks that `out` can be resumed, and after success that `out` is
    complete."""
    try:
        with machine(inventor, answers):
            yield
    finally:
        require_found_again(out)
    require_whole(out)


def play_collect(inventor: Inventor, place: Path) -> None:
    out = place / "out"
    streams = [b"ok\n" + inventor.stream(FILES) for _ in range(inventor.random.choice((1, 1, 2, 3)))]
    if inventor.chance(20):
        streams[0] = inventor.answer("error: token needed")
    if inventor.chance(10):
        out.mkdir()
        (out / folder.UNFINISHED).write_text(inventor.json_text({"boot_id": synthetic.BOOT_ID, "run": 1}))
    with fetching(inventor, streams, out):
        as_json = inventor.chance(2)
        collect.collect(ADDRESS, out, live=inventor.chance(2), token=None, as_json=as_json, patience_seconds=0.001)


def play_fetch(inventor: Inventor, place: Path) -> None:
    out = place / "out"
    files = [inventor.file(core, file) for core, file in enumerate(FILES)]
    if inventor.chance(10):
        files[0] = inventor.answer("error: no such core")
    with fetching(inventor, files, out):
        fetch.fetch(ADDRESS, out, token=None, as_json=inventor.chance(2))


def play_decode(inventor: Inventor, place: Path) -> None:
    out = place / "out"
    out.mkdir()
    for core, file in enumerate(FILES):
        (out / f"core{core}.log").write_bytes(inventor.file(core, file))
    run = decode.load([str(out)])
    found = summary.summarise(run)
    print(summary.text(found))
    require_json(json.dumps(found))
    which = inventor.random.choice(tables.TABLES)
    for piece in tables.tables(run, which, inventor.chance(2)):
        require_no_formula(piece)
    action = inventor.random.randrange(5)
    if action == 4:
        diff.command(str(out), str(out), inventor.chance(2))
        tables.write_csv(iter([tables.configuration_table(run)]), str(out / "table.csv"))
    elif action == 0:
        require_page(report.build([report.NamedRun("a run", run, [out])] * inventor.random.choice((1, 2))))
    elif action == 1:
        for layout in study_layout.LAYOUTS.values():
            with contextlib.suppress(Failure):
                known = study.logged_settings([trim(core) for core in run.cores], may_change=True)
                setting = study_layout.Setting(known["itr"] or "8", known["dvfs"] or "0x1800", known["rapl"] or "135")
                study.write(run, study.Wanted(layout, setting, "200000"), out / layout.name)
                summary.text(summary.summarise(decode.load([str(out / layout.name)])))
    elif action == 2:
        tables.write_csv(tables.tables(run, which, False), str(out / "table.csv"))
    elif inventor.chance(4):
        tables.write_parquet(tables.tables(run, which, False), run, str(out / "table.parquet"))


def play_control(inventor: Inventor, place: Path) -> None:
    action = inventor.random.randrange(3)
    with machine(inventor, [b"".join(inventor.answer(text) for text in ((ANSWER, NEXT) if action == 0 else (TEXT, TEXT, TEXT)))]):
        if action == 0:
            top.top("a-machine", pid=None, token_file=None, seconds=1, once=True, as_json=inventor.chance(2))
        else:
            line = ("dmesg", "status")[action - 1]
            ctl.ctl("a-machine", [line], pid=None, token_file=None, as_json=inventor.chance(3))


def play_toml(inventor: Inventor, place: Path) -> None:
    path = place / "machines.toml"
    path.write_bytes(inventor.toml().encode("utf-8", "surrogatepass"))
    found = boot_machines.read(path)
    path.unlink()
    for one in found.machines:
        if one.bmc:
            # Reads the password, as the next step of `neap power` does.
            power_control._password(one.bmc)


def play_power(inventor: Inventor, place: Path) -> None:
    ipmi = inventor.chance(3)
    bmc = boot_machines.Bmc("10.0.0.1", "admin", "ipmi" if ipmi else "redfish", "", "A_VARIABLE")

    def output(argv: list[str], given: str, environment: dict | None) -> str:
        # Checks the arguments as Popen does.
        if any("\0" in word for word in [os.fsencode(word).decode("latin-1") for word in argv]):
            raise ValueError("embedded null byte")
        if environment is not None and environment.get("IPMITOOL_PASSWORD", environment.get("IPMI_PASSWORD")) != SECRET:
            raise Wrong("ipmitool takes another password than the machines' file names")
        if ipmi:
            return inventor.answer("Chassis Power is on").decode("utf-8", "replace")
        if argv[-1].endswith("/redfish/v1/Systems"):
            return inventor.json_text(
                {"Members": [{"@odata.id": inventor.random.choice(("/redfish/v1/Systems/1", "/redfish/\0", "/redfish/\ud800"))}]}
            )
        return inventor.json_text({"PowerState": "On"})

    with mock.patch.object(power_control, "_output", output), mock.patch.dict(os.environ, inventor.environment()):
        kind = power_control._Ipmi if ipmi else power_control._Redfish
        print(kind(bmc, SECRET).state())


def play_running(inventor: Inventor, place: Path) -> None:
    held = place / "neap-run-x"
    held.mkdir()
    fields = {"application": "memcached", "pid": 7, "ports": {"11211": 2000}, "control_port": 5002}
    (held / "machine.json").write_text(inventor.json_text(fields), "utf-8", "surrogatepass")
    with mock.patch.object(machine_registry.cache, "try_lock", lambda _path: None):
        for one in machine_registry.machines(place, "neap-run-"):
            raise Failure(f"no {one.application}", one.line())
    shutil.rmtree(held)


PLAYS: tuple[Callable[[Inventor, Path], None], ...] = (
    *(play_collect, play_collect, play_collect, play_fetch, play_decode, play_decode),
    *(play_control, play_toml, play_power, play_running),
)


# ---- checks after a command ----


def require_found_again(out: Path) -> None:
    """Raises Wrong if `out` contains a file that the next collection would not recognise."""
    known = (folder.RUN, folder.UNFINISHED)
    for path in out.iterdir() if out.is_dir() else ():
        if path.name not in known and not folder.PART.fullmatch(path.name) and not folder.LOG.fullmatch(path.name):
            raise Wrong(f"left {re.sub('[0-9]+', 'N', path.name)}, which no command takes up")


def require_whole(out: Path) -> None:
    """Raises Wrong unless a successful collection has all cores that its headers name, and no other file."""
    if left := [path.name for path in out.iterdir() if path.name != folder.RUN and not folder.LOG.fullmatch(path.name)]:
        raise Wrong(f"succeeded, and left {re.sub('[0-9]+', 'N', left[0])}")
    content = json.loads((out / folder.RUN).read_text())
    if sorted(row["core"] for row in content["files"]) != list(range(content["cores"])):
        raise Wrong("succeeded without all of its cores")
    decode.load([str(out)])


def require_json(text: str) -> None:
    def refuse(constant: str) -> None:
        raise Wrong(f"wrote {constant} as JSON")

    json.loads(text, parse_constant=refuse)


def require_no_formula(piece) -> None:
    # The values of settings have units, and the configuration has texts of the header.
    cell = re.compile(
        r"['0-9A-Za-z][ -~]*" if "part" in piece.column_names else r"[0-9a-z][0-9a-z_]*(:?[0-9]+|[.][0-9]+W|W| granted [0-9]+)?"
    )
    for column in piece.columns:
        if str(column.type) == "string" and any(text and not cell.fullmatch(text) for text in column.to_pylist()):
            raise Wrong("a table's cell holds text from a log")


def require_page(page: str) -> None:
    """Raises Wrong unless the page's data is JSON that a browser reads, and the page has no scripts except its own."""
    columns = len(re.findall(r'<script type="text/plain" id="column-[0-9]-[0-9]+-[a-z0-9_]+">[A-Za-z0-9+/=]+</script>', page))
    if page.count("<script") != 2 + columns:
        raise Wrong("a report has another script than its own")
    require_json(page.split('id="data">', 1)[1].split("</script>", 1)[0])


def require_printable(text: str, what: str) -> None:
    for line in text.split("\n"):
        if not line.isprintable():
            raise Wrong(f"{what} holds control characters")


# ---- the driver ----


def run_case(number: int, seed: int, place: Path) -> None:
    """Runs one case. A finding raises an exception."""
    inventor = Inventor(seed * 1_000_003 + number)
    play = inventor.random.choice(PLAYS)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            play(inventor, place)
    except Failure as failure:
        said = failure.report()
        require_printable(said, "an error")
        if said.count("\n") > 1 or len(said) > 20_000:
            raise Wrong("an error is not one line with a hint") from None
    require_printable(printed.getvalue(), "what was printed")
    if outside := [path.name for path in place.iterdir() if path.name not in ("out", "machines.toml", "neap-run-x")]:
        raise Wrong(f"wrote {outside[0]} outside its folder")


def bound_case(processor_seconds: float, seconds: float) -> None:
    """Limits CPU time and real time, after which Hang is raised. Two zeros remove the limits."""
    signal.setitimer(signal.ITIMER_PROF, processor_seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@contextlib.contextmanager
def bounded_environment() -> Iterator[Path]:
    """Limits memory, replaces functions that wait, and yields a folder for files."""

    def expired(_number: int, _frame: object) -> None:
        raise Hang

    progress.show_status("")
    before = resource.getrlimit(resource.RLIMIT_AS)
    handlers = [(number, signal.signal(number, expired)) for number in (signal.SIGALRM, signal.SIGPROF)]
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix=f"{NAME}-", dir=base) as place,
        mock.patch.object(collect.time, "sleep", lambda _seconds: None),
        mock.patch.object(collect, "PAUSE_SECONDS", (0.0, 0.0)),
        mock.patch.object(top.time, "sleep", lambda _seconds: None),
        mock.patch.object(ctl, "find_control", lambda *_: ADDRESS),
        mock.patch.object(top, "find_control", lambda *_: ADDRESS),
        mock.patch.object(os, "fsync", lambda _descriptor: None),
        warnings.catch_warnings(),
    ):
        # A printed warning contains a line of source code like a traceback, so warnings are errors here.
        warnings.simplefilter("error")
        # The limit is for the growth, because libraries crash without a message in a process that is larger than its limit.
        resource.setrlimit(resource.RLIMIT_AS, (address_space_bytes() + MEMORY_BYTES, before[1]))
        try:
            yield Path(place)
        finally:
            bound_case(0, 0)
            for number, handler in handlers:
                signal.signal(number, handler)
            resource.setrlimit(resource.RLIMIT_AS, before)


def fuzz(seconds: float, seed: int, first: int = 0, cases_max: int | None = None) -> tuple[int, dict[str, Finding]]:
    """Runs cases for `seconds`. Returns the number of cases, and one finding for each exception and code location."""
    findings: dict[str, Finding] = {}
    start = time.monotonic()
    number = first
    with bounded_environment() as base:
        while time.monotonic() - start < seconds and (cases_max is None or number - first < cases_max):
            if (number - first) % 1000 == 0:
                print(f"{NAME}: from case {number} of seed {seed}", file=sys.stderr, flush=True)
            place = base / "case"
            place.mkdir()
            bound_case(CASE_SECONDS, CASE_SECONDS_WAITING)
            try:
                run_case(number, seed, place)
            except (Exception, Hang) as error:
                bound_case(0, 0)
                what = describe(error)
                if what not in findings:
                    findings[what] = Finding(number, time.monotonic() - start, what, "".join(traceback.format_exception(error, limit=-6)))
                del error
                gc.collect()
            finally:
                bound_case(0, 0)
                shutil.rmtree(place)
            number += 1
    return number - first, findings


def describe(error: BaseException) -> str:
    """Names the exception and the launcher's innermost function. Findings with the same text count once."""
    if isinstance(error, Wrong):
        return str(error)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/tools/" in frame.filename and Path(frame.filename).name not in ("fuzz_collector.py", "inventions.py")
    ]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
    return f"{type(error).__name__} in {where}"


def main(words: list[str]) -> int:
    seconds = float(words[0]) if words else 10.0
    seed = int(words[1]) if len(words) > 1 else 1
    first = int(words[2]) if len(words) > 2 else 0
    start = time.monotonic()
    count, findings = fuzz(seconds, seed, first)
    for finding in findings.values():
        print(f"{NAME}: finding after {finding.seconds:.1f} s, case {finding.case} of seed {seed}: {finding.what}")
        print(finding.trace, file=sys.stderr)
    print(f"{NAME}: {count} cases in {time.monotonic() - start:.1f} s, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

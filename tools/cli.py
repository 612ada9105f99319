# SPDX-License-Identifier: BSL-1.0
"""The command line of `./neap`: its commands, and the format of errors."""

import argparse
import dataclasses
import importlib
import inspect
import re

from tools import guard, installed
from tools.command_list import COMMANDS
from tools.errors import UsageError
from tools.launcher_name import worded
from tools.study import options as study_options

# A word of `build` that is no application.
NEAP_TRACE = "neap-trace"


class Parser(argparse.ArgumentParser):
    """argparse, with errors in the launcher's one-line format."""

    def error(self, message: str):
        if match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            raise UsageError(f"there is no '{match.group(1)}'", f"choose from {match.group(2).replace(chr(39), '')}")
        raise UsageError(message, "./neap --help shows what there is")

    def format_help(self) -> str:
        return worded(super().format_help())


def main(argv: list[str]) -> int:
    """Runs one command line. Returns its exit status."""
    return guard.guarded(_dispatch, argv)


def _dispatch(argv: list[str]) -> int:
    if argv[:1] == ["load"]:
        # The load generator parses this command's options, so they are passed on unchanged.
        from tools import load

        return load.load(argv[1:])
    ours, theirs = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    arguments = _parser().parse_args(ours)
    if arguments.command is None:
        raise UsageError("no command", "./neap --help shows what there is")
    if theirs and arguments.command not in ("run", "pxe", "iso"):
        raise UsageError(f"{arguments.command} takes nothing after --")
    if getattr(arguments, "accept_newer", False):
        from tools import sources

        sources.accept_newer = True
    arguments.words = theirs
    installed.require_command(arguments.command)
    return arguments.function(arguments)


def _parser() -> Parser:
    parser = Parser(
        prog="neap", usage="./neap COMMAND ...", epilog=COMMANDS, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", help=argparse.SUPPRESS)

    def command(name: str, function, summary: str, builds: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, usage=f"./neap {name} ...", description=summary, allow_abbrev=False)
        sub.set_defaults(function=function)
        if builds:
            text = "if a pinned source is gone from Debian's archive, take its signed newer version"
            sub.add_argument("--accept-newer", action="store_true", help=text)
        return sub

    run = command("run", _run, "Build an application and run it on an emulated machine; words after -- are its command line.")
    run.add_argument("application", metavar="APP|PATH")
    run.add_argument("--cores", type=int, default=1, metavar="N")
    run.add_argument("--memory", default="512M", metavar="M", help="RAM of the machine, like 512M or 2G")
    run.add_argument(
        "--forward", dest="forwards", action="append", default=[], metavar="HOST:GUEST", help="forwarded port of 127.0.0.1; repeatable"
    )
    run.add_argument("--debug", action="store_true", help="the build with assertions, without link-time optimisation")
    accelerators = "kvm: this CPU; tcg: an emulated one (default); auto: kvm if possible"
    run.add_argument("--accel", dest="accelerator", choices=("kvm", "tcg", "auto"), help=accelerators)
    run.add_argument("--cpu", metavar="MODEL", help="an emulated CPU with its features, like Haswell or EPYC,-avx2 (max: all features)")
    run.add_argument(
        "--slow", type=int, metavar="N", help="the soft card's clock runs N times slower, which shows its moderation (2 to 1000)"
    )
    run.add_argument("--card-model", choices=("82599", "x540", "x550"), help="the soft card's model (82599); X540 and X550 have 10GBASE-T")
    run.add_argument("--card", choices=("82599", "virtio"), help="the soft 82599 (default), or QEMU's own virtio-net, for any QEMU")
    run.add_argument("--tap", metavar="NAME", help="of --card virtio: a tap device of this host in place of QEMU's user network")
    run.add_argument("--vfio", metavar="ADDRESS", help="a real 82599 in place of the soft one, like 0000:03:00.0; with --accel kvm")
    run.add_argument("--load", metavar="PRESET", help="offer load (etc, usr, fixed; http, hello, study, json), print the result, and end")
    run.add_argument("--rate", type=float, metavar="N", help="of --load: requests a second (1000)")
    run.add_argument("--load-seconds", type=float, metavar="S", help="of --load: the measured window (5; with --model 0.1)")
    run.add_argument("--load-out", metavar="DIR", help="of --load: keep its figures and the cores' log there")

    run.add_argument(
        "--model", metavar="CPU", help="of --load, netpipe or wakeup: on a modelled CPU in virtual time, with power and sleep: e5-2690, ..."
    )
    run.add_argument("--seed", type=int, metavar="N", help="of --model: equal seeds give equal runs (1)")
    run.add_argument("--smt", action="store_true", help="of --model: two threads on each core; --cores counts the threads")
    run.add_argument("--fault", dest="faults", action="append", default=[], metavar="WORDS", help="of --model: a fault; repeatable")
    run.add_argument("--script", metavar="PATH", help="of webserver: a script, or a folder with its packages (docs/webserver.md)")
    run.add_argument("--record", metavar="DIR", help="of --model: keep the run there for `./neap replay DIR`")
    run.add_argument("--gdb", dest="debugger", action="store_true", help="gdb in this terminal, with commands for cores, events and timers")
    run.add_argument("--trace", type=int, metavar="CORE", help="write the functions that a core called last to trace-CORE.txt")

    replay = command("replay", _call, "Repeat a recorded run of the model machine, and compare all its files.", builds=False)
    replay.add_argument("directory", metavar="DIR")
    replay.add_argument("--gdb", dest="with_gdb", action="store_true", help="gdb in this terminal; breakpoints do not change the run")

    new = command("new", _call, "Make the folder of an application of your own, outside of Neap.", builds=False)
    new.add_argument("name", metavar="NAME")
    new.add_argument("--dir", dest="directory", metavar="D", help="where the folder NAME goes (here)")

    vfio = command("vfio", _call, "Take a card from this Linux for `run --vfio`, give it back, or report its state.", builds=False)
    vfio.add_argument("action", choices=("bind", "unbind", "status"), metavar="bind|unbind|status")
    vfio.add_argument("word", metavar="ADDRESS", help="PCI address, like 0000:03:00.0")
    vfio.add_argument("--json", dest="as_json", action="store_true", help="of status")

    build = command("build", _build, "Build boot images and the soft card; neap-trace: the log of a stock Linux.")
    build.add_argument("applications", nargs="*", metavar="APP|PATH")
    build.add_argument("--debug", action="store_true", help="the build with assertions, without link-time optimisation")

    test = command("test", _call, "Run tests, by layer.")
    test.add_argument("names", nargs="*", metavar="LAYER|PATH")
    test.add_argument("--card", choices=("virtio",), help="of system: the tests that name no 82599, on that card, with 1 and 4 cores")

    drill = command("packetdrill", _call, "Run packetdrill's scripts against the network in virtual time.")
    drill.add_argument("names", nargs="*", metavar="SCRIPT|FOLDER", help="default: all scripts of tests/packetdrill")
    drill.add_argument("--library", metavar="FILE", help="another libneap_network.so than the one that Neap builds")
    drill.add_argument("--all-failures", action="store_true", help="known deviations fail, too")
    drill.add_argument("--judge", metavar="PROGRAM", help="compare the verdicts with those of Google's packetdrill")

    soak = command("soak", _call, "Run tests repeatedly; fuzzers get a share of the time.")
    soak.add_argument("names", nargs="*", metavar="LAYER")
    soak.add_argument("--minutes", type=float, metavar="N", help="how long (60); of web: instead of --bytes")
    soak.add_argument("--seeds", type=int, metavar="N", help="of model: number of runs (1000)")
    soak.add_argument("--first-seed", type=int, metavar="S", help="of model: seed of the first run (1)")
    soak.add_argument("--cores", type=int, metavar="N", help="cores of a machine; of model and crowd (4), of starts (16)")
    soak.add_argument("--jobs", type=int, metavar="N", help="of model: runs at a time (2)")
    soak.add_argument("--fault", dest="faults", action="append", default=[], metavar="WORDS", help="of model: a further fault; repeatable")
    soak.add_argument("--starts", type=int, metavar="N", help="of starts: number of starts (50)")
    soak.add_argument("--busy", type=int, metavar="N", help="of starts: processes that compute meanwhile (8)")
    soak.add_argument(
        "--bytes",
        dest="count",
        type=int,
        metavar="N",
        help="of protocols: bytes of each protocol (100000000); of web: damaged bytes (100000000)",
    )
    soak.add_argument("--folder", metavar="DIR", help="of test262: a checkout of the suite")
    soak.add_argument("--every", type=int, metavar="N", help="of test262: take each N-th test (1)")
    parts = "of network: rounds, flood, churn, crowd or fuzz; repeatable"
    soak.add_argument("--part", dest="parts", action="append", default=[], metavar="PART", help=parts)

    ctl = command("ctl", _call, "Send lines to a machine's control server and print its answers.", builds=False)
    _add_target(ctl)
    ctl.add_argument("lines", nargs="+", metavar="LINE", help="one command, in quotes; 'help' lists them")
    ctl.add_argument("--json", dest="as_json", action="store_true")

    top = command("top", _call, "A live view of a machine's cores. Each request wakes one of them, a small disturbance.", builds=False)
    _add_target(top)
    top.add_argument("--once", action="store_true", help="one table, then end")
    top.add_argument("--seconds", type=float, default=1.0, metavar="N", help="how often to ask (1)")
    top.add_argument("--json", dest="as_json", action="store_true", help="a line of JSON each time")

    facts = command("machine", _call, "Print the list of a machine's facts, or the differences of two.", builds=False)
    facts.add_argument("places", nargs="*", metavar="PLACE", help="local (this Linux), APP, HOST[:PORT], FILE, DIR; or diff PLACE PLACE")
    facts.add_argument("--pid", type=int, metavar="N", help="which one, if APP runs several times here")
    facts.add_argument("--token-file", metavar="F", help="a file with the token of control in its first line")
    facts.add_argument("--interface", metavar="NAME", help="of local: the network card (the first one whose driver is ixgbe)")
    facts.add_argument("--out", metavar="FILE", help="keep the list there, as JSON")
    facts.add_argument("--all", dest="all_members", action="store_true", help="of diff: also members that differ by nature")
    facts.add_argument("--strict", action="store_true", help="of diff: exit status 1 also if settings differ")
    facts.add_argument("--json", dest="as_json", action="store_true")

    _add_log_actions(command("log", _log, "Fetch the cores' logs, and evaluate them.", builds=False))

    _add_boot_commands(command)

    bench = command(
        "bench",
        _call,
        "Measure release images: observe, request and web count instructions, stream collects a log under load, netpipe compares with "
        "NPtcp, linux-card with QEMU's igb, load with other load generators. hostile measures the cost of attacks to a bystander, "
        "report-page the page of a log of five million records, network transfers over bad links beside Linux. "
        "view measures the page of a study of a million runs. "
        "cleaners compares the figures of the published studies' scripts with the truth, fit its own fits with table 6.1.",
    )
    bench.add_argument("names", nargs="+", metavar="NAME")
    bench.add_argument("--json", dest="as_json", action="store_true")
    rows_help = "only these rows of `request`, `web`, `tpcc`, `network` or `hit-ratio`, like 'get.16*'; repeatable"
    bench.add_argument("--rows", action="append", default=[], metavar="PATTERN", help=rows_help)
    bench.add_argument(
        "--linux", dest="with_linux", action="store_true", help="`request`, `web`: a server on Linux under the same load beside each row"
    )
    bench.add_argument("--megabytes", type=float, metavar="N", help="`network`: of each transfer (as each row needs)")
    bench.add_argument(
        "--seeds", type=int, metavar="N", help="`network`: repeats of each transfer, each with its own losses (as each row needs)"
    )
    bench.add_argument("--silo", metavar="DIR", help="`tpcc`: a checkout of Silo, whose own benchmark is measured too")
    bench.add_argument("--congestion", choices=("cubic", "reno"), help="`network`: TCP's congestion control of both systems (cubic)")
    bench.add_argument(
        "--word", dest="image_words", action="append", metavar="KEY=VALUE", help="`network`: a word for Neap's image; repeatable"
    )

    compare = command("compare", _call, "Run one workload file on several arms, Neap and Linux; an interrupted comparison goes on.")
    compare.add_argument("file", nargs="?", metavar="FILE", help="arms and workloads, as TOML (tools/compare/workloads.toml)")
    compare.add_argument("--out", default="comparison", metavar="DIR", help="the folder of all results (comparison)")
    compare.add_argument("--only", action="append", default=[], metavar="PATTERN", help="only these rows, like 'get.*'; repeatable")
    compare.add_argument("--rounds", type=int, metavar="N", help="repeats of each row, each with its own seed")
    compare.add_argument("--cores", type=int, action="append", metavar="N", help="only this number of cores; repeatable")
    compare.add_argument("--jobs", type=int, metavar="N", help="machines at a time (the number of the host's cores)")

    study_options.add(command, _call)

    doctor = command("doctor", _call, "Report what this machine has and what it lacks.", builds=False)
    doctor.add_argument("--json", dest="as_json", action="store_true")

    chain = command("toolchain", _toolchain, "The cross compiler: build, export FILE, import FILE or URL.")
    chain.add_argument("action", choices=("build", "export", "import"), metavar="build|export|import")
    chain.add_argument("file", nargs="?", metavar="FILE|URL")
    chain.add_argument("--sha256", default="", metavar="HEX", help="import: the hash that the file must have")

    release = command(
        "release", _call, "Make the files of a release from the commit with the version's tag (docs/releasing.md).", builds=False
    )
    release.add_argument("--out", metavar="DIR", help="the folder of the files, which must not exist (build/release/VERSION)")
    release.add_argument("--snapshot", action="store_true", help="of any commit, named by it")
    release.add_argument("--twice", action="store_true", help="build in two folders, and compare all files")

    clean = command("clean", _call, "Remove build/; with --cache also the toolchain, QEMU, sources and compiled objects.", builds=False)
    clean.add_argument("--cache", dest="with_cache", action="store_true")
    return parser


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="APP|HOST[:PORT]")
    parser.add_argument("--pid", type=int, metavar="N", help="which one, if APP runs several times here")
    parser.add_argument("--token-file", metavar="F", help="a file with the token of control in its first line")


def _add_boot_commands(command) -> None:
    pxe = command("pxe", _pxe, "Make, change and serve a tree that machines boot from over the network.")
    pxe.add_argument("applications", nargs="*", metavar="APP|PATH")
    pxe.add_argument("--out", required=True, metavar="DIR", help="the tree; an older one there is replaced in one step")
    pxe.add_argument("--machines", metavar="FILE", help="a TOML file: the boot entry of each machine (docs/booting.md)")
    pxe.add_argument("--linux", metavar="KERNEL", help="a Linux kernel that the tree boots too, to compare with")
    pxe.add_argument("--initrd", metavar="FILE", help="its initramfs")
    pxe.add_argument("--script", metavar="PATH", help="the script of webserver: a file, or a folder with its packages")
    pxe.add_argument("--dirty", action="store_true", help="also from a checkout with uncommitted changes")
    pxe.add_argument("--next", metavar="MACHINE=IMAGE", help="a machine's next boot; its command line follows after --")
    pxe.add_argument("--serve", metavar="INTERFACE", help="serve the tree on this network card until Ctrl-C")
    pxe.add_argument("--http", dest="http_port", type=int, default=80, metavar="PORT", help="the port of HTTP (80), 0 for none")

    iso = command("iso", _call, "Write one image of an application for CD and disk, BIOS and UEFI; words after -- are its command line.")
    iso.add_argument("application", metavar="APP|PATH")
    iso.add_argument("--out", metavar="FILE", help="the file to write (APP.iso)")
    iso.add_argument("--script", metavar="PATH", help="the script of webserver: a file, or a folder with its packages")
    iso.add_argument("--dirty", action="store_true", help="also from a checkout with uncommitted changes")

    power = command("power", _call, "Switch a machine by its BMC, through ipmitool or Redfish.", builds=False)
    power.add_argument("action", metavar="cycle|on|off|status")
    power.add_argument("name", metavar="MACHINE")
    power.add_argument("--machines", default="machines.toml", metavar="FILE", help="the file that describes it (machines.toml)")


def _add_log_actions(log: argparse.ArgumentParser) -> None:
    actions = log.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, usage=f"./neap log {name} ...", description=summary, allow_abbrev=False)

    collect = action("collect", "Fetch a run by the stream; resumes where it was interrupted.")
    collect.add_argument("--live", action="store_true", help="fetch the records while the run goes on; default: after its end")
    collect.add_argument("--patience", type=float, default=60.0, metavar="SECONDS", help="how long to try again after a break (60)")
    fetch = action("fetch", "Fetch each core's log by get,N.")
    for bringing in (collect, fetch):
        bringing.add_argument("--limit", type=float, default=64.0, metavar="GB", help="how much all logs in DIR may take (64)")
        _add_target(bringing)
        bringing.add_argument("--out", required=True, metavar="DIR")
        bringing.add_argument("--json", action="store_true", help="print run.json instead of a line a core")
    for name, summary in (
        ("csv", "A run's records as CSV, on standard output or to a file."),
        ("parquet", "A run's records as Parquet."),
        ("summary", "Totals of a run: counts, time asleep, energy and derived figures."),
        ("report", "One page of plots that needs no network: report.html. Folders of up to 6 runs: overlaid, or side by side."),
    ):
        reading = action(name, summary)
        reading.add_argument("places", nargs="+", metavar="DIR|FILE")
        if name == "summary":
            reading.add_argument("--json", action="store_true")
            reading.add_argument(
                "--load", action="append", metavar="FILE", help="the result of the load, for requests and latencies by phase"
            )
            reading.add_argument("--steady", type=float, metavar="PERCENT", help="find the time in which received frames vary by less")
        else:
            reading.add_argument("--out", metavar="F")
        if name == "report":
            reading.add_argument("--name", action="append", metavar="NAME", help="the name of a run on the page, once for each run")
        if name in ("csv", "parquet"):
            tables = ("records", "settings", "idle", "collections", "transactions", "configuration")
            reading.add_argument("--table", choices=tables, default="records")
            reading.add_argument("--untrimmed", action="store_true", help="also records outside the start and stop anchors")
        if name == "csv":
            reading.add_argument("--study", metavar="LAYOUT", help="the published studies' files, into the folder --out: linux, ebbrt, log")
            reading.add_argument("--setting", metavar="ITR_DVFS_RAPL", help="of --study: settings that the log does not know")
            reading.add_argument("--qps", metavar="N", help="of --study: the offered rate, if --load does not say it")
            reading.add_argument("--load", metavar="FILE", help="of --study: result of the load, with rate and latencies")
            reading.add_argument("--repetition", type=int, default=0, metavar="I", help="the first number in those files' names")
    wakeups = action("wakeups", "Wake-up latency by idle state, from the sleep records of apps/wakeup.")
    wakeups.add_argument("places", nargs="+", metavar="DIR|FILE")
    difference = action("diff", "Compare two runs: configuration, changes of settings, figures.")
    difference.add_argument("first", metavar="RUN")
    difference.add_argument("second", metavar="RUN")
    difference.add_argument("--json", action="store_true")


# Functions import the modules that they use, because `./neap --help` must not depend on these modules' requirements. The table maps
# commands to functions. To execute a command, the launcher calls its function, whose parameters have the names of the command's options.
CALLS = {
    "replay": "model.record.replay",
    "new": "new.new",
    "vfio": "vfio.command",
    "test": "testing.test",
    "packetdrill": "packetdrill.command.packetdrill",
    "soak": "testing.soak",
    "ctl": "ctl.ctl",
    "machine": "machine_list.commands.machine",
    "top": "top.top",
    "iso": "pxe.iso",
    "power": "power_control.power",
    "bench": "bench.bench",
    "doctor": "doctor.doctor",
    "clean": "cleaning.clean",
    "release": "release.command.release",
    "compare": "compare.command.compare",
    "fit": "study.fit.fit",
    "pareto": "study.pareto.pareto",
    "tune": "study.tune.tune",
    "view": "study.view.view",
    "sweep": "study.command.sweep",
    "search": "study.search.search",
}
# These commands need Python packages. If these are missing, the launcher restarts itself in an environment with them: "log" has numpy
# and pyarrow, "study" also scikit-learn, scipy and duckdb.
WITH_PACKAGES = {"compare": "log", "log": "log"} | dict.fromkeys(("fit", "pareto", "search", "sweep", "tune", "view"), "study")


def _call(arguments) -> int:
    _require_packages(arguments.command)
    module, _, name = CALLS[arguments.command].rpartition(".")
    function = getattr(importlib.import_module(f"tools.{module}"), name)
    parameters = inspect.signature(function).parameters
    # A parameter that takes all options would get none of them here.
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()), arguments.command
    return function(**{option: value for option, value in vars(arguments).items() if option in parameters})


def _options(kind, parsed, /, **others):
    """Returns an instance of the dataclass `kind`. A field that is not in `others` gets the value of the option with its name."""
    names = [field.name for field in dataclasses.fields(kind) if field.name not in others]
    return kind(**{name: getattr(parsed, name) for name in names}, **others)


def _run(arguments) -> int:
    from tools import run

    return run.run(_options(run.Options, arguments, arguments=arguments.words, load=_offer(arguments)))


def _offer(arguments):
    """Returns the settings of --load and of the options that belong to it; None without --load."""
    from pathlib import Path

    from tools import load

    in_virtual_time = arguments.load is not None and arguments.model is not None
    seconds = 0.1 if arguments.load_seconds is None and in_virtual_time else arguments.load_seconds
    given = {"rate": arguments.rate, "seconds": seconds, "out": arguments.load_out and Path(arguments.load_out)}
    given = {name: value for name, value in given.items() if value is not None}
    if arguments.load is not None:
        return load.Offer(arguments.load, **given)
    if given:
        raise UsageError("--rate, --load-seconds and --load-out belong to --load", "./neap run memcached --load etc --rate 2000")
    return None


def _build(arguments) -> int:
    from tools import build, outside, run

    words = [word for word in arguments.applications if word != NEAP_TRACE]
    if len(words) < len(arguments.applications):
        from tools.linux_log import build as linux_log

        made_here = linux_log.place()
        print(f"{made_here} {made_here.stat().st_size}")
        if not words:
            return 0
    folders = [folder for word in words if (folder := outside.folder(word))]
    names = [word for word in words if not outside.folder(word)]
    for name in names:
        build.require_application(name)
    run.require_build_packages()
    preset = "image-debug" if arguments.debug else "image"
    if names or not folders:
        run.in_parallel([lambda: build.build(preset, [f"{name}.elf" for name in names]), build.build_soft_card])
    made = [build.image(name, preset) for name in names or ([] if folders else build.applications())]
    for folder in folders:
        with outside.built(folder, preset) as application:
            made.append(application.image)
    for path in made:
        print(f"{path} {path.stat().st_size}")
    return 0


def _log(arguments) -> int:
    if arguments.action not in ("collect", "fetch"):
        return _log_reading(arguments)
    from pathlib import Path

    from tools import control_client
    from tools.log import collect, fetch
    from tools.machine_registry import find_control

    if not 0 < arguments.limit <= 1e9:
        raise UsageError("--limit takes gigabytes, more than 0 and at most 10^9")
    token = control_client.read_token(arguments.token_file)
    address, out = find_control(arguments.target, arguments.pid), Path(arguments.out)
    common = {"token": token, "as_json": arguments.json, "limit_bytes": int(arguments.limit * 1e9)}
    if arguments.action == "fetch":
        return fetch.fetch(address, out, **common)
    return collect.collect(address, out, live=arguments.live, patience_seconds=arguments.patience, **common)


def _require_packages(command: str) -> None:
    from tools import pythons

    if command in WITH_PACKAGES:
        pythons.require(WITH_PACKAGES[command])


def _log_reading(arguments) -> int:
    _require_packages("log")
    from tools.log import commands

    return commands.convert(arguments)


def _pxe(arguments) -> int:
    from tools import pxe

    return pxe.pxe(_options(pxe.Options, arguments))


def _toolchain(arguments) -> int:
    from tools import exchange, packages, toolchain

    if (arguments.file is None) != (arguments.action == "build"):
        wanted = "takes no file" if arguments.action == "build" else "takes the name of a file"
        raise UsageError(f"toolchain {arguments.action} {wanted}")
    if arguments.sha256 and arguments.action != "import":
        raise UsageError("--sha256: only toolchain import accepts it")
    if arguments.action == "build":
        place = toolchain.entry()
        if not place.ready:
            packages.require("toolchain")
        print(toolchain.build())
    elif arguments.action == "export":
        exchange.export_toolchain(arguments.file)
    else:
        exchange.import_toolchain(arguments.file, arguments.sha256)
    return 0

# SPDX-License-Identifier: BSL-1.0
"""The command line of `./neap`: what there is, and how an error reads."""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import signal
import sys

from tools import process
from tools.errors import Failure, UsageError

COMMANDS = """\
commands:
  run APP|PATH [options] [-- key=value ...]
                                         build an application, of this checkout or in a folder of its own, and run it
                                         on an emulated machine; --vfio ADDRESS gives it the real card, --gdb looks
                                         inside, --trace CORE writes down who called whom
  new NAME [--dir D]                     an application of your own: a folder outside this checkout
  vfio bind|unbind|status ADDRESS        take a real card from this Linux for --vfio, give it back
  ctl APP|HOST[:PORT] LINE ...           ask or set something on a machine that runs: status, 'itr,8us', 'idle,poll,2'
  top APP|HOST[:PORT] [--once]           a live view of its cores
  load APP|HOST[:PORT] [options]         offer load to a memcached and measure its latency; ./neap load --help has the options
  log collect|fetch HOST --out DIR       bring the cores' records here
  log summary|report|csv|parquet DIR     figures, a page of plots, tables
  build [APP|PATH ...]                   build boot images (all of this checkout by default) and the soft card
  test [LAYER|PATH ...]                  run the tests: host sim load tools target system style; or those of an application
  soak [LAYER ...|card|driver|fuzz|kernel] [--minutes N]
                                         tests over and over; card: its fuzzers alone; driver: random settings and faults;
                                         kernel: its stress images; fuzz: all other fuzzers
  pxe APP|PATH ... --out DIR             a tree that machines boot from over the network: BIOS, UEFI, iPXE
  pxe --out DIR --serve INTERFACE        serve it: proxy-DHCP, TFTP, HTTP
  pxe --out DIR --next MACHINE=IMAGE [-- key=value ...]
                                         what a machine boots from its next start on
  iso APP|PATH [--out FILE] [-- key=value ...]
                                         one image for CD and disk, BIOS and UEFI
  power cycle|on|off|status MACHINE      switch a machine of machines.toml by its BMC
  bench NAME [--json]                    what something costs or how fast it goes: observe kernel request stream netpipe card linux-card
                                         load hostile
  doctor [--json]                        what this machine has and what it lacks
  toolchain build|export FILE|import FILE
                                         the cross compiler: build it, carry it to another machine
  clean [--cache]                        remove what was built (and what was fetched)
"""


class Interrupted(BaseException):
    """A signal asked us to end."""

    def __init__(self, number: int):
        super().__init__(f"signal {number}")
        self.number = number


class Parser(argparse.ArgumentParser):
    """argparse, with its errors as our one line."""

    def error(self, message: str):
        if match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            raise UsageError(f"there is no '{match.group(1)}'", f"choose from {match.group(2).replace(chr(39), '')}")
        raise UsageError(message, "./neap --help shows what there is")


def main(argv: list[str]) -> int:
    """Runs one command; gives the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a peer's letters may lie outside the terminal's encoding
    try:
        return _dispatch(argv)
    except Failure as failure:
        print(failure.report(), file=sys.stderr)
        return failure.exit_status
    except Interrupted as interrupted:
        _ignore_signals()
        print("\nneap: ended", file=sys.stderr)
        return 128 + interrupted.number
    except BrokenPipeError:
        # Nobody reads our output any more; keep the interpreter from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        print(Failure("not enough memory", "a smaller input, or a larger machine").report(), file=sys.stderr)
        return 1
    except OSError as error:
        failure = _from_the_system(error)
        print(failure.report(), file=sys.stderr)
        return failure.exit_status
    finally:
        _ignore_signals()
        process.kill_running_groups()


def _from_the_system(error: OSError) -> Failure:
    """What the operating system refused, where nobody further down knew more to say of it."""
    what = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(f"{what}no space left on the disk", "make room and start again")
    hint = "is it yours to write?" if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else None
    return Failure(f"{what}{error.strerror or error}", hint)


def _interrupt(number, _frame):
    # A second Ctrl-C during clean-up would only leave things behind.
    _ignore_signals()
    raise Interrupted(number)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _dispatch(argv: list[str]) -> int:
    if argv[:1] == ["load"]:
        # Its options are the load generator's: nothing here knows them.
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
            text = "where a pinned source is gone from Debian's archive, take its signed newer version"
            sub.add_argument("--accept-newer", action="store_true", help=text)
        return sub

    run = command("run", _run, "Build an application and run it on an emulated machine; words after -- are its command line.")
    run.add_argument("application", metavar="APP|PATH")
    run.add_argument("--cores", type=int, default=1, metavar="N")
    run.add_argument("--memory", default="512M", metavar="M", help="RAM of the machine, like 512M or 2G")
    run.add_argument("--forward", action="append", default=[], metavar="HOST:GUEST", help="forward a port of 127.0.0.1; repeatable")
    run.add_argument("--debug", action="store_true", help="the build with assertions, without link-time optimisation")
    run.add_argument("--accel", choices=("kvm", "tcg", "auto"), help="whose CPU: this one's, an emulated one (default), or as it can be")
    run.add_argument("--vfio", metavar="ADDRESS", help="a real 82599 in place of the soft one, like 0000:03:00.0; with --accel kvm")
    run.add_argument("--load", metavar="PRESET", help="offer load when it listens (etc, usr, fixed), print what came of it, and end")
    run.add_argument("--rate", type=float, metavar="N", help="of --load: requests a second (1000)")
    run.add_argument("--load-seconds", type=float, metavar="S", help="of --load: the measured window (5)")
    run.add_argument("--load-out", metavar="DIR", help="of --load: keep its figures and the cores' log there")

    run.add_argument("--gdb", action="store_true", help="gdb in this terminal, with commands that list cores, events and timers")
    run.add_argument("--trace", type=int, metavar="CORE", help="write down which functions a core called last, to trace-CORE.txt")

    new = command("new", _new, "Make the folder of an application of your own, outside this checkout.", builds=False)
    new.add_argument("name", metavar="NAME")
    new.add_argument("--dir", metavar="D", help="where the folder NAME goes (here)")

    vfio = command("vfio", _vfio, "Take a card from this Linux for `run --vfio`, give it back, or say how it stands.", builds=False)
    vfio.add_argument("action", choices=("bind", "unbind", "status"), metavar="bind|unbind|status")
    vfio.add_argument("address", metavar="ADDRESS", help="PCI address, like 0000:03:00.0")
    vfio.add_argument("--json", action="store_true", help="of status")

    build = command("build", _build, "Build boot images and the soft card.")
    build.add_argument("applications", nargs="*", metavar="APP|PATH")
    build.add_argument("--debug", action="store_true", help="the build with assertions, without link-time optimisation")

    test = command("test", _test, "Run tests, by layer.")
    test.add_argument("layers", nargs="*", metavar="LAYER|PATH")

    soak = command("soak", _soak, "Run tests over and over; fuzzers take their share of the time.")
    soak.add_argument("layers", nargs="*", metavar="LAYER")
    soak.add_argument("--minutes", type=float, default=60, metavar="N")

    ctl = command("ctl", _ctl, "Send lines to a machine's control server and print its answers.", builds=False)
    _add_target(ctl)
    ctl.add_argument("lines", nargs="+", metavar="LINE", help="one command, in quotes; 'help' lists them")
    ctl.add_argument("--json", action="store_true")

    top = command(
        "top", _top, "A live view of a machine's cores. Asking once a second wakes one of them: it disturbs a little.", builds=False
    )
    _add_target(top)
    top.add_argument("--once", action="store_true", help="one table, then end")
    top.add_argument("--seconds", type=float, default=1.0, metavar="N", help="how often to ask (1)")
    top.add_argument("--json", action="store_true", help="a line of JSON each time")

    log = command("log", _log, "Bring the cores' records here, and look at them.", builds=False)
    _add_log_actions(log)

    _add_boot_commands(command)

    bench = command(
        "bench",
        _bench,
        "Measure release images: observe and request count instructions, stream collects a log under load, netpipe meets NPtcp, "
        "linux-card QEMU's igb, load other load generators. hostile measures what attacks cost a bystander.",
    )
    bench.add_argument("name", metavar="NAME")
    bench.add_argument("--json", action="store_true")

    doctor = command("doctor", _doctor, "Say what this machine has and what it lacks.", builds=False)
    doctor.add_argument("--json", action="store_true")

    chain = command("toolchain", _toolchain, "The cross compiler: build, export FILE, import FILE.")
    chain.add_argument("action", choices=("build", "export", "import"), metavar="build|export|import")
    chain.add_argument("file", nargs="?", metavar="FILE")

    clean = command("clean", _clean, "Remove build/; with --cache also the toolchain, QEMU, sources and compiled objects.", builds=False)
    clean.add_argument("--cache", action="store_true")
    return parser


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="APP|HOST[:PORT]")
    parser.add_argument("--pid", type=int, metavar="N", help="which one, if APP runs several times here")
    parser.add_argument("--token-file", metavar="F", help="a file with the token of control in its first line")


def _add_boot_commands(command) -> None:
    pxe = command("pxe", _pxe, "Make, change and serve a tree that machines boot from over the network.")
    pxe.add_argument("applications", nargs="*", metavar="APP|PATH")
    pxe.add_argument("--out", required=True, metavar="DIR", help="the tree; an older one there is replaced in one step")
    pxe.add_argument("--machines", metavar="FILE", help="a TOML file: which machine boots what (docs/booting.md)")
    pxe.add_argument("--linux", metavar="KERNEL", help="a Linux kernel that the tree boots too, to compare with")
    pxe.add_argument("--initrd", metavar="FILE", help="its initramfs")
    pxe.add_argument("--dirty", action="store_true", help="also from a checkout with changes that no commit names")
    pxe.add_argument("--next", metavar="MACHINE=IMAGE", help="what a machine boots from now on; its command line follows after --")
    pxe.add_argument("--serve", metavar="INTERFACE", help="serve the tree on this network card until Ctrl-C")
    pxe.add_argument("--http", type=int, default=80, metavar="PORT", help="the port of HTTP (80), 0 for none")

    iso = command("iso", _iso, "Write one image of an application for CD and disk, BIOS and UEFI; words after -- are its command line.")
    iso.add_argument("application", metavar="APP|PATH")
    iso.add_argument("--out", metavar="FILE", help="the file to write (APP.iso)")
    iso.add_argument("--dirty", action="store_true", help="also from a checkout with changes that no commit names")

    power = command("power", _power, "Switch a machine by its BMC, through ipmitool or Redfish.", builds=False)
    power.add_argument("action", metavar="cycle|on|off|status")
    power.add_argument("machine", metavar="MACHINE")
    power.add_argument("--machines", default="machines.toml", metavar="FILE", help="where it is described (machines.toml)")


def _add_log_actions(log: argparse.ArgumentParser) -> None:
    actions = log.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, usage=f"./neap log {name} ...", description=summary, allow_abbrev=False)

    collect = action("collect", "Bring a run here by the stream; goes on where it was broken off.")
    collect.add_argument("--live", action="store_true", help="take the records as they come; default: when the run is over")
    collect.add_argument("--patience", type=float, default=60.0, metavar="SECONDS", help="how long to try again after a break (60)")
    fetch = action("fetch", "Bring each core's log here by get,N.")
    for bringing in (collect, fetch):
        bringing.add_argument("--limit", type=float, default=64.0, metavar="GB", help="how much all logs in DIR may take (64)")
        _add_target(bringing)
        bringing.add_argument("--out", required=True, metavar="DIR")
        bringing.add_argument("--json", action="store_true", help="print run.json instead of a line a core")
    for name, summary in (
        ("csv", "A run's records as CSV, on standard output or to a file."),
        ("parquet", "A run's records as Parquet."),
        ("summary", "What a run came to: counts, time asleep, energy and what follows from them."),
        ("report", "One page of plots that needs no network: report.html."),
    ):
        reading = action(name, summary)
        reading.add_argument("places", nargs="+", metavar="DIR|FILE")
        if name == "summary":
            reading.add_argument("--json", action="store_true")
        else:
            reading.add_argument("--out", metavar="F")
        if name in ("csv", "parquet"):
            reading.add_argument("--table", choices=("records", "settings", "idle"), default="records")
            reading.add_argument("--untrimmed", action="store_true", help="not only what lies between the start and the stop anchor")
        if name == "csv":
            reading.add_argument("--study", metavar="ITR_DVFS_RAPL", help="files in the published studies' layout, into the folder --out")
            reading.add_argument("--repetition", type=int, default=0, metavar="I", help="the first number in those files' names")


# Modules are imported where they are used: `./neap --help` must not depend on what they need.


def _run(arguments) -> int:
    from tools import run

    return run.run(
        run.Options(
            arguments.application,
            arguments.cores,
            arguments.memory,
            arguments.forward,
            arguments.words,
            arguments.debug,
            arguments.accel,
            arguments.vfio,
            arguments.gdb,
            arguments.trace,
            _offer(arguments),
        )
    )


def _offer(arguments):
    """What --load and its companions say; None without it."""
    from pathlib import Path

    from tools import load

    said = {"rate": arguments.rate, "seconds": arguments.load_seconds, "out": arguments.load_out and Path(arguments.load_out)}
    said = {name: value for name, value in said.items() if value is not None}
    if arguments.load is not None:
        return load.Offer(arguments.load, **said)
    if said:
        raise UsageError("--rate, --load-seconds and --load-out belong to --load", "./neap run memcached --load etc --rate 2000")
    return None


def _new(arguments) -> int:
    from tools import new

    return new.new(arguments.name, arguments.dir)


def _vfio(arguments) -> int:
    from tools import vfio

    return vfio.command(arguments.action, arguments.address, arguments.json)


def _build(arguments) -> int:
    from tools import build, outside, run

    folders = [folder for word in arguments.applications if (folder := outside.folder(word))]
    names = [word for word in arguments.applications if not outside.folder(word)]
    for name in names:
        build.require_application(name)
    run.require_build_packages()
    preset = "image-debug" if arguments.debug else "image"
    if names or not folders:
        targets = [f"{name}.elf" for name in names]
        run.in_parallel([lambda: build.build(preset, targets), build.build_soft_card])
    made = [build.image(name, preset) for name in names or ([] if folders else build.applications())]
    for folder in folders:
        with outside.built(folder, preset) as application:
            made.append(application.image)
    for path in made:
        print(f"{path} {path.stat().st_size}")
    return 0


def _test(arguments) -> int:
    from tools import testing

    return testing.test(arguments.layers)


def _soak(arguments) -> int:
    from tools import testing

    return testing.soak(arguments.layers, arguments.minutes)


def _ctl(arguments) -> int:
    from tools import ctl

    return ctl.ctl(arguments.target, arguments.lines, pid=arguments.pid, token_file=arguments.token_file, as_json=arguments.json)


def _top(arguments) -> int:
    from tools import top

    return top.top(
        arguments.target,
        pid=arguments.pid,
        token_file=arguments.token_file,
        seconds=arguments.seconds,
        once=arguments.once,
        as_json=arguments.json,
    )


def _log(arguments) -> int:
    if arguments.action not in ("collect", "fetch"):
        return _log_reading(arguments)
    from pathlib import Path

    from tools import control
    from tools.log import collect, fetch
    from tools.running import find_control

    if not 0 < arguments.limit <= 1e9:
        raise UsageError("--limit takes gigabytes, more than 0 and at most 10^9")
    limit_bytes = int(arguments.limit * 1e9)
    token = control.read_token(arguments.token_file)
    address = find_control(arguments.target, arguments.pid)
    if arguments.action == "fetch":
        return fetch.fetch(address, Path(arguments.out), token=token, as_json=arguments.json, limit_bytes=limit_bytes)
    return collect.collect(
        address,
        Path(arguments.out),
        live=arguments.live,
        token=token,
        as_json=arguments.json,
        patience_seconds=arguments.patience,
        limit_bytes=limit_bytes,
    )


def _log_reading(arguments) -> int:
    """Runs in an environment that has numpy and its like: if this is none, the launcher starts itself over in one."""
    from tools import pythons

    if not pythons.has_log_packages():
        pythons.start_over(pythons.log_environment(), sys.argv)
    from tools.log import commands

    return commands.convert(arguments)


def _pxe(arguments) -> int:
    from tools import pxe

    return pxe.pxe(
        pxe.Options(
            applications=arguments.applications,
            out=arguments.out,
            machines=arguments.machines,
            linux=arguments.linux,
            initrd=arguments.initrd,
            dirty=arguments.dirty,
            next=arguments.next,
            serve=arguments.serve,
            http_port=arguments.http,
            words=arguments.words,
        )
    )


def _iso(arguments) -> int:
    from tools import pxe

    return pxe.iso(arguments.application, arguments.out, arguments.dirty, arguments.words)


def _power(arguments) -> int:
    from tools import power_control

    return power_control.power(arguments.action, arguments.machine, arguments.machines)


def _bench(arguments) -> int:
    from tools import bench

    return bench.bench(arguments.name, arguments.json)


def _doctor(arguments) -> int:
    from tools import doctor

    return doctor.doctor(arguments.json)


def _toolchain(arguments) -> int:
    from tools import exchange, packages, toolchain

    if (arguments.file is None) != (arguments.action == "build"):
        wanted = "takes no file" if arguments.action == "build" else "takes the name of a file"
        raise UsageError(f"toolchain {arguments.action} {wanted}")
    if arguments.action == "build":
        place = toolchain.entry()
        if not place.ready:
            packages.require("toolchain")
        print(toolchain.build())
    else:
        packages.require("exchange")
        (exchange.export_toolchain if arguments.action == "export" else exchange.import_toolchain)(arguments.file)
    return 0


def _clean(arguments) -> int:
    from tools import cleaning

    return cleaning.clean(with_cache=arguments.cache)

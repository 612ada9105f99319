# SPDX-License-Identifier: BSL-1.0
"""The command line of `./neap`: what there is, and how an error reads."""

from __future__ import annotations

import argparse
import errno
import os
import re
import signal
import sys

from tools import process
from tools.errors import Failure, UsageError

COMMANDS = """\
commands:
  run APP [options] [-- key=value ...]   build an application and run it on an emulated machine
  build [APP ...]                        build boot images (all by default) and the soft card
  test [LAYER ...]                       run the tests: host sim tools target system style
  soak [LAYER ...] [--minutes N]         run tests over and over, fuzzers for longer
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
    except OSError as error:
        if error.errno == errno.ENOSPC:
            print(f"neap: error: no space left on the disk{f' for {error.filename}' if error.filename else ''}", file=sys.stderr)
            return 1
        raise
    finally:
        _ignore_signals()
        process.kill_running_groups()


def _interrupt(number, _frame):
    # A second Ctrl-C during clean-up would only leave things behind.
    _ignore_signals()
    raise Interrupted(number)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _dispatch(argv: list[str]) -> int:
    ours, theirs = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    arguments = _parser().parse_args(ours)
    if arguments.command is None:
        raise UsageError("no command", "./neap --help shows what there is")
    if theirs and arguments.command != "run":
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
    run.add_argument("application", metavar="APP")
    run.add_argument("--cores", type=int, default=1, metavar="N")
    run.add_argument("--memory", default="512M", metavar="M", help="RAM of the machine, like 512M or 2G")
    run.add_argument("--forward", action="append", default=[], metavar="HOST:GUEST", help="forward a port of 127.0.0.1; repeatable")
    run.add_argument("--debug", action="store_true", help="the build with assertions, without link-time optimisation")

    build = command("build", _build, "Build boot images and the soft card.")
    build.add_argument("applications", nargs="*", metavar="APP")
    build.add_argument("--debug", action="store_true", help="the build with assertions, without link-time optimisation")

    test = command("test", _test, "Run tests, by layer.")
    test.add_argument("layers", nargs="*", metavar="LAYER")

    soak = command("soak", _soak, "Run tests over and over; fuzzers take their share of the time.")
    soak.add_argument("layers", nargs="*", metavar="LAYER")
    soak.add_argument("--minutes", type=float, default=60, metavar="N")

    doctor = command("doctor", _doctor, "Say what this machine has and what it lacks.", builds=False)
    doctor.add_argument("--json", action="store_true")

    chain = command("toolchain", _toolchain, "The cross compiler: build, export FILE, import FILE.")
    chain.add_argument("action", choices=("build", "export", "import"), metavar="build|export|import")
    chain.add_argument("file", nargs="?", metavar="FILE")

    clean = command("clean", _clean, "Remove build/; with --cache also the toolchain, QEMU and sources.", builds=False)
    clean.add_argument("--cache", action="store_true")
    return parser


# Modules are imported where they are used: `./neap --help` must not depend on what they need.


def _run(arguments) -> int:
    from tools import run

    return run.run(
        run.Options(arguments.application, arguments.cores, arguments.memory, arguments.forward, arguments.words, arguments.debug)
    )


def _build(arguments) -> int:
    from tools import build, run

    for name in arguments.applications:
        build.require_application(name)
    run.require_build_packages()
    preset = "image-debug" if arguments.debug else "image"
    targets = [f"{name}.elf" for name in arguments.applications]
    run.in_parallel([lambda: build.build(preset, targets), build.build_soft_card])
    for name in arguments.applications or build.applications():
        path = build.image(name, preset)
        print(f"{path} {path.stat().st_size}")
    return 0


def _test(arguments) -> int:
    from tools import testing

    return testing.test(arguments.layers)


def _soak(arguments) -> int:
    from tools import testing

    return testing.soak(arguments.layers, arguments.minutes)


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

#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""A program with memcached's options that serves by Neap's image: memcached's own tests start it in place of memcached.

The options become words of the command line by their long names. The options of `IGNORED` set up mechanisms that Neap does not have, and
the tests that use them do not depend on the mechanism. Neap refuses any other option that it does not have, so the program ends at once, as
memcached does after a wrong option. Ports of the host are forwarded only when the image serves, so that a test's first connection succeeds.

Usage: memcached_program.py OPTIONS…, or -h; PYTHONPATH has the repository.
"""

from __future__ import annotations

import getopt
import signal
import sys
import threading

from servers import forward

from tools import build
from tools.machine import DEFAULT_CARD, Machine, usual_card

START_SECONDS = 60.0
LISTENING = r"memcached: listening on"
# The help text names no feature that the tests look for (TLS, SASL, extstore, the proxy, UNIX sockets, dropped privileges).
HELP = "memcached served by Neap\n-p, --port=<num>\n-U, --udp-port=<num>\n-m, --memory-limit=<num>\n"
CONNECTIONS = 1024  # memcached's default

VALUES = {
    "p": "port", "U": "udp-port", "m": "memory-limit", "c": "conn-limit", "t": "threads", "b": "listen-backlog", "B": "protocol",
    "I": "max-item-size", "R": "max-reqs-per-event", "l": "listen", "D": "stat_key_prefix", "s": "unix-socket", "e": "memory-file",
    "Y": "auth-file", "P": "pidfile", "f": "slab-growth-factor", "n": "slab-min-size", "a": "unix-mask", "u": "user",
}  # fmt: skip
FLAGS = {
    "M": "disable-evictions", "F": "disable-flush-all", "X": "disable-dumping", "W": "disable-watch", "A": "enable-shutdown",
    "C": "disable-cas", "S": "enable-sasl", "Z": "enable-ssl", "d": "daemon", "L": "enable-largepages", "k": "lock-memory",
    "r": "enable-coredumps", "v": "verbose",
}  # fmt: skip
# The user, the verbosity, and names behind -o.
IGNORED = {
    "user", "verbose", "relaxed_privileges", "modern", "slab_chunk_max", "slab_reassign", "slab_automove", "no_slab_automove",
    "slab_automove_window", "lru_maintainer", "no_lru_maintainer",
}  # fmt: skip
NO_CRAWLER = {"no_lru_crawler", "no_modern"}
EVERY_ADDRESS = {"127.0.0.1", "0.0.0.0"}


def words_of(arguments: list[str]) -> dict[str, str]:
    """Returns the words for memcached's options. Raises getopt.GetoptError for an unknown option."""
    words = {"conn-limit": str(CONNECTIONS)}
    options, rest = getopt.getopt(arguments, "".join(f"{letter}:" for letter in VALUES) + "".join(FLAGS) + "o:")
    if rest:
        raise getopt.GetoptError(f"not an option: {rest[0]}")
    for option, value in options:
        letter = option[1:]
        if letter == "o":
            for part in value.split(","):
                name, equals, number = part.partition("=")
                if name in NO_CRAWLER:
                    words.setdefault("lru_crawler", "off")
                elif name == "lru_crawler":
                    words[name] = "on"
                elif name not in IGNORED:
                    words[name] = number if equals else "on"
        elif letter in VALUES:
            words[VALUES[letter]] = value
        else:
            words[FLAGS[letter]] = "on"
    if words.get("listen") in EVERY_ADDRESS:
        del words["listen"]
    if words.get("udp-port") == "0":
        del words["udp-port"]
    return {name: value for name, value in words.items() if name not in IGNORED}


def serve(words: dict[str, str]) -> int:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: ended.set())
    megabytes = int(words.get("memory-limit", "64"))
    arguments = [f"{name}={value}" for name, value in words.items()]
    memory = f"{max(256, 2 * megabytes)}M"
    outside = "udp-port" in words  # otherwise QEMU's user network drops all datagrams of the guest
    strict = ["--strict"] if usual_card() == DEFAULT_CARD else []
    image = build.image("memcached")
    with Machine(image, memory=memory, arguments=arguments, card_options=strict, outside=outside) as machine:
        try:
            machine.wait_for_line(LISTENING, START_SECONDS)
        except Exception as error:  # the image has refused a word, or failed to start
            print(error, *machine.lines[-20:], sep="\n", file=sys.stderr)
            return 1
        for protocol, word in [("tcp", "port"), ("udp", "udp-port")]:
            if word in words:
                forward(machine, protocol, int(words[word]), int(words[word]))
        while machine.running and not ended.wait(0.1):
            pass
    return 0


def main(arguments: list[str]) -> int:
    if arguments == ["-h"]:
        print(HELP, end="")
        return 0
    try:
        words = words_of(arguments)
    except getopt.GetoptError as error:
        print(error, file=sys.stderr)
        return 1
    if "port" not in words:
        print("the tests name a port", file=sys.stderr)
        return 1
    return serve(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

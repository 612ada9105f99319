# SPDX-License-Identifier: BSL-1.0
"""The machines' file, a TOML file that says what each machine boots. The whole file is checked before anything is made from it.

    boot = "memcached"                  # for machines that are not named below; default: the first application
    timeout_s = 3                       # how long the menu waits

    [words]                             # command lines, by what is booted
    memcached = "memory=4G"
    linux = "console=ttyS0"

    [machines.rack1]
    mac = "0c:c4:7a:12:34:56"           # of the card that boots; or: serial = "S123456", as SMBIOS gives it
    boot = "memcached"
    words = "memory=4G itr=8us"         # replaces the words above

    [machines.rack1.bmc]                # for `neap power`
    address = "10.0.0.11"
    user = "admin"
    protocol = "ipmi"                   # or "redfish"
    password_file = "/home/me/rack1"    # or: password_variable = "RACK1_PASSWORD"
    insecure = false                    # true: Redfish with an unverified certificate

The file may come from another administrator, so its size, nesting and numbers are bounded.

An unknown key is refused with an error that names the key. A misspelt key must not be ignored: the machine would boot a wrong image.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.errors import Failure
from tools.foreign import read_bounded, shown

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
# Matches a command line whose characters have no special meaning to GRUB or iPXE.
WORDS = re.compile(r"[A-Za-z0-9_=.,:/+@%\[\] -]*")
WORDS_BYTES_MAX = 1024
TIMEOUT_SECONDS_MAX = 3600
FILE_BYTES_MAX = 1 << 20
DOTS_MAX = 16
STRING_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*')
PASSWORD_PATH = re.compile(r"[^\x00-\x1f\x7f]{0,4096}")
LINUX = "linux"
PROTOCOLS = ("ipmi", "redfish")


@dataclasses.dataclass(frozen=True)
class Bmc:
    """The management processor of a machine. The password itself is not stored."""

    address: str
    user: str
    protocol: str = "ipmi"
    password_file: str = ""
    password_variable: str = ""
    insecure: bool = False


@dataclasses.dataclass(frozen=True)
class Machine:
    """One machine, known by its card's MAC or by its serial number. If `boot` is empty or `words` is None, the file's default applies."""

    name: str
    mac: str = ""
    serial: str = ""
    boot: str = ""
    words: str | None = None
    bmc: Bmc | None = None


@dataclasses.dataclass(frozen=True)
class Machines:
    boot: str = ""
    timeout_s: int = 3
    words: Mapping[str, str] = dataclasses.field(default_factory=dict)
    machines: tuple[Machine, ...] = ()

    def find(self, name: str) -> Machine:
        """Returns the machine with that name, MAC or serial number. If there is none, raises Failure with a list of the known machines."""
        mac = as_mac(name)
        for machine in self.machines:
            # An empty name would match every machine that lacks a MAC or a serial number.
            if name and (name in (machine.name, machine.serial) or mac == machine.mac):
                return machine
        raise Failure(f"no machine '{name}'", f"machines: {', '.join(machine.name for machine in self.machines) or 'none'}")

    def require_entries(self, entries: Iterable[str], where: str) -> None:
        """Raises Failure if the file names a boot entry that does not exist."""
        there = list(entries)
        named = [("boot", self.boot)] + [(f"words.{name}", name) for name in self.words]
        named += [(f"machines.{machine.name}.boot", machine.boot) for machine in self.machines]
        for key, entry in named:
            if entry and entry not in there:
                raise Failure(f"{where}: {key} names '{entry}', which this tree does not have", f"it has: {', '.join(there)}")


def read(path: Path) -> Machines:
    """Reads and checks the file. Raises Failure with one line that names the wrong key."""
    try:
        text = read_bounded(path, FILE_BYTES_MAX).decode()
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Failure(f"{path}: not UTF-8 text (byte {error.start})") from None
    except ValueError as error:
        raise Failure(f"{path}: {error}") from None
    return parse(text, str(path))


def parse(text: str, where: str) -> Machines:
    """Checks `text`, the content of a machines' file, and returns and raises like read(). Errors begin with `where`."""
    try:
        _require_shallow(text)
        values = tomllib.loads(text)
    except ValueError as error:  # raised by tomllib, and by int() for thousands of digits
        raise Failure(f"{where}: {error}") from None
    except RecursionError:
        raise Failure(f"{where}: values nested too deeply") from None
    top = _Table(where, "", values)
    boot = top.text("boot", NAME)
    timeout = top.number("timeout_s", 3, TIMEOUT_SECONDS_MAX)
    words_table = top.table("words")
    words = {name: check_words(words_table.text(name), f"{where}: words.{name}") for name in list(words_table.values)}
    all_machines = top.table("machines")
    machines = [_machine(all_machines.table(name), name) for name in list(all_machines.values)]
    top.finish()
    for key in ("mac", "serial"):
        seen: dict[str, str] = {}
        for machine in machines:
            value = getattr(machine, key)
            if value and value in seen:
                raise Failure(f"{where}: machines {seen[value]} and {machine.name} have the same {key} {value}")
            seen[value] = machine.name
    return Machines(boot, timeout, words, tuple(machines))


def _require_shallow(text: str) -> None:
    """Raises ValueError for a key with many dots. tomllib's memory grows with the square of the number of dots; 200 KB of dots take 20 GB.
    Strings over several lines are refused too, so that each line can be searched for dots outside of strings."""
    for number, line in enumerate(text.split("\n"), 1):
        if '"""' in line or "'''" in line:
            raise ValueError(f"a text of several lines (at line {number})")
        if STRING_OR_COMMENT.sub("", line).count(".") > DOTS_MAX:
            raise ValueError(f"more than {DOTS_MAX} dots outside of texts (at line {number})")


def as_mac(text: str) -> str:
    """Returns the MAC `text`, which has colons or dashes, in small letters with colons."""
    return text.lower().replace("-", ":")


def check_words(words: str, what: str) -> str:
    """Returns the command line `words` with single spaces. Raises Failure if it is too long, or if a boot loader would interpret a
    character."""
    if bad := WORDS.sub("", words):
        message = f"{what}: the character {bad[0]!r} has a meaning of its own for boot loaders"
        raise Failure(message, "letters, digits and =.,:/+@%[]_- are taken")
    if len(words) > WORDS_BYTES_MAX:
        raise Failure(f"{what}: more than {WORDS_BYTES_MAX} bytes")
    return " ".join(words.split())


def _machine(table: _Table, name: str) -> Machine:
    if not NAME.fullmatch(name):
        raise Failure(f"{table.where}: '{name}' cannot be a machine's name", "letters, digits, _ . - are taken")
    mac = as_mac(table.text("mac"))
    serial = table.text("serial", SERIAL)
    if mac and not MAC.fullmatch(mac):
        raise Failure(f"{table.where}: machines.{name}.mac: '{mac}' is not six pairs of hexadecimal digits like 0c:c4:7a:12:34:56")
    if not mac and not serial:
        raise Failure(f"{table.where}: machines.{name} has neither mac nor serial, so nothing to know it by")
    words = check_words(table.text("words"), f"{table.where}: machines.{name}.words") if "words" in table.values else None
    bmc = _bmc(table.table("bmc"), name) if "bmc" in table.values else None
    machine = Machine(name, mac, serial, table.text("boot", NAME), words, bmc)
    table.finish()
    return machine


def _bmc(table: _Table, name: str) -> Bmc:
    plain = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,254}")
    bmc = Bmc(
        address=table.text("address", re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,254}")),
        user=table.text("user", plain),
        protocol=table.text("protocol", None) or "ipmi",
        password_file=table.text("password_file", PASSWORD_PATH),
        password_variable=table.text("password_variable", re.compile(r"[A-Za-z_][A-Za-z0-9_]*")),
        insecure=table.flag("insecure"),
    )
    table.finish()
    where = f"{table.where}: machines.{name}.bmc"
    if not bmc.address or not bmc.user:
        raise Failure(f"{where} needs address and user")
    if bmc.protocol not in PROTOCOLS:
        raise Failure(f"{where}.protocol: '{bmc.protocol}' is neither of {', '.join(PROTOCOLS)}")
    if bool(bmc.password_file) == bool(bmc.password_variable):
        raise Failure(f"{where} needs one of password_file and password_variable")
    return bmc


class _Table:
    """One table of the file. Each method reads a key and checks the type of its value. `finish` refuses all other keys."""

    def __init__(self, where: str, prefix: str, values: object):
        self.where = where
        self._prefix = prefix
        if not isinstance(values, dict):
            raise Failure(f"{where}: {prefix.rstrip('.')} must be a table")
        self.values: dict[str, object] = values
        self._taken: set[str] = set()

    def text(self, key: str, pattern: re.Pattern[str] | None = None) -> str:
        """Returns the text of a key; empty if the key does not exist."""
        self._taken.add(key)
        if key not in self.values:
            return ""
        value = self.values[key]
        if not isinstance(value, str):
            raise Failure(f"{self.where}: {self._prefix}{key} must be a text in quotes")
        if pattern and not pattern.fullmatch(value):
            raise Failure(f"{self.where}: {self._prefix}{key}: '{shown(value, 100)}' is not acceptable")
        return value

    def number(self, key: str, otherwise: int, maximum: int) -> int:
        self._taken.add(key)
        value = self.values.get(key, otherwise)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
            raise Failure(f"{self.where}: {self._prefix}{key} must be a number from 0 to {maximum}")
        return value

    def flag(self, key: str) -> bool:
        self._taken.add(key)
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise Failure(f"{self.where}: {self._prefix}{key} must be true or false")
        return value

    def table(self, key: str) -> _Table:
        self._taken.add(key)
        return _Table(self.where, f"{self._prefix}{key}.", self.values.get(key, {}))

    def finish(self) -> None:
        """Raises Failure for a key that no method has read."""
        for key in self.values:
            if key not in self._taken:
                known = ", ".join(sorted(self._taken))
                raise Failure(f"{self.where}: there is no key '{self._prefix}{key}'", f"known here: {known}")

# SPDX-License-Identifier: BSL-1.0
"""The file of a study: arms, swept settings, loads, repeats and checks (docs/study.md).

A study may run for days, so all members are checked before the first run. Each error is one sentence with the file, the line, and what to
write instead.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.compare.plan import CORES_MAX, NAME, SYSTEMS, Workload, check_workload
from tools.errors import Failure, UsageError
from tools.foreign import shown
from tools.model import cpu_model
from tools.study import settings
from tools.study.schema import BASELINES
from tools.study.settings import Value
from tools.toml_lines import line_of, lines
from tools.toml_tables import Mistake, is_number, list_of, made, parse, read_text, require

ARMS_MAX, LOADS_MAX, VALUES_MAX, REPEATS_MAX, LEFT_OUT_MAX = 12, 100, 2000, 1000, 200
RATES_MAX = 200
ORDERS = ("random", "given")
# Of a NetPIPE: ./neap fit knows its rows by the name. The model machine measures powers of two (tools/model/pair.py).
PING_PONG_NAME = re.compile(r"(ping_pong|netpipe)[A-Za-z_-]{0,21}")
MESSAGE_BYTES, TRIPS_MAX = tuple(1 << shift for shift in range(1, 21)), 100_000
# Members of [[leave_out]] beside the settings.
LEFT_OUT_BY = ("arm", "cores", "load", "rate")
WINDOW_MS_DEFAULT = 100.0
SYNTAX_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


@dataclasses.dataclass(frozen=True)
class Arm:
    """One system with its fixed words. A swept setting that a word fixes is not swept for this arm.

    model: the modelled CPU. machine: in its place a real machine, with its name in the machines' file; address: where its control answers,
    or the name of an application that runs here; service: where memcached answers, if not on the same host and port 11211; client: further
    words for `./neap load`, such as --agents."""

    name: str
    system: str = "neap"
    about: str = ""
    model: str = "e5-2690"
    cores: tuple[int, ...] = (1,)
    words: tuple[str, ...] = ()
    machine: str = ""
    address: str = ""
    service: str = ""
    client: tuple[str, ...] = ()

    @property
    def is_linux(self) -> bool:
        return self.system != "neap"

    @property
    def place(self) -> str:
        """The modelled CPU, or the real machine."""
        return self.machine or self.model


@dataclasses.dataclass(frozen=True)
class Baselines:
    """Runs without requests, for each arm, number of cores and combination of settings except itr_us. window_ms: null: the study's."""

    idle: bool = False
    polling: bool = False
    window_ms: float | None = None


@dataclasses.dataclass(frozen=True)
class Checks:
    """A run that misses one is kept as failed. rate_within: a share of the scheduled rate; 0: not checked. no_losses: of frames.
    log_is_load: the log's requests are those of the load."""

    rate_within: float = 0.01
    no_losses: bool = True
    log_is_load: bool = False


@dataclasses.dataclass(frozen=True)
class PingPong:
    """NetPIPE between two machines of the same arm. sizes: bytes of messages. repeats: round trips of a trial."""

    name: str = "ping_pong"
    about: str = ""
    sizes: tuple[int, ...] = (64, 1024, 8192)
    repeats: int = 50


@dataclasses.dataclass(frozen=True)
class Message:
    """One size of a NetPIPE, in place of a load."""

    of: PingPong
    bytes: int

    @property
    def name(self) -> str:
        return f"{self.of.name}.{self.bytes}"


@dataclasses.dataclass(frozen=True)
class Study:
    """axes: by the setting's name, its values. loads: one for each rate. messages: NetPIPE's. left_out: conditions, each by member its
    values."""

    title: str
    seed: int
    order: str
    repeats: int
    arms: tuple[Arm, ...]
    axes: Mapping[str, tuple[Value, ...]]
    loads: tuple[Workload, ...]
    messages: tuple[Message, ...]
    baselines: Baselines
    checks: Checks
    left_out: tuple[Mapping[str, tuple[Value, ...]], ...]
    log: bool
    cable_us: float
    any_connection: bool
    warm_up_ms: float
    window_ms: float
    text: str = dataclasses.field(repr=False, compare=False, default="")
    path: str = "study.toml"

    def mistake(self, message: str, *path: str | int) -> UsageError:
        """Returns the error for a member, with its line."""
        return UsageError(f"{self.path}, line {line_of(path, lines(self.text))}: {message}")


def read(path: Path) -> Study:
    """Raises Failure or UsageError with one sentence that names file, line and remedy."""
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Failure(f"{path}: {why}; name a file like tools/study/studies/itr-dvfs.toml") from None
    return parsed(text, str(path))


def parsed(text: str, name: str) -> Study:
    try:
        table = parse(text)
    except ValueError as error:
        match = SYNTAX_LINE.search(str(error))
        line = match[1] if match else str(text.count("\n"))
        why = SYNTAX_LINE.sub("", str(error)).removesuffix(" (at end of document)")
        raise UsageError(f"{name}, line {line}: no TOML: {shown(why, 200)}; docs/study.md shows the form") from None
    try:
        return _study(table, text, name)
    except Mistake as mistake:
        raise UsageError(f"{name}, line {line_of(mistake.path, lines(text))}: {mistake}") from None


MEMBERS = (
    *("title", "seed", "order", "repeats", "model", "warm_up_ms", "window_ms", "log", "cable_us", "any_connection"),
    *("arms", "settings", "loads", "ping_pong", "baselines", "checks", "leave_out"),
)


def _study(table: Mapping[str, Any], text: str, name: str) -> Study:
    for key in table:
        require(key in MEMBERS, f"there is no member '{shown(key, 40)}'; the members are {', '.join(MEMBERS)}", key)
    title = table.get("title", "a study")
    good = isinstance(title, str) and 0 < len(title) <= 120 and title.isprintable()
    require(good, "title is a text of 1 to 120 characters", "title")
    seed, repeats, order = table.get("seed", 1), table.get("repeats", 1), table.get("order", ORDERS[0])
    require(is_number(seed, 0, (1 << 32) - 1), "seed is a whole number from 0 to 2^32 - 1", "seed")
    require(is_number(repeats, 1, REPEATS_MAX), f"repeats is a whole number from 1 to {REPEATS_MAX}", "repeats")
    require(order in ORDERS, f"order is {' or '.join(ORDERS)}, not {shown(order, 40)}", "order")
    flags = {key: table.get(key, False) for key in ("log", "any_connection")}
    for key, value in flags.items():
        require(isinstance(value, bool), f"{key} is true or false", key)
    numbers = {key: table.get(key, default) for key, default in (("warm_up_ms", 50.0), ("window_ms", 0.0), ("cable_us", 0.0))}
    for key, value in numbers.items():
        is_number_of_it = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 60_000
        require(is_number_of_it and (key != "window_ms" or key not in table or value > 0), f"{key} is a number up to 60000, above 0", key)
    study = Study(
        title=title,
        seed=seed,
        order=order,
        repeats=repeats,
        arms=_arms(table),
        axes=_axes(table.get("settings", {})),
        loads=_loads(table, numbers),
        messages=_messages(table),
        baselines=made(Baselines, table.get("baselines", {}), "baselines"),
        checks=made(Checks, table.get("checks", {}), "checks"),
        left_out=(),
        log=flags["log"],
        cable_us=float(numbers["cable_us"]),
        any_connection=flags["any_connection"],
        warm_up_ms=float(numbers["warm_up_ms"]),
        window_ms=float(numbers["window_ms"]) or WINDOW_MS_DEFAULT,
        text=text,
        path=name,
    )
    require(study.checks.rate_within < 1, "checks.rate_within is a share below 1, like 0.01", "checks", "rate_within")
    is_logged = study.log or not study.checks.log_is_load
    require(is_logged, "checks.log_is_load needs the log; add log = true above the first table", "checks", "log_is_load")
    _check_settings(study)
    _check_loads(study)
    return dataclasses.replace(study, left_out=_left_out(table, study))


def _arms(table: Mapping[str, Any]) -> tuple[Arm, ...]:
    default = table.get("model", "e5-2690")
    require(default in cpu_model.names(), f"model is one of {', '.join(cpu_model.names())}", "model")
    found: list[Arm] = []
    for at, each in enumerate(list_of(table, "arms", ARMS_MAX)):
        given = dict(each) if isinstance(each, dict) else each
        if isinstance(given, dict) and isinstance(given.get("cores"), int):
            given["cores"] = [given["cores"]]
        arm = made(Arm, {"model": default, **given} if isinstance(given, dict) else given, "arms", at)
        _check_arm(arm, at, [one.name for one in found])
        found.append(arm)
    require(bool(found), 'there is no arm; write [[arms]] with name = "Neap"')
    return tuple(found)


def _check_arm(arm: Arm, at: int, names: Sequence[str]) -> None:
    is_name = NAME.fullmatch(arm.name) is not None
    require(is_name, f"'{arm.name}' is no name: letters, digits, spaces and _ . - only, at most 40", "arms", at, "name")
    require(arm.name not in names, f"two arms are named '{arm.name}'; give each its own name", "arms", at, "name")
    require(arm.system in SYSTEMS, f"system is one of {', '.join(SYSTEMS)}, not '{arm.system}'", "arms", at, "system")
    require(arm.model in cpu_model.names(), f"model is one of {', '.join(cpu_model.names())}", "arms", at, "model")
    for number in arm.cores:
        require(1 <= number <= CORES_MAX or bool(arm.machine), f"cores is 1 to {CORES_MAX}, not {number}", "arms", at, "cores")
    if arm.machine:
        message = "a real machine runs neap here; leave system out, or measure Linux there with ./neap load and neap-trace"
        require(not arm.is_linux, message, "arms", at, "system")
        require(bool(arm.address), "a real machine needs its address; add address = 'HOST'", "arms", at, "machine")
        require(len(arm.cores) == 1, "a real machine has one number of cores", "arms", at, "cores")
    else:
        is_plain = not (arm.address or arm.service or arm.client)
        require(is_plain, "address, service and client belong to an arm with machine = NAME", "arms", at)
    for number, word in enumerate(arm.words):
        try:
            settings.check_words([word], arm.system, None if arm.machine else cpu_model.load(arm.model))
        except UsageError as error:
            raise Mistake(error.message, ("arms", at, "words", number)) from None
    try:
        settings.check_words(arm.words, arm.system, None if arm.machine else cpu_model.load(arm.model))
    except UsageError as error:
        raise Mistake(f"{error.message}; {error.hint}" if error.hint else error.message, ("arms", at, "words")) from None


def _axes(table: Any) -> dict[str, tuple[Value, ...]]:
    require(isinstance(table, dict), "settings is a table, written [settings]", "settings")
    found = {}
    for name, given in table.items():
        values = _values(given, "settings", name)
        require(0 < len(values) <= VALUES_MAX, f"{name} is a list of 1 to {VALUES_MAX} values", "settings", name)
        for at, value in enumerate(values):
            is_value = isinstance(value, (bool, int, float, str))
            require(is_value, f"{name} takes numbers, texts, true or false", "settings", name, at)
        plain = ["on" if value is True else "off" if value is False else value for value in values]
        for at, value in enumerate(plain):
            require(value not in plain[:at], f"{name} has {shown(value, 40)} twice; leave one out", "settings", name, at)
        found[name] = tuple(plain)
    if "pstate" in found and "frequency_ghz" in found:
        later = [name for name in found if name in ("pstate", "frequency_ghz")][1]
        raise Mistake("pstate and frequency_ghz are one setting; leave one out", ("settings", later))
    return found


def _values(given: Any, *path: str | int) -> list[Any]:
    """Returns the values of a list, of a range such as { from = 2, to = 500, step = 2 }, or a single value."""
    if not isinstance(given, dict):
        return given if isinstance(given, list) else [given]
    good = set(given) == {"from", "to", "step"} and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in given.values()
    )
    require(good and given["step"] > 0 and given["from"] <= given["to"], "a range is { from = 2, to = 500, step = 2 }", *path)
    low, high, step = given["from"], given["to"], given["step"]
    count = int((high - low) / step + 1e-9) + 1
    require(count <= VALUES_MAX, f"a range has at most {VALUES_MAX} values, not {count}; take a larger step", *path)
    return [low + number * step if isinstance(low + step, int) else round(low + number * step, 9) for number in range(count)]


def _check_settings(study: Study) -> None:
    """Each value is one that each arm takes, unless the arm fixes that setting."""
    for name, values in study.axes.items():
        swept = [arm for arm in study.arms if not is_fixed(arm, name)]
        if not swept:
            fixed = f"each arm fixes {name} by a word; leave it out of [settings], or out of the words"
            raise Mistake(fixed, ("settings", name))
        for arm in swept:
            cpu = None if arm.machine else cpu_model.load(arm.model)
            for at, value in enumerate(values):
                try:
                    settings.word(name, value, arm.system, cpu)
                except UsageError as error:
                    raise Mistake(error.message, ("settings", name, at)) from None


def is_fixed(arm: Arm, name: str) -> bool:
    """True if a word of the arm fixes this setting."""
    word = settings.WORDS.get(name, name)
    fixing = (word, "governor") if word == "pstate" else (word,)
    return any(each.partition("=")[0] in fixing for each in arm.words)


def _loads(table: Mapping[str, Any], numbers: Mapping[str, float]) -> tuple[Workload, ...]:
    found: list[Workload] = []
    for at, each in enumerate(list_of(table, "loads", LOADS_MAX)):
        given = dict(each) if isinstance(each, dict) else each
        rates = given.pop("rate", Workload.rate) if isinstance(given, dict) else 0
        rates = _values(rates, "loads", at, "rate")
        require(0 < len(rates) <= RATES_MAX, f"rate is a number, or a list of 1 to {RATES_MAX}", "loads", at, "rate")
        for number, rate in enumerate(rates):
            good = isinstance(rate, (int, float)) and not isinstance(rate, bool) and 0 <= rate <= 1e8
            require(good, "rate is a number of requests/s from 0 to 1e8", "loads", at, "rate", number)
            require(rate not in rates[:number], f"rate has {rate:g} twice; leave one out", "loads", at, "rate", number)
            if isinstance(given, dict):
                given.setdefault("warm_up_ms", numbers["warm_up_ms"])
                if "requests" not in given and (numbers["window_ms"] or rate == 0):
                    given.setdefault("window_ms", numbers["window_ms"] or WINDOW_MS_DEFAULT)
            one = made(Workload, {**given, "rate": rate} if isinstance(given, dict) else given, "loads", at)
            named = one.name not in [load.name for load in found] or bool(number)
            require(named, f"two loads are named '{one.name}'; give each its own name", "loads", at, "name")
            is_name = NAME.fullmatch(one.name) is not None and one.name not in BASELINES
            require(is_name, f"'{one.name}' is no name: letters, digits and _ . - only, at most 40", "loads", at, "name")
            found.append(one)
    return tuple(found)


def _messages(table: Mapping[str, Any]) -> tuple[Message, ...]:
    found: list[Message] = []
    for at, each in enumerate(list_of(table, "ping_pong", LOADS_MAX)):
        one = made(PingPong, each, "ping_pong", at)
        is_name = PING_PONG_NAME.fullmatch(one.name) is not None
        message = f"'{one.name}' is no name of a NetPIPE: ping_pong or netpipe, and then letters, _ and - only, at most 30"
        require(is_name, message, "ping_pong", at, "name")
        require(one.name not in [message.of.name for message in found], f"two are named '{one.name}'", "ping_pong", at, "name")
        good = 0 < len(set(one.sizes)) == len(one.sizes) and all(size in MESSAGE_BYTES for size in one.sizes)
        require(good, "sizes is a list of powers of two from 2 to 1048576 bytes, each once", "ping_pong", at, "sizes")
        require(1 <= one.repeats <= TRIPS_MAX, f"repeats is 1 to {TRIPS_MAX} round trips, not {one.repeats}", "ping_pong", at, "repeats")
        found += [Message(one, size) for size in sorted(one.sizes)]
    return tuple(found)


def _check_loads(study: Study) -> None:
    is_there = bool(study.loads or study.messages)
    require(is_there, 'there is no load; write [[loads]] with name = "etc", mix = "etc" and a rate, or [[ping_pong]]')
    real = next((arm.name for arm in study.arms if arm.machine), "")
    message = f"NetPIPE runs between two modelled machines, and the arm {real} is a real one; leave [[ping_pong]] out"
    require(not (study.messages and real), message, "ping_pong", 0)
    at, name = -1, ""
    for one in study.loads:
        at, name = (at, name) if one.name == name else (at + 1, one.name)
        for arm in study.arms:
            check_workload(one, arm.cores, "loads", at)


def _left_out(table: Mapping[str, Any], study: Study) -> tuple[dict[str, tuple[Value, ...]], ...]:
    found = []
    known = (*LEFT_OUT_BY, *study.axes)
    for at, each in enumerate(list_of(table, "leave_out", LEFT_OUT_MAX)):
        require(isinstance(each, dict) and bool(each), "leave_out is a table with at least one member", "leave_out", at)
        one = {}
        for name, given in each.items():
            require(name in known, f"leave_out has no member '{shown(name, 40)}'; write one of {', '.join(known)}", "leave_out", at, name)
            values = given if isinstance(given, list) else [given]
            plain = tuple("on" if value is True else "off" if value is False else value for value in values)
            there = _known_values(study, name)
            for value in plain:
                matches = any(_equal(value, each) for each in there)
                shown_values = " ".join(shown(value, 40) for value in there)
                require(matches, f"no run has {name} = {shown(value, 40)}; there are {shown_values}", "leave_out", at, name)
            one[name] = plain
        found.append(one)
    return tuple(found)


def _known_values(study: Study, name: str) -> Sequence[Value]:
    if name == "arm":
        return [arm.name for arm in study.arms]
    if name == "cores":
        return sorted({number for arm in study.arms for number in arm.cores})
    if name == "load":
        return list(dict.fromkeys(load.name for load in (*study.loads, *study.messages)))
    if name == "rate":
        return list(dict.fromkeys(load.rate for load in study.loads))
    return study.axes[name]


def _equal(wanted: Any, value: Value) -> bool:
    """A text may be a pattern, such as 'etc*'."""
    if isinstance(wanted, str) and isinstance(value, str):
        return fnmatch.fnmatchcase(value, wanted)
    return isinstance(wanted, (int, float)) and isinstance(value, (int, float)) and float(wanted) == float(value)


def is_left_out(study: Study, values: Mapping[str, Value]) -> bool:
    """True if a condition holds for all of its members. `values`: of one run, by member; a setting that the run lacks is not there."""
    return any(
        all(name in values and any(_equal(each, values[name]) for each in wanted) for name, wanted in one.items()) for one in study.left_out
    )

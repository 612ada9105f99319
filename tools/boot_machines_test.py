# SPDX-License-Identifier: BSL-1.0
"""The machines' file: valid content is accepted. Other content is refused with an error that names it."""

from pathlib import Path

import pytest

from tools import boot_machines
from tools.errors import Failure

GOOD = """
boot = "memcached"
timeout_s = 7
[words]
memcached = "memory=4G   itr=8us"
[machines.one]
mac = "0C-C4-7A-12-34-56"
words = ""
[machines.two]
serial = "S-1.2_x"
boot = "hello"
[machines.two.bmc]
address = "10.0.0.11"
user = "admin"
protocol = "redfish"
password_variable = "TWO_PASSWORD"
insecure = true
"""


def test_a_whole_file_is_read() -> None:
    machines = boot_machines.parse(GOOD, "f")
    assert (machines.boot, machines.timeout_s, machines.words) == ("memcached", 7, {"memcached": "memory=4G itr=8us"})
    one, two = machines.machines
    assert (one.name, one.mac, one.words, one.boot, one.bmc) == ("one", "0c:c4:7a:12:34:56", "", "", None)
    assert (two.serial, two.words, two.boot) == ("S-1.2_x", None, "hello")
    assert two.bmc == boot_machines.Bmc("10.0.0.11", "admin", "redfish", "", "TWO_PASSWORD", True)


def test_a_machine_is_found_by_each_of_its_names() -> None:
    machines = boot_machines.parse(GOOD, "f")
    assert machines.find("one") is machines.find("0C:C4:7A:12:34:56") is machines.find("0c-c4-7a-12-34-56") is machines.machines[0]
    assert machines.find("S-1.2_x") is machines.find("two")
    with pytest.raises(Failure, match=r"no machine 'three' \(machines: one, two\)"):
        machines.find("three")


def test_an_empty_name_is_no_machine() -> None:
    """If RACK is not set, `./neap power cycle "$RACK"` passes an empty name. It must not match a machine without a serial number."""
    machines = boot_machines.parse("[machines.a]\nserial='s'\n[machines.b]\nmac='52:54:00:00:00:01'\n", "test")
    with pytest.raises(Failure, match="no machine '' \\(machines: a, b\\)"):
        machines.find("")


def test_the_example_in_the_module_is_valid() -> None:
    assert boot_machines.__doc__
    lines = [line for line in boot_machines.__doc__.splitlines() if line.startswith("    ")]
    assert boot_machines.parse("\n".join(lines), "example").machines[0].bmc is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boot = ", "f: "),
        ("bot = 'memcached'", "there is no key 'bot'"),
        ("boot = 7", "boot must be a text"),
        ("timeout_s = -1", "timeout_s must be a number"),
        ("timeout_s = true", "timeout_s must be a number"),
        ("machines = 3", "machines must be a table"),
        ("[machines.a]\nboot = 'x'", "machines.a has neither mac nor serial"),
        ("[machines.a]\nmac = '0c:c4:7a:12:34'", "not six pairs"),
        ("[machines.a]\nmac = '0c:c4:7a:12:34:5g'", "not six pairs"),
        ("[machines.a]\nserial = 'a b'", "machines.a.serial"),
        ("[machines.a]\nserial = '../x'", "machines.a.serial"),
        ("[machines.'a/b']\nserial = 's'", "cannot be a machine's name"),
        ("[machines.a]\nserial = 's'\nwords = 'x=$y'", "the character '$'"),
        ("[machines.a]\nserial = 's'\nwords = \"x='y'\"", 'the character "\'"'),
        ("[words]\nmemcached = 'a\\nb'", "words.memcached: the character '\\\\'"),
        ('[words]\nmemcached = "a\\nb"', "words.memcached: the character"),
        (f"[words]\nmemcached = '{'x' * 1025}'", "more than 1024 bytes"),
        ("[machines.a]\nserial = 's'\n[machines.b]\nserial = 's'", "machines a and b have the same serial"),
        ("[machines.a]\nserial = 's'\n[machines.a.bmc]\naddress = 'h'", "needs address and user"),
        ("[machines.a]\nserial = 's'\n[machines.a.bmc]\naddress = 'h'\nuser = 'u'", "one of password_file and password_variable"),
        ("[machines.a]\nserial = 's'\n[machines.a.bmc]\naddress = '-h'\nuser = 'u'", "machines.a.bmc.address"),
        ("[machines.a]\nserial = 's'\n[machines.a.bmc]\npassword = 'p'", "password"),
    ],
)
def test_an_error_is_refused_in_one_line(text: str, expected: str) -> None:
    with pytest.raises(Failure) as refused:
        boot_machines.parse(text, "f")
    assert expected in str(refused.value)
    assert "\n" not in refused.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot read .*nothing.toml"):
        boot_machines.read(tmp_path / "nothing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Failure, match="not UTF-8"):
        boot_machines.read(tmp_path / "bytes.toml")


def test_an_image_that_the_tree_lacks_is_named_with_its_key() -> None:
    machines = boot_machines.parse(GOOD, "f")
    machines.require_entries(["memcached", "hello"], "f")
    with pytest.raises(Failure, match="machines.two.boot names 'hello', which this tree does not have"):
        machines.require_entries(["memcached"], "f")
    with pytest.raises(Failure, match="boot names 'memcached'"):
        machines.require_entries(["hello"], "f")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a = " + "{a=" * 5000, "nested too deeply"),
        # Without a bound, tomllib takes 20 GB for the first of these.
        ("a." * 100_000 + "a = 1", "more than 16 dots"),
        ("[" + "a." * 50_000 + "a]", "more than 16 dots"),
        ('boot = "" # "\n' + "a." * 50 + 'a = 1 #"', "more than 16 dots .*at line 2"),
        ('boot = """\n"""', "a text of several lines"),
        ("timeout_s = " + "9" * 3000, "a number from 0 to 3600"),
        ("timeout_s = " + "9" * 5000, "Exceeds the limit"),
        ("timeout_s = inf", "a number from 0 to 3600"),
        ('"\\u001b[31m" = 1', r"no key '\\x1b\[31m'"),
        ('[machines.a]\nserial="a"\n[machines.a.bmc]\naddress="a"\nuser="u"\npassword_file="\\u0000"', "is not acceptable"),
        ('[machines.a]\nserial="a"\n[machines.a.bmc]\naddress="u@b"\nuser="u"\npassword_file="p"', "is not acceptable"),
    ],
)
def test_a_hostile_file_is_one_printable_line(text: str, expected: str) -> None:
    with pytest.raises(Failure, match=expected) as refused:
        boot_machines.parse(text, "machines.toml")
    assert all(line.isprintable() for line in refused.value.report().splitlines())


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(Failure, match="more than 1048576 bytes"):
        boot_machines.read(Path("/dev/zero"))

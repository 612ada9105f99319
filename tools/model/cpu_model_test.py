# SPDX-License-Identifier: BSL-1.0
"""The files of modelled CPUs: each number names its source, and a file with a mistake is refused in one sentence."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.errors import Failure
from tools.model import cpu_model

# A document of Intel's with its number, a signature of SDM volume 4, or an admission.
SOURCE = re.compile(r"\bassumed\b|\bSDM (volume )?\d|\boptimization manual\b|\bIntel \d{6}\b|\b06_[0-9A-F]{2}H\b|\[[A-Z0-9]+\]")
NO_NUMBERS = ("name", "brand", "qemu_cpu", "qemu_features")


def numbers_without_source(text: str) -> Iterator[str]:
    """The keys whose row, or one of whose rows for a list, has no comment with a source; and tags that the file's head does not explain."""
    head = text[: text.index("\n[")]
    rows = re.findall(r"^(\w+) = (\[\n(?:.*\n)*?\].*|.*)$", text, flags=re.MULTILINE)
    assert len(rows) > 40
    for key, row in rows:
        if key in NO_NUMBERS:
            continue
        comment = "".join(re.findall(r"#.*", row))
        if not SOURCE.search(comment):
            yield key
        yield from (f"{key}: {tag}" for tag in re.findall(r"\[[A-Z0-9]+\]", comment) if tag not in head)


@pytest.mark.parametrize("name", cpu_model.names())
def test_each_number_names_its_source_or_says_assumed(name: str) -> None:
    assert not list(numbers_without_source((cpu_model.MODELS / f"{name}.toml").read_text()))


def test_a_row_without_a_source_is_found() -> None:
    text = (cpu_model.MODELS / "e5-2690.toml").read_text()
    for wrong, found in (("tdp_w = 135.0", "tdp_w"), ("tdp_w = 135.0 # as usual", "tdp_w"), ("tdp_w = 135.0 # [NOTES]", "tdp_w: [NOTES]")):
        assert list(numbers_without_source(re.sub(r"tdp_w = .*", wrong, text))) == [found]
    assert list(numbers_without_source(re.sub(r"(turbo_ratios = \[).*", r"\1\n  38, 33,\n]", text))) == ["turbo_ratios"]


@pytest.mark.parametrize("name", cpu_model.names())
def test_a_core_has_one_thread_unless_smt_is_wanted(name: str) -> None:
    assert cpu_model.load(name).threads == 1 and "smt.threads = 1\n" in cpu_model.load(name).flat()
    assert cpu_model.load(name, smt=True).threads == 2 and "smt.threads = 2\n" in cpu_model.load(name, smt=True).flat()


@pytest.mark.parametrize(
    ("row", "wrong", "said"),
    [
        (r"base_ratio = \d+", "base_ratio = 290", "frequency.base_ratio takes a whole number from 1 to 100"),
        (r"base_ratio = \d+", "", "frequency.base_ratio is missing"),
        (r"base_ratio = \d+", "base_ratio = 29\nbase = 1", "unknown key frequency.base"),
        (r"thread_speed = [\d.]+", "thread_speed = 1.5", "smt.thread_speed takes a number from 0.1 to 1"),
        (r"turbo_ratios = .*", "turbo_ratios = [33, 38]", "turbo_ratios must fall"),
        (r"hwp = false", "hwp = 0", "frequency.hwp takes true or false"),
    ],
)
def test_a_file_with_a_mistake_is_refused(row: str, wrong: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(re.sub(row, wrong, (cpu_model.MODELS / "e5-2690.toml").read_text(), count=1))
    with pytest.raises(Failure, match=said):
        cpu_model.load(str(path))


def test_threads_that_a_cpu_lacks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(re.sub(r"threads = 2", "threads = 1", (cpu_model.MODELS / "e5-2690.toml").read_text()))
    assert tomllib.loads(path.read_text())["smt"]["threads"] == 1
    with pytest.raises(Failure, match="one thread for each core"):
        cpu_model.load(str(path), smt=True)

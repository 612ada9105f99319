# SPDX-License-Identifier: BSL-1.0
"""docs/memcached.md has each word of the command line, and each refused option with its reason."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = (FOLDER.parents[1] / "docs/memcached.md").read_text()
OPTIONS = (FOLDER / "options.cpp").read_text()


def test_each_word_is_documented() -> None:
    words = re.findall(r'arguments\.(?:number|bytes|flag|text|choice)\(\s*"([^"]+)"', OPTIONS)
    words += re.findall(r'constexpr std::string_view main_word = "([^"]+)", bytes_word = "([^"]+)"', OPTIONS)[0]
    assert len(words) > 10
    for word in words:
        assert f"`{word}`" in PAGE or f"`{word}=`" in PAGE, word


def test_each_refused_option_is_documented_with_its_reason() -> None:
    reasons = dict(re.findall(r'constexpr std::string_view (no_\w+) =\s*"([^"]*)";', OPTIONS))
    table = OPTIONS.partition("RefusedOption refused[]")[2].partition("};")[0]
    rows = re.findall(r'\{"([^"]+)",\s*(?:"([^"]*)"|(no_\w+))\}', table)
    assert len(rows) > 80
    words = PAGE.partition("## Words")[2].partition("## Commands")[0].splitlines()
    for name, text, constant in rows:
        (row,) = [line for line in words if line.startswith("| `") and f"`{name}`" in line.split("|")[1]]
        assert row.split("|")[2].strip() == (text or reasons[constant]), name

# SPDX-License-Identifier: BSL-1.0
"""The documented schema is the one that is written."""

import re

from tools import build
from tools.study import schema


def test_the_columns_are_those_of_the_documentation():
    text = (build.REPOSITORY / "docs/study.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [a-z, A-Z]+ \| (.*) \|$", text[text.index("| column | type | meaning |") :], re.M)
    assert rows == [(name, meaning) for name, _, meaning in schema.COLUMNS]


def test_an_unknown_value_is_null_and_a_swept_setting_has_a_column():
    table = schema.runs_table([{"run": "a", "set_rx_ring": 512}, {"run": "b", "set_tso": "off"}], ["rx_ring", "tso"])
    assert table["p99_us"].null_count == 2 and table["set_rx_ring"].to_pylist() == [512.0, None]
    assert table["set_tso"].to_pylist() == [None, "off"] and table.column_names[: len(schema.NAMES)] == list(schema.NAMES)

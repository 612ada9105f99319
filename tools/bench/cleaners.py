# SPDX-License-Identifier: BSL-1.0
"""`./neap bench cleaners`: the figures that the published studies' cleaners give for runs of which the truth is known.

Synthetic runs are written in both layouts of the studies (tools/log/study.py) and cleaned. Rows "arithmetic" are this project's statement
of what the scripts compute (tools/log/study_cleaners.py). With NEAP_CLEANERS=DIR, a checkout of the studies' repository, the scripts
themselves run too: rows "script".
"""

from collections.abc import Sequence

from tools import pythons
from tools.bench import apart
from tools.bench.rows import Row, aligned

PPM_MAX = 1000.0


def rows() -> list[Row]:
    found = apart.measured(pythons.log_environment(), "tools.log.study_cleaners", "the cleaners of the published studies")
    return [_row(each) for each in found]


def _row(each: dict) -> Row:
    difference_ppm = 1e6 * abs(each["found"] - each["truth"]) / each["truth"]
    name = f"{each['system']}, {each['by']}, {each['run']}: {each['figure']}"
    return Row(name, "ppm from the truth", difference_ppm, PPM_MAX, each["found"], f"truth {each['truth']:,.10g}")


def show(found: Sequence[Row]) -> str:
    cells = [("run", "cleaned", "difference", "target", "truth")]
    cells += [(row.name, f"{row.peer:,.10g}", f"{row.value:.1f} ppm", f"< {row.target:g}", row.peer_is) for row in found]
    return aligned(cells)

# SPDX-License-Identifier: BSL-1.0
"""`./neap machine`: one list of facts about a machine, the same on Neap and on Linux, and the differences of two lists.

docs/machine-list.md describes the members. Programs use `differences`, `lines` and `text`.
"""

from tools.machine_list.compare import Difference, differences, forbids, lines
from tools.machine_list.show import difference_text, text

__all__ = ["Difference", "difference_text", "differences", "forbids", "lines", "text"]

# SPDX-License-Identifier: BSL-1.0
"""Hostile peers that attack a running image, and an ordinary client (the bystander) that measures how much slower it is served.

`python -m hostile ATTACK --cores N` runs one attack in the current network namespace (tests/linux_guest/namespace.py). It prints the result
as one JSON object. `tests/system/hostile_test.py` checks the results; `./neap bench hostile` prints the latencies.
"""

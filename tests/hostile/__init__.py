# SPDX-License-Identifier: BSL-1.0
"""Hostile peers against a running image, and a bystander that measures what they cost it.

`python -m hostile ATTACK --cores N` runs one attack in the network namespace in which it is started (tests/linux_guest/namespace.py) and
prints its result as one JSON object. `tests/system/hostile_test.py` judges the results; `./neap bench hostile` prints the latencies.
"""

# SPDX-License-Identifier: BSL-1.0
"""neap-trace: Neap's log of interrupts, written on a stock Linux by BPF programs (docs/linux-log.md)."""

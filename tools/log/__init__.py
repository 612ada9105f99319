# SPDX-License-Identifier: BSL-1.0
"""`./neap log`: fetches, collects, decodes and plots the cores' logs. docs/log-format.md describes the format.

fetch.py and collect.py need only the standard library. Decoding and reports need numpy and PyArrow (requirements.txt here).
"""

# SPDX-License-Identifier: BSL-1.0
"""`./neap log`: fetches, collects, decodes and plots the cores' logs. docs/log-format.md describes the format.

layout.py, fetch.py and collect.py need only the standard library. The other modules need numpy, PyArrow and Plotly (requirements.txt in
this folder).
"""

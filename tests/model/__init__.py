# SPDX-License-Identifier: BSL-1.0
"""The model machine, judged by what guests read and by repetition."""

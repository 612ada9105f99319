# SPDX-License-Identifier: BSL-1.0
"""The study: from one file to fronts, fits, searches, tuning and pictures (docs/study.md)."""

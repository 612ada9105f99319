# SPDX-License-Identifier: BSL-1.0
"""A small Linux guest from Debian's packages, as an independent judge of the soft card."""

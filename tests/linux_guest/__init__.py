# SPDX-License-Identifier: BSL-1.0
"""A small Linux guest from Debian's packages: the judge of the soft card that nobody here wrote."""

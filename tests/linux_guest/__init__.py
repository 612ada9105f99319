# SPDX-License-Identifier: BSL-1.0
"""A small Linux guest from Debian's packages, whose driver tests the soft card independently of ours."""

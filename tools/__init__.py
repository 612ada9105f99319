# SPDX-License-Identifier: BSL-1.0
"""The Python behind `./neap`: standard library only, so that a fresh machine can run it before anything is installed."""

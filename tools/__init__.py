# SPDX-License-Identifier: BSL-1.0
"""The Python behind `./neap`. It uses only the standard library, so that a fresh machine can run it before anything is installed."""

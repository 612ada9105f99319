# SPDX-License-Identifier: BSL-1.0
"""The model machine: an emulated machine whose CPUs, clock, energy and network are modelled on one virtual clock."""

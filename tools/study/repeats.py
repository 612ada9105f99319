# SPDX-License-Identifier: BSL-1.0
"""Which rows of a table are repeats of one setting."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Repeats:
    """The rows of each setting. `setting`: its number, for each row. `first`, `counts`: of each setting, the first row and the number of
    rows."""

    setting: np.ndarray
    first: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.first)

    def means(self, values: np.ndarray) -> np.ndarray:
        """The mean over each setting's rows."""
        return np.bincount(self.setting, values, len(self)) / self.counts

    def rows(self) -> list[np.ndarray]:
        """The rows of each setting, by their numbers."""
        return np.split(np.argsort(self.setting, kind="stable"), np.cumsum(self.counts)[:-1])

    def ordered(self, order: np.ndarray) -> Repeats:
        """The same, with the settings in another order."""
        return Repeats(np.argsort(order)[self.setting], self.first[order], self.counts[order])


def of_codes(codes: Sequence[np.ndarray]) -> Repeats:
    """Rows with equal numbers in all columns are of one setting. Settings are in the order of their first rows. The columns MUST have whole
    numbers from 0."""
    together = codes[0].astype(int)
    for column in codes[1:]:
        together = np.unique(together * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    _, first, setting = np.unique(together, return_index=True, return_inverse=True)
    return Repeats(setting, first, np.bincount(setting, minlength=len(first))).ordered(np.argsort(first))


def repeats(*columns: np.ndarray) -> Repeats:
    """Rows with equal values in all columns are of one setting. Missing numbers are equal to each other."""
    return of_codes([np.unique(column, return_inverse=True)[1] for column in columns])


def joined(parts: Sequence[Repeats]) -> Repeats:
    """The settings of several tables, one table after the other."""
    settings = np.cumsum([0, *(len(part) for part in parts)])
    rows = np.cumsum([0, *(len(part.setting) for part in parts)])
    return Repeats(
        np.concatenate([part.setting + at for part, at in zip(parts, settings)]),
        np.concatenate([part.first + at for part, at in zip(parts, rows)]),
        np.concatenate([part.counts for part in parts]),
    )

# SPDX-License-Identifier: BSL-1.0
"""The published studies' models of a server under a load with a given rate, over interrupt moderation (ITR) and frequency.

With f in GHz and times in us:

    6.1  t_work = Z / f^(1 + a)
    6.2  t_interrupt = phi * ITR
    6.3  latency = t_work + t_interrupt
    6.4  energy of an interrupt = gamma * phi * ITR * f^b, gamma in J/us
    power, a companion: log P = c0 + c1 log f + c2 log ITR

phi near 1: a request at the tail waits for one whole interval. a = -1: the clock has no influence on latency. a > 0: its influence exceeds
that of the time of instructions, because requests queue.

Z is the work at 1 GHz, which is mostly outside of the measured frequencies. There a small change of `a` is a large one of Z. So the fits
use the work at the geometric mean of the frequencies, where both are nearly independent, and compute Z from it.

Parameters that data cannot tell apart are named, and not fitted: see `Unfit`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from tools.study import least_squares
from tools.study.least_squares import Model, Solution
from tools.study.repeats import Repeats, repeats

FREQUENCIES_MIN = 3
ITRS_MIN = 2
# Values of `a` that a fit starts from.
A_TRIED = np.linspace(-4.0, 4.0, 161)
# Two settings that change together: |correlation| of log f and ITR.
TOGETHER = 0.999


@dataclasses.dataclass(frozen=True)
class Parameter:
    """An estimate with its confidence interval."""

    name: str
    unit: str
    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fitted model. `settings`: distinct combinations of ITR, frequency and size. `misfit_p`: the probability that the repeats' scatter
    alone explains the distance between means and model; small: the model is too simple. `notes`: cautions. `correlations`: of pairs of
    estimates, named like "Z, a"."""

    model: str
    formula: str
    parameters: tuple[Parameter, ...]
    solution: Solution
    settings: int
    misfit_p: float | None
    relative: bool
    notes: tuple[str, ...] = ()
    correlations: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return next(one.value for one in self.parameters if one.name == name)

    def parameter(self, name: str) -> Parameter:
        return next(one for one in self.parameters if one.name == name)


@dataclasses.dataclass(frozen=True)
class Unfit:
    """A model that the rows do not determine, and why."""

    model: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Options:
    """`relative`: residuals are divided by the prediction."""

    relative: bool = True
    replicates: int = least_squares.REPLICATES
    seed: int = 1


@dataclasses.dataclass(frozen=True)
class Points:
    """Rows for a fit: `value` of each row, and ITR and frequency of each setting. `of`: the rows of each setting."""

    itr_us: np.ndarray
    ghz: np.ndarray
    value: np.ndarray
    of: Repeats

    @property
    def centre_ghz(self) -> float:
        return float(np.exp(np.mean(np.log(np.unique(self.ghz)))))

    @property
    def means(self) -> np.ndarray:
        return self.of.means(self.value)

    def moderated(self) -> Points:
        """The rows with ITR above 0."""
        if np.all(self.itr_us > 0):
            return self
        kept = (self.itr_us > 0)[self.of.setting]
        return points(self.itr_us[self.of.setting][kept], self.ghz[self.of.setting][kept], self.value[kept])


def points(itr_us: np.ndarray, ghz: np.ndarray, value: np.ndarray) -> Points:
    """Of columns of rows."""
    of = repeats(itr_us, ghz)
    return Points(itr_us[of.first], ghz[of.first], value, of)


def undetermined(given: Points, value: str, *, needs_itr: bool = True, needs_ghz: bool = True) -> str | None:
    """Says why the rows determine no model of both settings, or None if they do."""
    if len(given.value) == 0:
        return "there is no row left"
    frequencies, intervals = len(np.unique(given.ghz)), len(np.unique(given.itr_us))
    if needs_ghz and frequencies < FREQUENCIES_MIN:
        return _few_frequencies(frequencies)
    if needs_itr and intervals < ITRS_MIN:
        return f"{intervals} distinct ITR; a constant time and phi * ITR cannot be told apart with fewer than {ITRS_MIN}"
    if np.ptp(given.value) <= 1e-9 * np.max(np.abs(given.value)):
        return f"{value} is the same in all {len(given.value)} rows"
    if needs_itr and needs_ghz and abs(np.corrcoef(np.log(given.ghz), given.itr_us)[0, 1]) > TOGETHER:
        return "ITR and frequency change together, so their effects cannot be told apart"
    return None


def _few_frequencies(found: int) -> str:
    return f"{found} distinct frequenc{'y' if found == 1 else 'ies'}; the exponent of f needs {FREQUENCIES_MIN}"


def _unstable(model: str, solution: Solution, names: tuple[str, ...]) -> Unfit | None:
    if solution.condition < least_squares.CONDITION_MAX:
        return None
    return Unfit(model, f"{' and '.join(names)} cannot be told apart with these settings")


def _parameter(name: str, unit: str, value: float, replicates: np.ndarray) -> Parameter:
    return Parameter(name, unit, float(value), *least_squares.interval(replicates))


def _notes(given: Points) -> list[str]:
    intervals = len(np.unique(given.itr_us))
    return [f"{intervals} distinct ITRs: that latency is linear in ITR is untested"] if intervals == 2 else []


def fit_latency(given: Points, options: Options, column: str = "latency") -> Fit | Unfit:
    """6.3, which contains 6.1 and 6.2."""
    if reason := undetermined(given, column):
        return Unfit("6.3", reason)
    centre = given.centre_ghz
    x = np.log(given.ghz / centre)

    def predict(values: np.ndarray) -> np.ndarray:
        work, a, phi = values
        return work * np.exp(-(1 + a) * x) + phi * given.itr_us

    def jacobian(values: np.ndarray) -> np.ndarray:
        work, a, _ = values
        shape = np.exp(-(1 + a) * x)
        return np.stack([shape, -work * x * shape, given.itr_us], axis=1)

    start = _start(x, given, options.relative)
    solution = least_squares.solve(Model(predict, jacobian, start), given.value, given.of, **_arguments(options))
    if unfit := _unstable("6.3", solution, ("Z", "a", "phi")):
        return unfit
    work, a, phi = solution.values
    each = solution.replicates
    works = _parameter("work", f"us at {centre:.3g} GHz", work, each[:, 0])
    if works.low <= 0 and options.replicates:
        return Unfit("6.3", f"the work at {centre:.3g} GHz is {work:.3g} us with an interval that has 0, so `a` is not determined")
    with np.errstate(over="ignore", invalid="ignore"):
        parameters = (
            _parameter("Z", "us", work * centre ** (1 + a), each[:, 0] * centre ** (1 + each[:, 1])),
            _parameter("a", "", a, each[:, 1]),
            _parameter("phi", "", phi, each[:, 2]),
            works,
        )
        z_each = each[:, 0] * centre ** (1 + each[:, 1])
    notes = _notes(given)
    if not given.ghz.min() <= 1.0 <= given.ghz.max():
        notes.append(
            f"Z is the work at 1 GHz, outside of {given.ghz.min():g} to {given.ghz.max():g} GHz, so it is correlated with `a`; "
            f"the work at {centre:.3g} GHz is hardly"
        )
    fit = _fit("6.3", "latency = Z / f^(1 + a) + phi * ITR", parameters, solution, given, options, notes)
    tied = {"Z, a": _correlation(z_each, each[:, 1]), "work, a": _correlation(each[:, 0], each[:, 1])}
    return dataclasses.replace(fit, correlations=tied)


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    usable = len(one) > 2 and np.all(np.isfinite(one)) and one.std() > 0 and other.std() > 0
    return float(np.corrcoef(one, other)[0, 1]) if usable else float("nan")


def _arguments(options: Options) -> dict:
    return {"relative": options.relative, "replicates": options.replicates, "seed": options.seed}


def _fit(model: str, formula: str, parameters: tuple[Parameter, ...], solution: Solution, given: Points, options: Options, notes) -> Fit:
    misfit = least_squares.lack_of_fit(solution, given.of)
    return Fit(model, formula, parameters, solution, len(given.of), misfit, options.relative, tuple(notes))


def _start(x: np.ndarray, given: Points, relative: bool) -> np.ndarray:
    """The best of many values of `a`; for each, the model is linear in the work and phi."""
    means = given.means
    # A setting with more repeats has more weight.
    scale = (np.abs(means) if relative else np.ones(len(x))) / np.sqrt(given.of.counts)
    best, least = np.array([1.0, 0.0, 1.0]), math.inf
    for a in A_TRIED:
        columns = np.stack([np.exp(-(1 + a) * x), given.itr_us], axis=1) / scale[:, None]
        found, *_ = np.linalg.lstsq(columns, means / scale, rcond=None)
        error = float(np.sum((columns @ found - means / scale) ** 2))
        if error < least and found[0] > 0:
            best, least = np.array([found[0], a, found[1]]), error
    return best


@dataclasses.dataclass(frozen=True)
class Parts:
    """6.2 and 6.1, one after the other."""

    interrupt: Fit | Unfit
    work: Fit | Unfit


def fit_parts(given: Points, options: Options, column: str = "latency") -> Parts:
    """6.2 from the differences within each frequency; then 6.1 from what is left of the latency at each frequency. No form of t_work is
    assumed in the first step, so an equal phi in 6.2 and 6.3 supports the form of 6.1."""
    if reason := undetermined(given, column, needs_ghz=False):
        return Parts(Unfit("6.2", reason), Unfit("6.1", "it needs 6.2"))
    frequencies, places = np.unique(given.ghz, return_inverse=True)
    columns = np.column_stack([np.eye(len(frequencies))[places], given.itr_us])
    solution = least_squares.solve_linear(columns, given.value, given.of, **_arguments(options))
    if unfit := _unstable("6.2", solution, ("phi", "t_work at each frequency")):
        return Parts(unfit, Unfit("6.1", "it needs 6.2"))
    each = solution.replicates
    works = tuple(_parameter(f"t_work({ghz:g} GHz)", "us", solution.values[at], each[:, at]) for at, ghz in enumerate(frequencies.tolist()))
    phi = _parameter("phi", "", solution.values[-1], each[:, -1])
    formula = "latency = t_work(f) + phi * ITR"
    interrupt = _fit("6.2", formula, (phi, *works), solution, given, options, _notes(given))
    return Parts(interrupt, _fit_work(frequencies, solution, options))


def _fit_work(ghz: np.ndarray, times: Solution, options: Options) -> Fit | Unfit:
    found = times.values[: len(ghz)]
    given = points(np.zeros(len(ghz)), ghz, found)
    # Equal times at all frequencies are no defect here: they are a = -1.
    if len(ghz) < FREQUENCIES_MIN:
        return Unfit("6.1", _few_frequencies(len(ghz)))
    if found.min() <= 0:
        return Unfit("6.1", f"t_work is {found.min():.3g} us at {ghz[found.argmin()]:g} GHz; a power of f is positive")
    centre = given.centre_ghz
    columns = np.stack([np.ones(len(ghz)), -np.log(ghz / centre)], axis=1)
    solved = least_squares.solve_linear(columns, np.log(found), given.of, relative=False, replicates=0, seed=options.seed)
    each = times.replicates[:, : len(ghz)]
    with np.errstate(invalid="ignore"):
        logs = np.log(np.where(each > 0, each, np.nan))
    replicates = logs @ np.linalg.pinv(columns).T
    work, power = solved.values
    solution = Solution(
        np.array([np.exp(work), power - 1]), np.exp(solved.predicted), found, np.exp(solved.predicted), solved.condition, np.exp(replicates)
    )
    parameters = (
        _parameter("Z", "us", math.exp(work) * centre**power, np.exp(replicates[:, 0]) * centre ** replicates[:, 1]),
        _parameter("a", "", power - 1, replicates[:, 1] - 1),
    )
    return Fit("6.1", "t_work = Z / f^(1 + a), t_work from 6.2", parameters, solution, len(ghz), None, True)


def fit_energy(given: Points, latency: Fit | Unfit, options: Options) -> Fit | Unfit:
    """6.4 in logarithms; `given.value`: energy in J from one interrupt to the next. gamma and phi are one factor there: phi is that of the
    latency, and without it only their product is given."""
    given = given.moderated()
    if reason := undetermined(given, "the energy of an interrupt", needs_itr=False):
        return Unfit("6.4", reason)
    x = np.log(given.ghz / given.centre_ghz)
    columns = np.stack([np.ones(len(x)), x], axis=1)
    plain = dataclasses.replace(options, relative=False)
    solution = least_squares.solve_linear(columns, np.log(given.value / given.itr_us[given.of.setting]), given.of, **_arguments(plain))
    if unfit := _unstable("6.4", solution, ("gamma", "b")):
        return unfit
    shift = math.log(given.centre_ghz)
    both = solution.values[0] - solution.values[1] * shift
    both_each = solution.replicates[:, 0] - solution.replicates[:, 1] * shift
    parameters = [_parameter("b", "", solution.values[1], solution.replicates[:, 1])]
    notes = []
    if isinstance(latency, Fit) and latency["phi"] > 0:
        phis = latency.solution.replicates[:, 2]
        with np.errstate(invalid="ignore", divide="ignore"):
            gammas = both_each - np.log(np.where(phis > 0, phis, np.nan)) if len(phis) == len(both_each) else both_each
        log_gamma = both - math.log(latency["phi"])
        parameters.insert(0, _parameter("log gamma", "J/us", log_gamma, gammas))
        parameters.append(_parameter("gamma", "W", math.exp(log_gamma) * 1e6, np.exp(gammas) * 1e6))
    else:
        parameters.insert(0, _parameter("log gamma + log phi", "J/us", both, both_each))
        notes.append("log gamma and log phi cannot be told apart here, and there is no positive phi from 6.3: only their sum is fitted")
    parameters += _slope_of_itr(given, x, plain)
    fit = _fit("6.4", "energy of an interrupt = gamma * phi * ITR * f^b", tuple(parameters), solution, given, plain, notes)
    slope = next((one for one in parameters if one.name == "power of ITR"), None)
    if slope and not slope.low <= 1 <= slope.high:
        notes.append(f"the model says that energy is proportional to ITR; here it grows by ITR^{slope.value:.3g}")
    return dataclasses.replace(fit, notes=tuple(notes))


def _slope_of_itr(given: Points, x: np.ndarray, options: Options) -> list[Parameter]:
    """The power of ITR, had the model one; the model says 1."""
    if undetermined(given, "the energy of an interrupt"):
        return []
    columns = np.stack([np.ones(len(x)), x, np.log(given.itr_us)], axis=1)
    free = least_squares.solve_linear(columns, np.log(given.value), given.of, **_arguments(options))
    return [_parameter("power of ITR", "", free.values[2], free.replicates[:, 2])] if free.condition < least_squares.CONDITION_MAX else []


def fit_power(given: Points, options: Options) -> Fit | Unfit:
    """The companion; `given.value`: power in W."""
    given = given.moderated()
    if reason := undetermined(given, "power"):
        return Unfit("power", reason)
    shift_f, shift_itr = math.log(given.centre_ghz), float(np.mean(np.log(np.unique(given.itr_us))))
    columns = np.stack([np.ones(len(given.of)), np.log(given.ghz) - shift_f, np.log(given.itr_us) - shift_itr], axis=1)
    plain = dataclasses.replace(options, relative=False)
    solution = least_squares.solve_linear(columns, np.log(given.value), given.of, **_arguments(plain))
    if unfit := _unstable("power", solution, ("c0", "c1", "c2")):
        return unfit
    c, each = solution.values, solution.replicates
    parameters = (
        _parameter("c0", "log W", c[0] - c[1] * shift_f - c[2] * shift_itr, each[:, 0] - each[:, 1] * shift_f - each[:, 2] * shift_itr),
        _parameter("c1", "", c[1], each[:, 1]),
        _parameter("c2", "", c[2], each[:, 2]),
    )
    return _fit("power", "log P = c0 + c1 log f + c2 log ITR", parameters, solution, given, plain, _notes(given))

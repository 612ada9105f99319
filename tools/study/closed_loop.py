# SPDX-License-Identifier: BSL-1.0
"""The published studies' models of a ping-pong between two machines (NetPIPE), over interrupt moderation, frequency and message size.

With f in GHz, times in us, and all settings equal at both ends:

    6.5     round trip = 2 (t_wait + t_tx + t_work), t_wait = ITR^(g f + d), t_work = Z / f^(1 + a)
    6.6     energy of a round trip = 2 (CFa t_wait + CFb t_tx + CFc t_work), CF in W and not negative
    longer  round trip = 2 max(phi ITR, t_tx + t_work), a companion of 6.5; t_wait is then what is left of phi ITR

The companion is for machines whose interval between interrupts runs while the message is on its way, such as the modelled ones. There the
parts do not add up: a short interval adds nothing to a message, and of a long one no work is seen.

t_tx follows from the message's size and the speed of the link; it is not fitted. Each size has its own g, d, Z and a, because its work is
its own. The CFs belong to the machine, so all sizes have them in common. Within one size t_tx is a constant, which no other constant part
of the energy can be told from; so 6.6 needs two sizes or more.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping

import numpy as np
from scipy import optimize

from tools.study import least_squares
from tools.study.least_squares import Model, Solution
from tools.study.open_loop import Fit, Options, Parameter, Points, Unfit, points, undetermined
from tools.study.repeats import joined

ITRS_MIN = 3
SIZES_MIN = 2
SEGMENT_BYTES = 1460
# Ethernet's preamble, header, FCS and gap, and the headers of IPv4 and TCP.
OVERHEAD_BYTES = 38 + 40
# Values of g, d and a that a fit starts from.
G_TRIED = (-0.05, 0.0, 0.05)
D_TRIED = (0.5, 0.75, 1.0, 1.25)
A_TRIED = (-1.5, -0.5, 0.5, 1.5)
CF_NAMES = ("CFa", "CFb", "CFc")
LONGER = "longer"
# Above this condition number of the three parts of 6.6, their CFs are a matter of noise.
PARTS_CONDITION_MAX = 300.0


@dataclasses.dataclass(frozen=True)
class Link:
    """`delay_us`: one way, of cables and switch."""

    gbps: float = 10.0
    delay_us: float = 0.0

    def transmission_us(self, message_bytes: float) -> float:
        """One way, from the first bit of the first frame to the last bit of the last one."""
        frames = max(1, math.ceil(message_bytes / SEGMENT_BYTES))
        return self.delay_us + (message_bytes + frames * OVERHEAD_BYTES) * 8 / (self.gbps * 1e3)


@dataclasses.dataclass(frozen=True)
class Size:
    """The rows of one message size. `times.value`: one way, in us. `energy_uj`: of a round trip; None if it is not known."""

    message_bytes: float
    times: Points
    energy_uj: np.ndarray | None


def size(message_bytes: float, itr_us: np.ndarray, ghz: np.ndarray, one_way_us: np.ndarray, energy_uj: np.ndarray | None = None) -> Size:
    return Size(message_bytes, points(itr_us, ghz, one_way_us), energy_uj)


def _undetermined(of: Size, link: Link) -> str:
    """Returns why these rows determine neither 6.5 nor its companion; empty if they may."""
    given, sent = of.times, link.transmission_us(of.message_bytes)
    if reason := undetermined(given, "the time of a message"):
        return reason
    if len(np.unique(given.itr_us)) < ITRS_MIN:
        return f"{len(np.unique(given.itr_us))} distinct ITRs; waiting and work cannot be told apart with fewer than {ITRS_MIN}"
    if given.value.min() <= sent:
        return f"a message took {given.value.min():.3g} us, less than its transmission of {sent:.3g} us; is the link's speed right?"
    return ""


def fit_times(of: Size, link: Link, options: Options) -> Fit | Unfit:
    """6.5 for one size. The rows must have ITR > 0."""
    name = f"6.5, {of.message_bytes:g} bytes"
    if reason := _undetermined(of, link):
        return Unfit(name, reason)
    given, sent = of.times, link.transmission_us(of.message_bytes)
    centre = given.centre_ghz
    x, log_itr, away = np.log(given.ghz / centre), np.log(given.itr_us), given.ghz - centre

    # `d` is that at the centre, so that it depends little on g.
    def predict(values: np.ndarray) -> np.ndarray:
        g, d, work, a = values
        return np.exp(np.clip((g * away + d) * log_itr, -50, 50)) + sent + work * np.exp(np.clip(-(1 + a) * x, -50, 50))

    def jacobian(values: np.ndarray) -> np.ndarray:
        g, d, work, a = values
        wait = np.exp(np.clip((g * away + d) * log_itr, -50, 50))
        shape = np.exp(np.clip(-(1 + a) * x, -50, 50))
        return np.stack([wait * away * log_itr, wait * log_itr, shape, -work * x * shape], axis=1)

    start = _start(x, log_itr, away, sent, given)
    solution = least_squares.solve(
        Model(predict, jacobian, start),
        given.value,
        given.of,
        relative=options.relative,
        replicates=options.replicates,
        seed=options.seed,
    )
    g, d, work, a = solution.values
    if solution.condition >= least_squares.CONDITION_MAX:
        return Unfit(name, "g, d, Z and a cannot be told apart with these settings")
    each = solution.replicates
    works = Parameter("work", f"us at {centre:.3g} GHz", float(work), *least_squares.interval(each[:, 2]))
    if options.replicates and works.low <= 0:
        return Unfit(name, f"the work at {centre:.3g} GHz is {work:.3g} us with an interval that has 0, so `a` is not determined")
    with np.errstate(over="ignore", invalid="ignore"):
        parameters = (
            Parameter("g", "1/GHz", float(g), *least_squares.interval(each[:, 0])),
            Parameter("d", "", float(d - g * centre), *least_squares.interval(each[:, 1] - each[:, 0] * centre)),
            Parameter("Z", "us", float(work * centre ** (1 + a)), *least_squares.interval(each[:, 2] * centre ** (1 + each[:, 3]))),
            Parameter("a", "", float(a), *least_squares.interval(each[:, 3])),
            works,
        )
    misfit = least_squares.lack_of_fit(solution, given.of)
    formula = f"one way = ITR^(g f + d) + {sent:.4g} us + Z / f^(1 + a)"
    return Fit(name, formula, parameters, solution, len(given.of), misfit, options.relative)


def fit_longer(of: Size, link: Link, options: Options) -> Fit | Unfit:
    """The companion of 6.5 for one size. The rows must have ITR > 0."""
    name = f"{LONGER}, {of.message_bytes:g} bytes"
    if reason := _undetermined(of, link):
        return Unfit(name, reason)
    given, sent = of.times, link.transmission_us(of.message_bytes)
    centre, itr = given.centre_ghz, given.itr_us
    x = np.log(given.ghz / centre)

    def sides(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        phi, work, a = values
        return phi * itr, sent + work * np.exp(np.clip(-(1 + a) * x, -50, 50))

    def jacobian(values: np.ndarray) -> np.ndarray:
        interval, message = sides(values)
        waits, shape = interval > message, np.exp(np.clip(-(1 + values[2]) * x, -50, 50))
        return np.stack([np.where(waits, itr, 0), np.where(waits, 0, shape), np.where(waits, 0, -values[1] * x * shape)], axis=1)

    longest, shortest = itr == itr.max(), itr == itr.min()
    start = np.array([np.median(given.means[longest] / itr[longest]), max(0.1, np.median(given.means[shortest]) - sent), 0.0])
    solution = least_squares.solve(
        Model(lambda values: np.maximum(*sides(values)), jacobian, start),
        given.value,
        given.of,
        relative=options.relative,
        replicates=options.replicates,
        seed=options.seed,
    )
    if solution.condition >= least_squares.CONDITION_MAX:
        return Unfit(name, "the interval is longer than the message in all rows, or in none")
    phi, work, a = solution.values
    each = solution.replicates
    with np.errstate(over="ignore", invalid="ignore"):
        parameters = (
            Parameter("phi", "", float(phi), *least_squares.interval(each[:, 0])),
            Parameter("Z", "us", float(work * centre ** (1 + a)), *least_squares.interval(each[:, 1] * centre ** (1 + each[:, 2]))),
            Parameter("a", "", float(a), *least_squares.interval(each[:, 2])),
            Parameter("work", f"us at {centre:.3g} GHz", float(work), *least_squares.interval(each[:, 1])),
        )
    misfit = least_squares.lack_of_fit(solution, given.of)
    formula = f"one way = max(phi ITR, {sent:.4g} us + Z / f^(1 + a))"
    return Fit(name, formula, parameters, solution, len(given.of), misfit, options.relative)


def _start(x: np.ndarray, log_itr: np.ndarray, away: np.ndarray, sent: float, given: Points) -> np.ndarray:
    best, least = np.array([0.0, 1.0, 1.0, 0.0]), math.inf
    value, divisor = given.means, given.means / np.sqrt(given.of.counts)
    for g, d, a in itertools.product(G_TRIED, D_TRIED, A_TRIED):
        wait, shape = np.exp((g * away + d) * log_itr), np.exp(-(1 + a) * x) / divisor
        rest = (value - wait - sent) / divisor
        work = max(0.1, float(rest @ shape) / float(shape @ shape))
        error = float(np.sum((rest - work * shape) ** 2))
        if error < least:
            best, least = np.array([g, d, work, a]), error
    return best


def _parts(of: Size, model: str, values: np.ndarray, link: Link) -> np.ndarray:
    """t_wait, t_tx and t_work of each setting, by parameters as fit_times() or fit_longer() has them."""
    itr, ghz, centre = of.times.itr_us, of.times.ghz, of.times.centre_ghz
    sent = link.transmission_us(of.message_bytes)
    work = values[-2] * (ghz / centre) ** -(1 + values[-1])
    is_longer = model.startswith(LONGER)
    wait = np.maximum(0, values[0] * itr - sent - work) if is_longer else itr ** (values[0] * (ghz - centre) + values[1])
    return np.stack([wait, np.full(len(itr), sent), work], axis=1)


def fit_energies(sizes: Mapping[float, Size], times: Mapping[float, Fit | Unfit], link: Link, options: Options) -> Fit | Unfit:
    """6.6 over all sizes whose times have been fitted, all by 6.5 or all by its companion. The intervals have the uncertainty of the times'
    fits, too."""
    first = next(iter(times.values()))
    model = "6.6, longer" if first.model.startswith(LONGER) else "6.6"
    used = {number: fit for number, fit in times.items() if isinstance(fit, Fit) and sizes[number].energy_uj is not None}
    if len(used) < SIZES_MIN:
        found = (
            f"{len(used)} message size{'s' * (len(used) != 1)} with a fit of {LONGER if first.model.startswith(LONGER) else 6.5} and energy"
        )
        return Unfit(model, f"{found}; within one size CFb * t_tx is a constant, so CFb needs {SIZES_MIN} sizes")
    energy = np.concatenate([np.asarray(sizes[number].energy_uj) for number in used])
    if np.ptp(energy) <= 1e-9 * np.max(np.abs(energy)):
        return Unfit(model, f"the energy of a round trip is the same in all {len(energy)} rows")
    of = joined([sizes[number].times.of for number in used])
    columns = np.concatenate([2 * _parts(sizes[number], fit.model, fit.solution.values, link) for number, fit in used.items()])
    means, weights = of.means(energy), np.sqrt(of.counts)
    relative = columns / (means / weights)[:, None]
    condition = float(np.linalg.cond(relative / np.sqrt(np.sum(relative**2, axis=0))))
    if condition > PARTS_CONDITION_MAX:
        return Unfit(model, f"t_wait, t_tx and t_work of these sizes and settings are nearly proportional (condition {condition:.0f})")
    scale = np.abs(means)
    for _ in range(least_squares.REWEIGHTINGS + 1 if options.relative else 1):
        used_scale = scale if options.relative else np.ones(len(means))
        divisor = used_scale / weights
        watts = optimize.nnls(columns / divisor[:, None], means / divisor)[0]
        scale = np.maximum(columns @ watts, 0.01 * np.abs(means))
    predicted = columns @ watts
    residuals = least_squares.enlarged((means - predicted) / divisor, columns / divisor[:, None])
    replicates = np.empty((options.replicates, 3))
    for trial, factors in enumerate(least_squares.multipliers(len(of), options.replicates, options.seed)):
        shaken = np.concatenate(
            [2 * _parts(sizes[number], fit.model, fit.solution.replicates[trial], link) for number, fit in used.items()]
        )
        replicates[trial] = optimize.nnls(shaken / divisor[:, None], predicted / divisor + residuals * factors)[0]
    solution = Solution(watts, predicted[of.setting], energy, used_scale[of.setting], condition, replicates)
    parameters = tuple(
        Parameter(name, "W", float(watts[at]), *least_squares.interval(replicates[:, at])) for at, name in enumerate(CF_NAMES)
    )
    notes = [f"{one.name} is at its bound, 0" for one in parameters if one.value == 0]
    formula = "round trip = 2 (CFa t_wait + CFb t_tx + CFc t_work)"
    misfit = least_squares.lack_of_fit(solution, of)
    return Fit(model, formula, parameters, solution, len(of), misfit, options.relative, tuple(notes))

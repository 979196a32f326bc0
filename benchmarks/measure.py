"""Measures contenders in turns, after each has shown that it is right.

Where one CPU thread does all the work its own time is what counts, so that others on the machine
disturb little; with several threads or a GPU it is the time on the clock.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks import baseline, truth
from benchmarks.floor import Floor
from benchmarks.workloads import ACTIVATION_DISTANCE, RADIUS, Problem
from warp_collision import sphere_cost, swept_sphere_cost

SWEEP_TOLERANCE = 0.05 * ACTIVATION_DISTANCE  # [m], the library's default
# Seconds that one timing takes at least; quicker calls are repeated within it, in warm caches.
SHORTEST = 1e-2

Cost = Callable[[Tensor], Tensor]


@dataclass
class Contender:
    """One way to compute the cost of a problem and its gradient.

    Attributes:
        name: what the results call it.
        cost: spheres (b, h, n, 4) to cost (b, h, n), differentiable.
        spheres: the rows of the problem that it computes; fewer than all where it is slow.
        threads: CPU threads that torch may use.
        exact: whether its results have to be right.
    """

    name: str
    cost: Cost
    spheres: Tensor
    threads: int
    exact: bool = True

    @property
    def items(self) -> int:
        """Number of spheres."""
        return self.spheres[..., 0].numel()

    @property
    def is_one_thread(self) -> bool:
        """Whether the calling thread does all the work."""
        return self.threads == 1 and self.spheres.device.type == "cpu"

    def run(self) -> tuple[Tensor, Tensor]:
        """Cost and gradient, forward and backward."""
        leaf = self.spheres.requires_grad_(True)
        cost = self.cost(leaf)
        (gradient,) = torch.autograd.grad(cost, leaf, _ones(cost))
        return cost, gradient


@dataclass
class Timing:
    """Seconds per sphere: median and quartiles over the rounds, and the median on the clock."""

    median: float
    low: float
    high: float
    clock: float
    spheres: int
    rounds: int
    error: float | None  # [m] largest difference from the reference; None: it is not exact


@dataclass
class Measurement:
    """What one workload took.

    Attributes:
        workload, family, size, summary: as in the workload.
        spheres: in the whole workload.
        active: share of the spheres that cost something.
        timings: by contender.
        speedups: how many times faster than the baseline each contender is: medians over the rounds
            of the ratio within the round.
        against: time of the library over that of other contenders, in the same way; both on the
            clock where not both are one CPU thread.
        identical: whether all CPU threads gave the same bits as one; None where that was not asked.
    """

    workload: str
    family: str
    size: int
    summary: str
    spheres: int
    active: float
    timings: dict[str, Timing]
    speedups: dict[str, float]
    against: dict[str, float]
    identical: bool | None

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


_kept_ones: dict[tuple[torch.Size, torch.device], Tensor] = {}


def _ones(like: Tensor) -> Tensor:
    key = (like.shape, like.device)
    if key not in _kept_ones:
        _kept_ones[key] = torch.ones_like(like)
    return _kept_ones[key]


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Limits torch, and with it the library, to a number of CPU threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Taken(NamedTuple):
    """Seconds that a call took: on the clock, and of the calling thread's work."""

    clock: float
    thread: float


def seconds_of(run: Callable[[], object], device: torch.device, loops: int = 1) -> Taken:
    """Seconds that a call takes, the mean of a few in a row."""
    _finish(device)
    clock, thread = time.perf_counter(), time.thread_time()
    for _ in range(loops):
        run()
    _finish(device)
    return Taken((time.perf_counter() - clock) / loops, (time.thread_time() - thread) / loops)


def interleave(
    contenders: Sequence[Contender], rounds: int, seconds: float
) -> dict[str, list[Taken]]:
    """Seconds per sphere of each contender in each round, every round running all of them.

    Args:
        contenders: each has run before.
        rounds: how many, unless the time is over; three at least.
        seconds: when no further round begins.
    """
    device = contenders[0].spheres.device
    loops = {}
    for one in contenders:
        with cpu_threads(one.threads):
            loops[one.name] = max(1, int(SHORTEST / seconds_of(one.run, device).clock))
    found: dict[str, list[Taken]] = {one.name: [] for one in contenders}
    begin = time.perf_counter()
    for index in range(rounds):
        if index >= min(3, rounds) and time.perf_counter() - begin > seconds:
            break
        for one in contenders:
            with cpu_threads(one.threads):
                taken = seconds_of(one.run, device, loops[one.name])
            found[one.name].append(Taken(*(part / one.items for part in taken)))
    return found


def rows_within(cost: Cost, spheres: Tensor, seconds: float, threads: int) -> Tensor:
    """As many rows, from the first on, as a contender computes in about some seconds."""
    rows = min(len(spheres), 2)
    with cpu_threads(threads):
        while True:
            trial = Contender("trial", cost, spheres[:rows].clone(), threads)
            trial.run()
            taken = seconds_of(trial.run, spheres.device).clock
            if rows == len(spheres) or taken > 0.2 * seconds:
                return spheres[: max(1, min(rows, int(rows * seconds / taken)))].clone()
            rows = min(len(spheres), int(rows * min(10.0, max(2.0, 0.5 * seconds / taken))))


def contenders_of(problem: Problem, seconds: float, names: Sequence[str] = ()) -> list[Contender]:
    """Who computes a problem.

    Args:
        problem: what to compute.
        seconds: about how long a call of the baseline may take; it gets fewer rows if need be.
        names: which of them; all that fit if empty.
    """
    workload, device = problem.workload, problem.spheres.device
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    options = {"activation_distance": ACTIVATION_DISTANCE}
    costs: dict[str, tuple[Cost, int, bool]] = {}

    def of_rows(function: Callable[..., Tensor], **more: object) -> Cost:
        index = problem.env_index
        known = functools.partial(function, world=problem.world, **options, **more)
        if index is None:
            return known
        return lambda spheres: known(spheres, env_index=index[: len(spheres)])

    if workload.swept:
        costs["baseline"] = of_rows(baseline.swept_sphere_cost), 1, True
        costs["library"] = of_rows(swept_sphere_cost), 1, True
    else:
        costs["baseline"] = of_rows(baseline.sphere_cost), 1, True
        costs["library"] = of_rows(sphere_cost), 1, True
        if workload.family in ("near", "near-torus"):
            limit = RADIUS + ACTIVATION_DISTANCE
            costs["short search"] = of_rows(baseline.sphere_cost, limit=limit), 1, False
    if threads > 1:
        costs["all threads"] = (costs["library"][0], threads, True)
    if workload.family in ("tiny", "free"):
        costs["floor"] = Floor(problem).cost, 1, True

    found = []
    for name, (cost, count, exact) in costs.items():
        if names and name not in names:
            continue
        spheres = problem.spheres.detach()
        if name in ("baseline", "short search"):
            spheres = rows_within(cost, spheres, seconds, count)
        found.append(Contender(name, cost, spheres, count, exact))
    return found


def check_all(problem: Problem, contenders: Sequence[Contender]) -> dict[str, float | None]:
    """Runs and checks every contender; the largest error of each that has to be exact."""
    errors: dict[str, float | None] = {}
    for one in contenders:
        with cpu_threads(one.threads):
            cost, gradient = one.run()
        errors[one.name] = None
        if one.exact:
            samples, tolerance = (4, SWEEP_TOLERANCE) if problem.workload.swept else (32, 0.0)
            try:
                errors[one.name] = truth.check(
                    problem, cost, gradient, samples=samples, tolerance=tolerance
                )
            except truth.WrongResultError as error:
                raise truth.WrongResultError(
                    f"{problem.workload.name}, {one.name}: {error}"
                ) from None
    return errors


def ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """Median over the rounds of the ratio within a round."""
    return float(np.median(np.array(first) / np.array(second)))


def _counted(one: Contender, taken: Sequence[Taken]) -> list[float]:
    return [each.thread if one.is_one_thread else each.clock for each in taken]


def measure(problem: Problem, *, rounds: int = 100, seconds: float = 4.0) -> Measurement:
    """Checks and times every contender of a problem.

    Args:
        problem: what to compute.
        rounds: of all contenders in turn, at most.
        seconds: about how long all rounds may take together; three rounds are run in any case.

    Raises:
        WrongResultError: a contender that has to be exact is not.
    """
    contenders = {one.name: one for one in contenders_of(problem, seconds / 10.0)}
    errors = check_all(problem, list(contenders.values()))
    taken = interleave(list(contenders.values()), rounds, seconds)
    counted = {name: _counted(one, taken[name]) for name, one in contenders.items()}
    timings = {}
    for name, values in counted.items():
        low, median, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        clock = float(np.median([each.clock for each in taken[name]]))
        items = contenders[name].items
        timings[name] = Timing(median, low, high, clock, items, len(values), errors[name])
    library = contenders["library"]
    against = {
        name: ratio(counted["library"], counted[name])
        if one.is_one_thread
        else ratio([e.clock for e in taken["library"]], [e.clock for e in taken[name]])
        for name, one in contenders.items()
        if one is not library
    }
    workload = problem.workload
    return Measurement(
        workload.name,
        workload.family,
        workload.size,
        workload.summary,
        problem.spheres[..., 0].numel(),
        active_share(library),
        timings,
        {name: ratio(counted["baseline"], values) for name, values in counted.items()},
        against,
        same_bits(library, contenders.get("all threads")),
    )


def active_share(contender: Contender) -> float:
    """Share of the spheres that cost something."""
    cost, _ = contender.run()
    return float((cost > 0.0).float().mean())


def same_bits(one: Contender, other: Contender | None) -> bool | None:
    """Whether two contenders on the same spheres agree to the last bit; None without a second."""
    if other is None:
        return None
    results = []
    for contender in (one, other):
        with cpu_threads(contender.threads):
            results.append(contender.run())
    return all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def compare(problem: Problem, other: Problem, *, rounds: int = 7, seconds: float = 4.0) -> float:
    """Time per sphere of the library on one problem over that on another, measured in turns."""
    pair = []
    for index, each in enumerate((problem, other)):
        (library,) = contenders_of(each, seconds, ["library"])
        library.spheres = rows_within(library.cost, library.spheres, seconds / 20.0, 1)
        library.name = str(index)
        pair.append(library)
    taken = interleave(pair, rounds, seconds)
    return ratio(*(_counted(one, taken[one.name]) for one in pair))

"""Costs of spheres, forward and backward, against a straightforward kernel that is exact.

Worlds are prepared. Beside the library on one CPU thread stand

- **all threads**: the library on every core; the bits have to be the same;
- **baseline**: one thread per sphere, one winding-sign query of each mesh without a limit;
- **5 samples**: that at five places of the way of a moving sphere, which certifies nothing;
- **short search**: the baseline within radius + eta. It reads as free what is deeper than that.

Slow contenders get fewer rows of the batch; times are per sphere. Workloads are in scenes.yaml.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks import baseline, harness, truth
from benchmarks.harness import ALL_THREADS, CPU, Call, Workload, require
from benchmarks.scenes import ACTIVATION_DISTANCE, RADIUS, WORKLOADS, Problem, build
from warp_collision import sphere_cost, swept_sphere_cost

add_options = partial(harness.timing_options, on_gpu=True)


def call_of(function: Any, problem: Problem, count: int, **more: Any) -> Call:
    """A cost of the first rows of a problem."""
    index = None if problem.env_index is None else problem.env_index[:count]
    options = {"activation_distance": ACTIVATION_DISTANCE, "env_index": index, **more}

    def cost(rows: Tensor) -> Tensor:
        return function(rows, problem.world, **options)

    return baseline.differentiated(cost, problem.spheres[:count])


def library(problem: Problem) -> Call:
    """The library's cost of all of it."""
    function = swept_sphere_cost if problem.swept else sphere_cost
    return call_of(function, problem, len(problem.spheres))


def contenders(name: str, options: Any) -> dict[str, Call]:
    """Who computes a workload, each compared with the reference if it has to be exact."""
    problem = build(name, options.device, options.scale)
    device, count = options.device, len(problem.spheres)

    def within(**more: Any) -> Call:
        def make(rows: int) -> Call:
            return call_of(baseline.sphere_cost, problem, rows, **more)

        return harness.within(make, count, 0.1 * options.seconds, device)

    found = {"library": library(problem)}
    if device == CPU and ALL_THREADS > 1:
        found["all threads"] = library(problem)._replace(threads=ALL_THREADS)
    if not problem.swept:
        found["baseline"] = within()
    results = {}
    for which, call in found.items():
        with harness.cpu_threads(call.threads):
            results[which] = call.run()
        truth.check(problem.content, *results[which], problem.swept)
    if "all threads" in found:
        bits = map(torch.equal, results["library"], results["all threads"])
        require(all(bits), "other bits with all threads")
    if problem.swept:
        found["5 samples"] = within(samples=baseline.SAMPLES)
    if name.startswith(("near", "tori")):
        found["short search"] = within(limit=RADIUS + ACTIVATION_DISTANCE)
    return found


def run(options: Any) -> str:
    """The table, and a picture of it."""
    from benchmarks.plots import throughput

    workloads = [Workload(name, "sphere", partial(contenders, name, options)) for name in WORKLOADS]
    return harness.measure(workloads, options, throughput)

"""How long one small call takes: p50, p99 and p99.9 of many, one after the other on one core.

The Panda among some shapes, one configuration or one motion at a time, as a loop of control calls
it. Each call is timed alone by the clock. Beside it stands what its kernels take of that, from
where Python hands over to them until they are back. Checks are compared first.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

import warp_collision as wc
from benchmarks import harness, vamp
from benchmarks.harness import CPU, Failed, require
from benchmarks.lanes import Case
from warp_collision.launching.recorded_launch import Command
from warp_collision.planning import MotionGuard
from warp_collision.robot import RobotChecker

PERCENTILES = (50.0, 99.0, 99.9)


def add_options(parser: argparse.ArgumentParser) -> None:
    """How many calls, and on which core."""
    parser.set_defaults(device=CPU)
    parser.add_argument("--calls", type=int, default=20_000, help="of each (default 20000)")
    parser.add_argument("--core", type=int, help="that is used; the last one that is allowed")
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of names")


def backward(cost: Callable[[Tensor], Tensor], values: Tensor) -> Callable[[], Tensor]:
    """A call of a cost and its gradient."""

    def call() -> Tensor:
        leaf = values.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(cost(leaf).sum(), leaf)
        return gradient

    return call


def questions() -> dict[str, Callable[[], object]]:
    """All calls by name; their answers are compared here."""
    case = Case("cage")
    robot, world = case.robot, case.world
    joints = vamp.random_joints(case, 512)
    motions = vamp.random_motions(case, joints, 64, 0.3)
    motion = motions[case.proofs(motions)][:1].contiguous()
    at_rest = motion[:, :1].contiguous()
    spheres = robot(at_rest[:, 0])[None].detach().contiguous()
    given = {"self_collision": case.pairs}
    checker = RobotChecker(robot, world, **given)
    hit = wc.configuration_in_collision(at_rest, robot, world, **given)
    require(not hit.any() and torch.equal(checker.configuration_in_collision(at_rest), hit), "hit")
    proven = wc.joint_path_in_collision(motion, robot, world, **given)
    require(not proven.any() and torch.equal(checker.path_in_collision(motion), proven), "proof")
    two = {"robot": robot, "world": world, "substeps": 1}
    with_itself = {**two, "self_weight": 1.0, "pairs": case.pairs}
    few = torch.zeros(8)
    guard = MotionGuard(robot, world, 1e-3, acceleration=10.0, self_collision=case.pairs)
    state = [at_rest[0, 0].tolist(), [0.0] * robot.n_joints]
    command = np.random.default_rng(0).uniform(-1.0, 1.0, robot.n_joints).tolist()

    def guarded() -> None:
        step = guard.step(*state, command)
        state[:] = step.joints, step.velocities

    return {
        "MotionGuard.step": guarded,
        "link_distances": lambda: wc.link_distances(at_rest[:, 0], robot, world),
        "link_distances of 512 configurations": lambda: wc.link_distances(joints, robot, world),
        "RobotChecker.configuration_in_collision": lambda: checker.configuration_in_collision(
            at_rest
        ),
        "RobotChecker.path_in_collision": lambda: checker.path_in_collision(motion),
        "configuration_in_collision": lambda: wc.configuration_in_collision(
            at_rest, robot, world, **given
        ),
        "joint_path_in_collision": lambda: wc.joint_path_in_collision(
            motion, robot, world, **given
        ),
        "sphere_cost": lambda: wc.sphere_cost(spheres, world),
        "sphere_cost, forward and backward": backward(lambda x: wc.sphere_cost(x, world), spheres),
        "joint_path_cost of two waypoints": lambda: wc.joint_path_cost(motion, **two),
        "joint_path_cost of two waypoints, forward and backward": backward(
            lambda q: wc.joint_path_cost(q, **two), motion
        ),
        "joint_path_cost with self_weight, forward and backward": backward(
            lambda q: wc.joint_path_cost(q, **with_itself), motion
        ),
        "torch's own (2 * x), forward and backward": backward(lambda x: 2.0 * x, few),
    }


@contextmanager
def pinned(core: int | None) -> Iterator[int]:
    """This thread on one core, without the garbage collector."""
    allowed = os.sched_getaffinity(0)
    chosen = max(allowed) if core is None else core
    if chosen not in allowed:
        raise Failed(f"--core must be one of {sorted(allowed)}, got {chosen}", 2)
    os.sched_setaffinity(0, {chosen})
    gc.collect()
    gc.disable()
    try:
        yield chosen
    finally:
        gc.enable()
        os.sched_setaffinity(0, allowed)


def seconds_of_each(run: Callable[[], object], count: int) -> np.ndarray:
    """Seconds (count,) of each call, by the clock, after some that are not counted."""
    taken, clock = np.empty(count), time.perf_counter
    for _ in range(min(count, 200)):
        run()
    for index in range(count):
        began = clock()
        run()
        taken[index] = clock() - began
    return taken


@contextmanager
def timed_launches() -> Iterator[list[float]]:
    """Seconds of each launch, from where Python hands over to the kernel until it is back."""
    taken: list[float] = []
    launched, clock = Command.rerun, time.perf_counter

    def timed(command: Command, stream: Any = None) -> None:
        began = clock()
        launched(command, stream)
        taken.append(clock() - began)

    Command.rerun = timed
    try:
        yield taken
    finally:
        Command.rerun = launched


def seconds_in_kernels(call: Callable[[], object], count: int) -> float:
    """Median of the seconds of a call that its launches take."""
    with timed_launches() as taken:
        call()
        per_call = len(taken)
        for _ in range(count):
            call()
    return float(np.median(np.reshape(taken, (-1, per_call)).sum(1))) if per_call else 0.0


def run(options: Any) -> str:
    """The table."""
    chosen = {n: q for n, q in questions().items() if n.startswith(tuple(options.only))}
    if not chosen:
        raise Failed(f"no call begins with {' or '.join(options.only)}", 2)
    rows = []
    with pinned(options.core) as core:
        for name, call in chosen.items():
            taken = seconds_of_each(call, options.calls)
            cells = np.percentile(taken, PERCENTILES), [seconds_in_kernels(call, options.calls)]
            rows.append([name, *(harness.micro(each) for part in cells for each in part)])
            print(*rows[-1], sep="  ", flush=True)
    head = ["one call", *(f"p{p:g} [µs]" for p in PERCENTILES), "its kernels [µs]"]
    text = harness.table(head, rows)
    return f"{harness.machine(CPU)}; {options.calls} calls of each on core {core}\n\n{text}"

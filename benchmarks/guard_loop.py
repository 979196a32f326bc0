"""A guard in control loops: goals, times beside other rules, many envs, memory."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.calls import pinned
from benchmarks.guard_episodes import DT, Cast, smallest_clearance, world_of
from guarded import hostile
from warp_collision import MeshWorld, clearance, link_distances, self_clearance
from warp_collision.planning import GuardedStep

Array = np.ndarray
# A controller passes on velocities, or a guarded step, from joint values, velocities and those
# wanted.
Rule = Callable[[Array, Array, Array], Any]

_PERCENTILES = (50.0, 99.0, 99.9)
_FREE_LINE = 5e-3  # m, clearance of lines to goals
_EPISODES = 30  # of each contender
_ENVS = 4096


# -- goals ----------------------------------------------------------------------------------------


def goals(options: Any) -> list[dict[str, Any]]:
    """Goals on free lines that are reached; robots that were stuck, and left."""
    found = []
    for name in options.robots:
        cast, rng = Cast(name), np.random.default_rng(5)
        counts = {"robot": name, "free": 0, "reached": 0, "stuck": 0, "left": 0}
        for _ in range(options.episodes):
            problem, scene = cast.draw(rng)
            world = world_of([problem])
            start = cast.start(problem, scene, rng)
            goal = start + rng.uniform(-0.8, 0.8, cast.n_joints)
            goal = np.clip(goal, *cast.robot.joint_limits.double().numpy().T)
            line = start + np.linspace(0.0, 1.0, 200)[:, None] * (goal - start)
            is_free = smallest_clearance(cast.judge, scene, line) > _FREE_LINE
            guard = cast.guard(world, command="position")
            q, v = start.tolist(), [0.0] * cast.n_joints
            for _ in range(6000):
                step = guard.step(q, v, goal.tolist())
                q, v = step.joints, step.velocities
                if step.time_to_rest == 0.0 and (step.share == 0.0 or is_free):
                    break
            near = bool(np.abs(np.array(q) - goal).max() < 1e-3)
            counts["free"] += is_free
            counts["reached"] += is_free and near
            away = None if near or step.time_to_rest > 0.0 else way_out(cast, world, np.array(q))
            if away is not None:
                counts["stuck"] += 1
                at = np.array(q)
                for _ in range(500):
                    step = guard.step(q, v, (at + 0.1 * away).tolist())
                    q, v = step.joints, step.velocities
                counts["left"] += bool(np.abs(np.array(q) - at).max() > 0.02)
        found.append(counts)
        print(counts, flush=True)
    return found


def way_out(cast: Cast, world: MeshWorld, joints: Array) -> Array | None:
    """A change of joint values by which all that is near comes to be farther away, if one is found.

    The sum of the derivatives of distances below 2 cm.
    """
    given = torch.from_numpy(joints[None]).float()
    rows = link_distances(given, cast.robot, world, self_collision=True)
    slopes = rows.gradient[rows.distance < 0.02].double().numpy()
    slopes /= np.linalg.norm(slopes, axis=1, keepdims=True).clip(1e-9)
    way = slopes.sum(axis=0)
    if not len(slopes) or (slopes @ way <= 0.1 * np.linalg.norm(way)).any():
        return None
    low, high = cast.robot.joint_limits.double().numpy().T
    way /= np.abs(way).max()
    return way if ((joints + 0.1 * way >= low) & (joints + 0.1 * way <= high)).all() else None


# -- the loop -------------------------------------------------------------------------------------


def slow_down(cast: Cast, world: MeshWorld) -> Rule:
    """Velocities scaled by sampled distance at 20 Hz, as a servo does that is known to users.

    By exp(log(0.001) (1 - d / threshold)) below thresholds of 2 cm to obstacles and 1 cm between
    links.
    """
    state = {"step": 0, "scale": 1.0}
    pairs = cast.robot.self_collision_pairs()

    def rule(q: Array, v: Array, wanted: Array) -> Array:
        if state["step"] % 50 == 0:
            spheres = cast.robot.spheres(torch.from_numpy(q[None, None]).float())
            scale = 1.0
            for gap, threshold in (
                (clearance(spheres, world).clearance.min().item(), 0.02),
                (self_clearance(spheres, pairs).clearance.min().item(), 0.01),
            ):
                if gap < threshold:
                    share = math.exp(math.log(0.001) * (1.0 - gap / threshold))
                    scale = min(scale, share if gap > 0.0 else 0.0)
            state["scale"] = scale
        state["step"] += 1
        return state["scale"] * wanted

    return rule


def barrier(cast: Cast, world: MeshWorld) -> Rule:
    """A control barrier: no distance shrinks faster than 5 times itself in a second."""
    import daqp

    n = cast.n_joints

    def rule(q: Array, v: Array, wanted: Array) -> Array:
        rows = link_distances(
            torch.from_numpy(q[None]).float(), cast.robot, world, self_collision=True
        )
        distance, slopes = rows.distance[0].double().numpy(), rows.gradient[0].double().numpy()
        near = distance < 0.1
        low = -5.0 * (distance[near] - 2e-3)
        upper = np.concatenate((cast.velocity, np.full(len(low), 1e30)))
        lower = np.concatenate((-cast.velocity, low))
        kinds = np.zeros(n + len(low), dtype=np.int32)
        slopes = np.ascontiguousarray(slopes[near])
        found, _, status, _ = daqp.solve(np.eye(n), -wanted, slopes, upper, lower, kinds)
        return np.asarray(found) if status == 1 else np.zeros(n)

    return rule


def guarding(cast: Cast, world: MeshWorld, **options: Any) -> Rule:
    """The guard, as a rule."""
    guard = cast.guard(world, **options)

    return guard.step


RULES: dict[str, Callable[[Cast, MeshWorld], Rule]] = {
    "MotionGuard": guarding,
    "MotionGuard, jerk": lambda cast, world: guarding(cast, world, jerk=500.0),
    "slow-down by distance": slow_down,
    "control barrier, QP by daqp": barrier,
}


def loop(options: Any) -> list[dict[str, Any]]:
    """Each rule in the same episodes of a Panda that runs straight at goals."""
    cast, found = Cast("panda"), []
    with pinned(None):
        for name, make in RULES.items():
            if name.endswith("daqp"):
                with contextlib.suppress(ImportError):
                    found.append(_driven(cast, name, make, options))
            else:
                found.append(_driven(cast, name, make, options))
            print(found[-1], flush=True)
    return found


def _driven(cast: Cast, name: str, make: Any, options: Any) -> dict[str, Any]:
    rng, taken, least, ends = np.random.default_rng(9), [], [], []
    accelerations = 15.0 * DT
    for _ in range(min(options.episodes, _EPISODES)):
        problem, scene = cast.draw(rng)
        rule = make(cast, world_of([problem]))
        q = np.array(problem.start)
        targets = [problem.goal + 0.3 * rng.standard_normal(7) * (i < 3) for i in range(4)]
        v, moved, steps = np.zeros(7), [q], int(options.seconds / DT)
        for i in range(steps):
            pull = 60.0 * (targets[4 * i // steps] - q) - 12.0 * v
            change = np.clip(pull * DT, -accelerations, accelerations)
            wanted = np.clip(v + change, -cast.velocity, cast.velocity)
            began = time.thread_time()
            passed = rule(q, v, wanted)
            taken.append(time.thread_time() - began)
            if isinstance(passed, GuardedStep):  # within the limits, and with jerk a cubic
                q, v = passed.joints, passed.velocities
            else:
                passed = v + np.clip(passed - v, -accelerations, accelerations)
                q, v = q + 0.5 * DT * (v + passed), passed
            moved.append(q)
        least.append(smallest_clearance(cast.judge, scene, np.array(moved)))
        ends.append(bool(np.abs(q - problem.goal).max() < 0.02))
    micro = 1e6 * np.percentile(taken, _PERCENTILES)
    hits = [value for value in least if value <= 0.0]
    return {
        "rule": name,
        "episodes": len(least),
        "contacts": len(hits),
        "deepest": round(0.0 - min([*hits, 0.0]), 5),
        "reached": sum(ends),
        "micro": np.round(micro, 1).tolist(),
    }


# -- many, and long -------------------------------------------------------------------------------


def envs(options: Any) -> dict[str, Any]:
    """Time of each of many robots of a simulator, in one launch on one core."""
    cast, rng = Cast("panda"), np.random.default_rng(3)
    problem, _ = cast.draw(rng)
    index = torch.zeros(_ENVS, dtype=torch.int32)
    guard = cast.guard(world_of([problem]), env_index=index)
    q = torch.from_numpy(np.array(problem.start)).repeat(_ENVS, 1)
    v, taken = torch.zeros_like(q), []
    for command in hostile("random", rng, cast, 60, _ENVS):  # pyright: ignore[reportArgumentType]
        began = time.process_time()
        step = guard.step(q, v, torch.from_numpy(command))
        taken.append((time.process_time() - began) / _ENVS)
        q, v = step.joints, step.velocities
    return {"envs": _ENVS, "micro": round(1e6 * float(np.median(taken[5:])), 2)}


def memory(options: Any) -> dict[str, Any]:
    """What the process holds before and after many steps; another thread moves an obstacle."""
    cast, rng = Cast("panda"), np.random.default_rng(7)
    problem, _ = cast.draw(rng)
    world = world_of([problem])
    name, is_over = world.names()[0], threading.Event()
    pose = world.pose(name).tolist()
    n_moves = 0

    def move() -> None:
        nonlocal n_moves
        while not is_over.wait(1e-3):
            n_moves += 1
            offset = 0.01 * math.sin(0.01 * n_moves)
            world.set_pose(name, (pose[0] + 0.5 + offset, *pose[1:]))

    guard, mover = cast.guard(world), threading.Thread(target=move)
    q, v = problem.start.tolist(), [0.0] * cast.n_joints
    held, breached = [], 0
    mover.start()
    for i in range(options.steps):
        if i % 200 == 0:
            command = (rng.uniform(-1.0, 1.0, cast.n_joints) * cast.velocity).tolist()
        if i in (options.steps // 10, options.steps - 1):
            held.append(_held())
        step = guard.step(q, v, command)
        q, v = step.joints, step.velocities
        breached += step.breached
    is_over.set()
    mover.join()
    found = {"steps": options.steps, "moves": n_moves, "breached": breached}
    return {**found, "before": held[0], "after": held[-1]}


def _held() -> float:
    """Resident memory of this process [MiB]."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 2**20, 1)


def table_of(part: str, kept: Any) -> str:
    """A table or a line."""
    if part == "goals":
        head = ["robot", "goals on free lines", "reached", "stuck", "left when told to"]
        keys = ("robot", "free", "reached", "stuck", "left")
        return harness.table(head, [[str(row[key]) for key in keys] for row in kept])
    if part == "loop":
        head = ["rule", "episodes", "contacts", "deepest [mm]", "goals reached"]
        head += [f"p{p:g} [µs]" for p in _PERCENTILES]
        rows = [
            [
                *(str(row[key]) for key in ("rule", "episodes", "contacts")),
                f"{1e3 * row['deepest']:.0f}",
                str(row["reached"]),
                *(harness.number(value) for value in row["micro"]),
            ]
            for row in kept
        ]
        return harness.table(head, rows)
    if part == "envs":
        return f"{kept['envs']} envs in one launch: {kept['micro']} µs each, on one core.\n"
    return (
        f"{kept['steps']} steps, while another thread moves an obstacle {kept['moves']} times: "
        f"{kept['before']} MiB after a tenth of them, {kept['after']} MiB at the end.\n"
    )

"""A world that threads ask while others change it.

    python tests/support/concurrent_changes.py cpu 12 '[("move", 5), ("grow", 20)]'

prints two lines for each case, its name when it begins and what came of it: a crash ends it all,
and the last line tells in which case.
"""

import ast
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import trimesh

import compare
import shapes
import simulated_cuda
from reference import Array
from warp_collision import MeshWorld, clearance, signed_distance, sphere_cost, swept_sphere_cost

N_THREADS = 8
HANGING = 600.0  # [s] far beyond what any machine needs
N_ENVS, SLOTS = 3, 24
# The env that one thread changes, one that nobody does, and one for a second thread.
CHANGED, STILL, ALSO = range(N_ENVS)


class Outcome(NamedTuple):
    """What came of a case."""

    changes: int
    rounds: int  # of queries
    error: float  # largest difference in what should stay as it is
    errors: list[str]  # exceptions, and values that no cost has


def ball(rng: np.random.Generator) -> trimesh.Trimesh:
    """A ball of random size."""
    return trimesh.creation.icosphere(subdivisions=1, radius=float(rng.uniform(0.05, 0.15)))


def scene(count: int, env: int) -> dict[str, tuple[trimesh.Trimesh, Array]]:
    """Balls and boxes of an env by name, with their poses, the same in every call."""
    rng = np.random.default_rng((151, env))
    meshes = {}
    for index in range(count):
        box = trimesh.creation.box((float(rng.uniform(0.05, 0.2)), 0.1, 0.2))
        made = ball(rng) if index % 2 else box
        meshes[f"m{index}"] = (made, shapes.random_pose(rng, 0.6))
    return meshes


def crowd(count: int, device: torch.device, n_envs: int = N_ENVS) -> MeshWorld:
    """A world of such envs; from 12 meshes on there is a tree over them."""
    world = MeshWorld(n_envs, SLOTS, device)
    for env in range(n_envs):
        world.load(scene(count, env), env)
    return world


def paths(seed: int, device: torch.device, n_envs: int = N_ENVS) -> torch.Tensor:
    """Spheres (n_envs, 4, 60, 4), a batch row per env; torch's threads share their sweep."""
    rng = np.random.default_rng(seed)
    shape = (n_envs, 4, 60)
    centers = rng.uniform(-0.8, 0.8, (240 * n_envs, 3))
    return compare.to_device(shapes.spheres_at(rng, centers, shape, disabled=0.1), device)


def everything(world: MeshWorld, spheres: torch.Tensor) -> list[torch.Tensor]:
    """Costs, distances and gradients, each with one row per env."""
    envs = torch.arange(len(spheres), dtype=torch.int32, device=world.device)
    leaf = spheres.clone().requires_grad_(True)
    costs = [
        sphere_cost(leaf, world, env_index=envs),
        swept_sphere_cost(leaf, world, env_index=envs, dt=0.1, speed_metric=True),
    ]
    sum(cost.sum() for cost in costs).backward()
    assert leaf.grad is not None
    found = signed_distance(spheres[..., :3], world, env_index=envs)
    free = clearance(spheres, world, env_index=envs)
    return [value.detach() for value in (*costs, leaf.grad, *found, *free)]


# -- changes --------------------------------------------------------------------------------------

Alter = Callable[[MeshWorld, np.random.Generator, int, int, int], None]


def remove_and_add(
    world: MeshWorld, rng: np.random.Generator, turn: int, count: int, env: int
) -> None:
    """The slots behind the mesh move up."""
    world.remove(f"m{turn % count}", env)
    world.add(f"m{turn % count}", ball(rng), shapes.random_pose(rng, 0.6), env)


def replace(world: MeshWorld, rng: np.random.Generator, turn: int, count: int, env: int) -> None:
    """Other geometry and another pose under the same name."""
    pose = shapes.random_pose(rng, 0.6)
    world.add(f"m{turn % count}", ball(rng), pose, env, replace=True)


def load(world: MeshWorld, rng: np.random.Generator, turn: int, count: int, env: int) -> None:
    """All meshes of the env at once, now more and now fewer."""
    names = [f"m{index}" for index in range(count - turn % 2)]
    world.load({name: (ball(rng), shapes.random_pose(rng, 0.6)) for name in names}, env)


def move(world: MeshWorld, rng: np.random.Generator, turn: int, count: int, env: int) -> None:
    """One mesh, or all of them."""
    pose = torch.tensor(shapes.random_pose(rng, 0.6), dtype=torch.float32, device=world.device)
    if turn % 3:
        world.set_pose(f"m{turn % count}", pose, env)
    else:
        world.set_poses(pose.repeat(count, 1), env)


def track(world: MeshWorld, rng: np.random.Generator, turn: int, count: int, env: int) -> None:
    """Poses that require a gradient, while the tables grow."""
    pose = torch.tensor(shapes.random_pose(rng, 0.6), dtype=torch.float32, device=world.device)
    world.set_pose(f"m{turn % count}", pose.requires_grad_(turn % 4 > 0), env)
    if turn % 4 == 0 and world.n_envs < 16:
        world.grow(n_envs=world.n_envs + 1, max_obstacles=world.max_obstacles + 1)
        world.add("new", ball(rng), env=world.n_envs - 1)
        world.set_pose("new", pose.detach().requires_grad_(True), world.n_envs - 1)


def enable(world: MeshWorld, rng: np.random.Generator, turn: int, count: int, env: int) -> None:
    """On and off."""
    world.enable(f"m{turn % count}", bool(rng.integers(2)), env)


def grow(world: MeshWorld, rng: np.random.Generator, turn: int, count: int, env: int) -> None:
    """New tables, which hold what the old ones did."""
    n_envs, max_obstacles = world.n_envs + turn % 2, world.max_obstacles + 1
    world.grow(n_envs=min(n_envs, 64), max_obstacles=min(max_obstacles, 256))


def load_the_same(
    world: MeshWorld, rng: np.random.Generator, turn: int, count: int, env: int
) -> None:
    """What the env holds already."""
    world.load(scene(count, env), env)


def far_away(world: MeshWorld, rng: np.random.Generator, turn: int, count: int, env: int) -> None:
    """A mesh that nothing is near comes and goes; the others stay in their slots."""
    world.add("far", ball(rng), (50.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0), env)
    world.remove("far", env)


CHANGES: dict[str, Alter] = {
    "remove and add": remove_and_add,
    "replace": replace,
    "load": load,
    "move": move,
    "track": track,
    "enable": enable,
    "grow": grow,
    "load the same": load_the_same,
    "far away": far_away,
}
# After these, and during them, the changed env costs what it did too.
HARMLESS = ("grow", "load the same", "far away")


def run_case(change: str, count: int, least: int, device: torch.device) -> Outcome:
    """Eight threads ask until there were ``least`` changes and as many rounds of queries."""
    rng = np.random.default_rng(152)
    world = crowd(count, device)
    spheres = paths(153, device)
    truth = everything(world, spheres)
    kept = slice(None) if change in HARMLESS else slice(STILL, STILL + 1)
    stop, lock = threading.Event(), threading.Lock()
    rounds, worst, errors = 0, 0.0, []

    def ask() -> None:
        nonlocal rounds, worst
        try:
            while not stop.is_set():
                try:
                    values = everything(world, spheres)
                except RuntimeError as error:
                    # A gradient by poses asks again what the forward asked, of the same tables.
                    if change == "track" and "modified by an inplace operation" in str(error):
                        continue
                    raise
                wrong = max(
                    difference(v[kept], t[kept]) for v, t in zip(values, truth, strict=True)
                )
                with lock:
                    rounds, worst = rounds + 1, max(worst, wrong)
                    if any(v.isnan().any() for v in values) or (values[0] < 0.0).any():
                        errors.append("NaN or a negative cost")
        except Exception as error:  # told to who runs this
            errors.append(repr(error))

    def also() -> None:
        try:
            turn = 0
            while not stop.is_set():
                move(world, np.random.default_rng(turn), turn, count, ALSO)
                remove_and_add(world, np.random.default_rng(turn), turn, count, ALSO)
                turn += 1
                time.sleep(0.002)
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(N_THREADS)]
    if change not in HARMLESS:
        threads.append(threading.Thread(target=also, daemon=True))
    for thread in threads:
        thread.start()
    turn, end = 0, time.monotonic() + HANGING
    while (turn < least or rounds < least) and not errors and time.monotonic() < end:
        CHANGES[change](world, rng, turn, count, CHANGED)
        turn += 1
        time.sleep(0.001)  # a change after the other would leave the queries no time
    stop.set()
    for thread in threads:
        thread.join()
    return Outcome(turn, rounds, worst, errors[:3])


def difference(value: torch.Tensor, truth: torch.Tensor) -> float:
    """Largest difference, 0 where both are infinite; NaN counts as infinitely far."""
    apart = torch.where(value == truth, 0.0, (value - truth).abs().double())
    return float(apart.nan_to_num(nan=float("inf")).max())


if __name__ == "__main__":
    if sys.argv[1].startswith(simulated_cuda.NAME):
        simulated_cuda.install()
    for name, n_meshes in ast.literal_eval(sys.argv[3]):
        print((name, n_meshes), flush=True)
        outcome = run_case(name, n_meshes, int(sys.argv[2]), torch.device(sys.argv[1]))
        print(tuple(outcome), flush=True)

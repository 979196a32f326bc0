"""Episodes of guarded robots with hostile commands, judged at each millisecond."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import problems
from benchmarks.motors import VELOCITY
from guarded import KINDS, hostile
from path_judge import Judge, Scene
from warp_collision import MeshWorld, Sphere, io, link_distances
from warp_collision.planning import MotionGuard
from warp_collision.robot import RobotSpheres

Array = np.ndarray
DT = 1e-3
ROBOTS = ("panda", "ur5", "baxter")
ACCELERATION = {"panda": 15.0, "ur5": 15.0, "baxter": 8.0}  # rad/s^2
JERK = 500.0  # rad/s^3, in every other part
RADIUS = 0.08  # m, of a ball that comes
_WINDOWS = 64, 8, 1  # samples that a bound rules out at once
_INTO = 50  # steps between looks at what is nearest
_KINDS = (*KINDS, "into")


class Cast:
    """A robot, its judge and its problems."""

    def __init__(self, name: str):
        self.name, self.folder = name, problems.robot_folder(name)
        self.robot: RobotSpheres = problems.load_robot(self.folder, name)
        files = self.folder / f"{name}_spherized.urdf", self.folder / f"{name}.srdf"
        touching = problems.ALWAYS_TOUCHING.get(name, ())
        self.judge = Judge(*files, self.robot.joint_names, touching)
        self.velocity: Array = VELOCITY.get(name, self.robot.velocity_limits.numpy())
        self.n_joints = self.robot.n_joints
        self._problems = problems.list_problems(self.folder, name)

    def draw(self, rng: np.random.Generator) -> tuple[problems.Problem, Scene]:
        """One of the problems."""
        which = self._problems[int(rng.integers(len(self._problems)))]
        names = list(self.robot.joint_names)
        problem = problems.read_problem(self.folder, self.name, *which, names)
        return problem, _scene_of(problem.scene)

    def start(self, problem: problems.Problem, scene: Scene, rng: np.random.Generator) -> Array:
        """Where an episode begins: free, in every other case near contact."""
        near = problem.goal if rng.integers(2) else problem.start
        spread = 10.0 ** rng.uniform(-3.0, -0.5, (20, 1)) * rng.standard_normal((20, len(near)))
        low, high = self.robot.joint_limits.double().numpy().T
        tried = np.clip(np.concatenate((near + spread, [problem.start])), low, high)
        found = self.judge.clearance(tried, scene)
        free = np.flatnonzero(found > 1.5e-3)
        return tried[free[found[free].argmin()] if rng.integers(2) else free[0]]

    def guard(self, world: MeshWorld, **options: Any) -> MotionGuard:
        """With the limits of this robot."""
        limits = {"velocity": self.velocity, "acceleration": ACCELERATION[self.name]}
        return MotionGuard(self.robot, world, DT, **{**limits, **options})


@functools.cache
def _scene_of(path: Path) -> Scene:
    return Scene.from_file(path)


@functools.cache
def _obstacles_of(path: Path) -> dict[str, io.Obstacle]:
    return MeshWorld.from_file(path, device="cpu").obstacles()


def world_of(casts: list[problems.Problem], more: int = 0) -> MeshWorld:
    """A world with an env for the scene of each problem, and room for more."""
    scenes = [_obstacles_of(problem.scene) for problem in casts]
    room = max(map(len, scenes)) + more
    world = MeshWorld(n_envs=len(scenes), max_obstacles=room, device="cpu")
    for env, obstacles in enumerate(scenes):
        world.load(obstacles, env=env)
    return world


def smallest_clearance(judge: Judge, scene: Scene, joints: Array) -> float:
    """Smallest clearance [m] of all of some joint values (n, n_joints), to the scene and to itself.

    In some samples in a row a sphere is within a ball around its box. The clearances of balls rule
    out most samples, as no clearance changes by more than the way of its spheres.
    """
    centers = judge.centers(joints)
    padding = np.repeat(centers[-1:], -len(centers) % _WINDOWS[0], axis=0)
    centers, best = np.concatenate((centers, padding)), np.inf
    one, other = judge._judged.T
    apart = judge.radii[one] + judge.radii[other]
    n_windows = len(centers) // _WINDOWS[0]
    window, sphere = map(np.ravel, np.indices((n_windows, len(judge.radii))))
    beside, pair = map(np.ravel, np.indices((n_windows, len(one))))
    for size, finer in itertools.pairwise((*_WINDOWS, 1)):
        windows = centers.reshape(-1, size, *centers.shape[1:])
        low, high = windows.min(axis=1), windows.max(axis=1)
        middle, half = 0.5 * (low + high), 0.5 * np.linalg.norm(high - low, axis=-1)
        at = middle[window, sphere]
        gap = np.min([each.signed_distance(at) for each in scene.obstacles], axis=0)
        gap -= judge.radii[sphere]
        off = half[window, sphere]
        between = middle[beside, one[pair]] - middle[beside, other[pair]]
        itself = np.linalg.norm(between, axis=-1) - apart[pair]
        both = half[beside, one[pair]] + half[beside, other[pair]]
        best = min(best, (gap + off).min(initial=np.inf), (itself + both).min(initial=np.inf))
        parts = np.arange(size // finer)
        kept, nearest = gap - off < best, itself - both < best
        window = (window[kept, None] * len(parts) + parts).ravel()
        beside = (beside[nearest, None] * len(parts) + parts).ravel()
        sphere, pair = sphere[kept].repeat(len(parts)), pair[nearest].repeat(len(parts))
    return float(best)


def commands_of(kind: str, rng: np.random.Generator, cast: Cast, steps: int) -> Array | None:
    """Velocities (steps, n_joints); None for those that depend on where the robot is."""
    return None if kind == "into" else hostile(kind, rng, cast, steps, 1)[:, 0]  # pyright: ignore[reportArgumentType]


def into_the_nearest(cast: Cast, world: MeshWorld, q: torch.Tensor, env: torch.Tensor) -> Array:
    """Velocities (n, n_joints) straight into what is nearest, as fast as joints can."""
    found = link_distances(q.float(), cast.robot, world, self_collision=True, env_index=env)
    row = found.distance.argmin(dim=1)
    slope = found.gradient[torch.arange(len(q)), row].double().numpy()
    shares = slope / cast.velocity
    largest = np.abs(shares).max(axis=1, keepdims=True).clip(1e-9)
    return -shares / largest * cast.velocity


def run_part(cast: Cast, seed: int, count: int, seconds: float, speed: float) -> dict[str, Any]:
    """Episodes side by side; with a speed each has a ball that comes at it.

    Returns:
        How many touch something, come within 1.1 mm and are breached; the smallest clearance [m];
        the share of steps that were passed on whole.
    """
    rng = np.random.default_rng([seed, int(1e3 * speed), ROBOTS.index(cast.name)])
    drawn = [cast.draw(rng) for _ in range(count)]
    world = world_of([problem for problem, _ in drawn], 1)
    q = torch.from_numpy(np.array([cast.start(*pair, rng) for pair in drawn]))
    steps, envs = int(seconds / DT), torch.arange(count, dtype=torch.int32)
    kinds = [_KINDS[(seed + i) % len(_KINDS)] for i in range(count)]
    commands = [commands_of(kind, rng, cast, steps) for kind in kinds]
    balls = Balls(cast, q.numpy(), rng, speed) if speed else None
    options: dict[str, Any] = {"jerk": JERK if seed % 2 else None, "env_index": envs}
    if balls:
        balls.enter(world)
        options["obstacle_speed"] = {"ball": speed} if seed % 4 < 2 else speed
    guard = cast.guard(world, **options)
    into = [i for i, command in enumerate(commands) if command is None]
    command = np.zeros((count, cast.n_joints))
    v = torch.zeros_like(q)
    moved, speeds = np.empty((2, steps + 1, count, cast.n_joints))
    moved[0], speeds[0] = q.numpy(), 0.0
    passed, breached = 0, np.zeros(count, dtype=int)
    for i in range(steps):
        for row, of_row in enumerate(commands):
            if of_row is not None:
                command[row] = of_row[i]
        if into and i % _INTO == 0:
            command[into] = into_the_nearest(cast, world, q[into], envs[into])
        step = guard.step(q, v, torch.from_numpy(command))
        q, v = step.joints, step.velocities
        moved[i + 1], speeds[i + 1] = q.numpy(), v.numpy()
        passed += int((step.share == 1.0).sum())
        breached += step.breached.numpy()
        if balls:
            balls.move(world, (i + 1) * DT)
    least = np.array(
        [smallest_clearance(cast.judge, drawn[i][1], moved[:, i]) for i in range(count)]
    )
    found: dict[str, Any] = {"robot": cast.name, "seed": seed, "speed": speed, "episodes": count}
    found |= {"contacts": int((least <= 0.0).sum()), "near": int((least < 1.1e-3).sum())}
    found["least"] = round(float(least.min()), 6)
    found["passed"] = round(passed / steps / count, 4)
    found["breached"] = int((breached > 0).sum())
    if balls:
        found |= balls.judged(cast, moved, np.abs(speeds).max(axis=2) > 0.0)
    return found


class Balls:
    """For each episode a ball that comes at a link, from rest at some moment, and goes on."""

    def __init__(self, cast: Cast, start: Array, rng: np.random.Generator, speed: float):
        count = len(start)
        centers = cast.judge.centers(start)
        targets = centers[np.arange(count), rng.integers(centers.shape[1], size=count)]
        self.way = rng.standard_normal((count, 3))
        self.way /= np.linalg.norm(self.way, axis=1, keepdims=True)
        self.begin = targets - self.way * rng.uniform(0.4, 1.0, (count, 1))
        self.moment, self.speed = rng.uniform(0.0, 0.8, (count, 1)), speed

    def places(self, time: float) -> Array:
        """Centers (n, 3) at a time [s]."""
        return self.begin + self.way * self.speed * np.maximum(time - self.moment, 0.0)

    def enter(self, world: MeshWorld) -> None:
        """Puts them into the envs."""
        for env, place in enumerate(self.places(0.0)):
            world.add("ball", Sphere(RADIUS), (*place, 1, 0, 0, 0), env=env)

    def move(self, world: MeshWorld, time: float) -> None:
        """Moves them to where they are at a time."""
        for env, place in enumerate(self.places(time)):
            world.set_pose("ball", (*place, 1, 0, 0, 0), env=env)

    def judged(self, cast: Cast, moved: Array, is_moving: Array) -> dict[str, Any]:
        """How many episodes touch a ball in motion, and at rest.

        A robot is in motion at the end of a step if it is then, or was at its begin.
        """
        touched = {"hit_moving": 0, "met_resting": 0}
        moves = np.concatenate((is_moving[:1], is_moving[1:] | is_moving[:-1]))
        places = np.array([self.places(i * DT) for i in range(len(moved))])
        for row in range(moved.shape[1]):
            centers = cast.judge.centers(moved[:, row])
            apart = np.linalg.norm(centers - places[:, row, None], axis=-1) - cast.judge.radii
            touches = apart.min(axis=1) < RADIUS
            touched["hit_moving"] += bool((touches & moves[:, row]).any())
            touched["met_resting"] += bool((touches & ~moves[:, row]).any())
        return touched

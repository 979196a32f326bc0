"""Random worlds of all kinds of obstacles that change by every route, and their distances.

Each change is made to a world and to plain lists of obstacles, which tell the distances in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import trimesh

import exact_shapes
import reference
import shapes
from exact_scenes import library_shape
from reference import Array, Body
from sensed_shapes import KINDS, random_cloud
from warp_collision import MeshWorld
from warp_collision.poses import invert_pose

SPREAD = 0.8  # [m] obstacles stand within, per axis


@dataclass(kw_only=True)
class WorldObstacle(Body):
    """An obstacle of a world."""

    given: Any  # what `MeshWorld.add` takes

    def distance_at(self, points: Array, poses: Array) -> Array:
        """Signed distance (n,) of points (n, 3) in the world with a pose (n, 7) for each."""
        found = np.empty(len(points))
        different, which = np.unique(poses, axis=0, return_inverse=True)
        for index, pose in enumerate(different):
            rows = which.reshape(-1) == index
            found[rows] = replace(self, pose=pose).distance(points[rows])
        return found


def random_obstacle(rng: np.random.Generator) -> WorldObstacle:
    """An exact shape, a mesh or a cloud, often inflated, at a random pose."""
    pose, padding = shapes.random_pose(rng, SPREAD), 0.0
    if rng.random() < 0.4:
        padding = float(shapes.rounded(rng.uniform(0.0, 0.1)))
    if rng.random() < 0.6:
        a, b, c = (float(size) for size in shapes.rounded(rng.uniform(0.05, 0.5, 3)))
        made = (
            exact_shapes.cuboid(a, b, c),
            exact_shapes.sphere(a / 2),
            exact_shapes.capsule(a / 4, b),
            exact_shapes.cylinder(a / 2, b),
            exact_shapes.cone(a / 2, b),
        )
        exact = made[rng.integers(len(made))]
        return WorldObstacle(exact, pose, padding, given=library_shape(exact))
    if rng.random() < 0.3:
        distance, cloud = random_cloud(
            rng, str(rng.choice(KINDS[:6])), 40, equal=rng.random() < 0.5
        )
        return WorldObstacle(distance, pose, padding, given=cloud)
    if rng.random() < 0.5:
        made = trimesh.creation.torus(0.25, 0.08, major_sections=9, minor_sections=5)
    else:
        made = trimesh.convex.convex_hull(rng.normal(size=(9, 3)) * rng.uniform(0.03, 0.3, 3))
    vertices, faces = shapes.rounded(made.vertices), np.asarray(made.faces)

    def distance(points: Array) -> Array:
        return reference.mesh_signed_distance(points, vertices, faces).distance

    return WorldObstacle(distance, pose, padding, given=(vertices, faces))


class ChangingWorld:
    """A world of several envs, and lists of what each holds."""

    def __init__(self, seed: int, counts: list[int]):
        self.rng = np.random.default_rng(seed)
        self.world = MeshWorld(len(counts), max(counts) + 4, "cpu")
        self.envs: list[dict[str, WorldObstacle]] = [{} for _ in counts]
        self._named = 0
        for env, count in enumerate(counts):
            for _ in range(count):
                self.add(env, random_obstacle(self.rng))

    def add(self, env: int, obstacle: WorldObstacle, name: str | None = None) -> None:
        """Adds an obstacle, or replaces one."""
        if name is None and len(self.envs[env]) == self.world.max_obstacles:
            return
        self._named += 1
        known, name = name is not None, name or f"obstacle {self._named}"
        self.world.add(
            *(name, obstacle.given, obstacle.pose, env, obstacle.enabled),
            replace=known,
            padding=obstacle.padding,
        )
        self.envs[env][name] = obstacle

    def change(self, route: str | None = None) -> str:
        """Makes a change to a random obstacle, by a route or a random one; returns its name."""
        env = int(self.rng.integers(len(self.envs)))
        route = route or str(self.rng.choice([*ROUTES]))
        if self.envs[env]:
            ROUTES[route](self, env, str(self.rng.choice([*self.envs[env]])))
        return route

    def distances(self, env: int, points: Array, poses: Array | None = None) -> Array:
        """(n, n_obstacles) signed distances of points (n, 3); disabled ones are infinitely far.

        Args:
            env: which env.
            points: in the world.
            poses: (n, n_obstacles, 7) other poses of the obstacles for each point.
        """
        found = np.full((len(points), max(len(self.envs[env]), 1)), np.inf)
        for slot, obstacle in enumerate(self.envs[env].values()):
            if obstacle.enabled:
                found[:, slot] = (
                    obstacle.distance(points)
                    if poses is None
                    else obstacle.distance_at(points, poses[:, slot])
                )
        return found

    def spheres(self, horizon: int, count: int) -> Array:
        """Paths (n_envs, horizon, count, 4), most of them beside obstacles of their env."""
        rng = self.rng
        paths = np.empty((len(self.envs), horizon, count, 4))
        for env, obstacles in enumerate(self.envs):
            centers = np.array(
                [obstacle.pose[:3] for obstacle in obstacles.values()] or np.zeros((1, 3))
            )
            begin = centers[rng.integers(len(centers), size=count)]
            steps = rng.normal(size=(horizon, count, 3)) * 0.15
            paths[env, ..., :3] = begin + np.cumsum(steps, axis=0)
        paths[..., 3] = rng.choice([0.0, 0.01, 0.05, 0.2], (len(self.envs), 1, count))
        paths[..., 3] = np.where(rng.random(paths.shape[:3]) < 0.05, -1.0, paths[..., 3])
        return shapes.rounded(paths)

    def rebuilt(self) -> MeshWorld:
        """A fresh world of the same obstacles in another order."""
        fresh = MeshWorld(self.world.n_envs, self.world.max_obstacles, "cpu")
        for env, obstacles in enumerate(self.envs):
            for name in self.rng.permutation([*obstacles]):
                obstacle = obstacles[str(name)]
                fresh.add(
                    *(str(name), obstacle.given, obstacle.pose, env, obstacle.enabled),
                    padding=obstacle.padding,
                )
        return fresh


# -- routes ---------------------------------------------------------------------------------------


def _move(case: ChangingWorld, env: int, name: str) -> WorldObstacle:
    obstacle = case.envs[env][name]
    obstacle.pose = shapes.random_pose(case.rng, SPREAD)
    return obstacle


def _slot(case: ChangingWorld, env: int, name: str) -> int:
    return [*case.envs[env]].index(name)


def _row(pose: Array) -> torch.Tensor:
    return invert_pose(torch.tensor(pose)).float()


def _set_pose(case: ChangingWorld, env: int, name: str) -> None:
    case.world.set_pose(name, tuple(_move(case, env, name).pose), env)


def _set_tracked_pose(case: ChangingWorld, env: int, name: str) -> None:
    pose = torch.tensor(_move(case, env, name).pose, dtype=torch.float32, requires_grad=True)
    case.world.set_pose(name, pose, env)


def _set_poses(case: ChangingWorld, env: int, name: str) -> None:
    poses = np.array([_move(case, env, other).pose for other in case.envs[env]])
    case.world.set_poses(torch.tensor(poses, dtype=torch.float32), env)


def _write_row(case: ChangingWorld, env: int, name: str) -> None:
    row = _row(_move(case, env, name).pose)
    case.world.mesh_from_world[env, _slot(case, env, name), :7] = row


def _write_row_past_torch(case: ChangingWorld, env: int, name: str) -> None:
    row = _row(_move(case, env, name).pose)
    case.world.mesh_from_world.detach().numpy()[env, _slot(case, env, name), :7] = row.numpy()


def _write_padding(case: ChangingWorld, env: int, name: str) -> None:
    padding = float(shapes.rounded(case.rng.uniform(0.0, 0.2)))
    case.envs[env][name].padding = padding
    case.world.padding[env, _slot(case, env, name)] = padding


def _write_padding_past_torch(case: ChangingWorld, env: int, name: str) -> None:
    padding = float(shapes.rounded(case.rng.uniform(0.0, 0.2)))
    case.envs[env][name].padding = padding
    case.world.padding.numpy()[env, _slot(case, env, name)] = padding


def _enable(case: ChangingWorld, env: int, name: str) -> None:
    obstacle = case.envs[env][name]
    obstacle.enabled = not obstacle.enabled
    case.world.enable(name, obstacle.enabled, env)


def _write_enabled_past_torch(case: ChangingWorld, env: int, name: str) -> None:
    obstacle = case.envs[env][name]
    obstacle.enabled = not obstacle.enabled
    case.world.enabled.numpy()[env, _slot(case, env, name)] = obstacle.enabled


def _remove(case: ChangingWorld, env: int, name: str) -> None:
    case.world.remove(name, env)
    del case.envs[env][name]


def _add_again(case: ChangingWorld, env: int, name: str) -> None:
    obstacle = replace(case.envs[env][name], pose=shapes.random_pose(case.rng, SPREAD))
    case.add(env, obstacle)  # the same geometry twice, which is shared


ROUTES: dict[str, Callable[[ChangingWorld, int, str], object]] = {
    "set_pose": _set_pose,
    "set_pose, tracked": _set_tracked_pose,
    "set_poses": _set_poses,
    "row": _write_row,
    "row past torch": _write_row_past_torch,
    "padding": _write_padding,
    "padding past torch": _write_padding_past_torch,
    "enable": _enable,
    "enabled past torch": _write_enabled_past_torch,
    "remove": _remove,
    "add": lambda case, env, name: case.add(env, random_obstacle(case.rng)),
    "add again": _add_again,
    "replace": lambda case, env, name: case.add(env, random_obstacle(case.rng), name),
    "prepare": lambda case, env, name: case.world.prepare(),
    "refit": lambda case, env, name: case.world.refit(),
    "grow": lambda case, env, name: case.world.grow(max_obstacles=case.world.max_obstacles + 1),
}

"""What maps of depth images say of the problems that come with the package, and plans among them.

Cameras around a problem render it by rays, with noise, dropouts and a missing strip. Configurations
of the Panda are checked against the map, unseen voxels occupied, and against the problem itself:
what is free of the map alone ends the benchmark. Then a path is planned among what three cameras
saw, and judged by the problem itself; where start or goal are in unseen voxels, those are left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import warp as wp

import warp_collision as wc
from benchmarks.harness import CPU, WrongResultError, table
from warp_collision.examples import (
    Problem,
    load_panda,
    load_problem,
    problem_names,
    world_of,
)
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.launching.warp_runtime import quiet_warp
from warp_collision.planning import optimize_paths

wp.set_module_options(OPTIONS)

LENS = (260.0, 260.0, 159.5, 119.5)
SIZE = (240, 320)
VOXEL = 0.015
BOUNDS = ((-0.9, -1.2, -0.6), (1.2, 1.2, 1.5))
FARTHEST = 3.0  # [m]
NOISE, PER_METRE = 0.001, 0.001
KEEPS_TABLES = True


@wp.kernel
def render(
    mesh: wp.uint64,
    eye: wp.vec3,
    rotation: wp.mat33,
    lens: wp.vec4,
    depth: wp.array2d[wp.float32],
):
    """Depth of the first surface along the ray of a pixel, 9 m where there is none."""
    row, column = wp.tid()
    x = (float(column) - lens[2]) / lens[0]
    y = (float(row) - lens[3]) / lens[1]
    way = wp.vec3(x, y, 1.0)
    length = wp.length(way)
    ray = wp.mesh_query_ray(mesh, eye, rotation * (way / length), 9.0)
    depth[row, column] = wp.where(ray.result, ray.t / length, 9.0)


class Counts(NamedTuple):
    """Configurations of the robot: all, those free in truth, and those that a map calls free."""

    all: int
    free: int
    found_free: int


def camera_poses(count: int) -> list[np.ndarray]:
    """Poses (4, 4) around the robot, the first ones in front of it."""
    eyes = (
        *((1.5, -1.2, 1.4), (1.5, 1.2, 1.4), (-0.2, 0.1, 1.9)),
        *((-1.5, -1.3, 1.2), (-1.5, 1.3, 1.2), (0.6, 0.1, 2.2)),
    )
    poses = []
    for eye in eyes[:count]:
        z = np.array((0.4, 0.0, 0.3)) - eye
        z /= np.linalg.norm(z)
        x = np.cross(z, (0.0, 0.0, 1.0))
        x /= np.linalg.norm(x)
        pose = np.eye(4)
        pose[:3, :3] = np.stack((x, np.cross(z, x), z), axis=1)
        pose[:3, 3] = eye
        poses.append(pose)
    return poses


def images(problem: Problem, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """What the cameras see: noise within its bound, dropouts, and a strip without returns."""
    mesh = world_of(problem, CPU).to_scene().to_mesh()
    found = []
    with quiet_warp():
        corners = wp.array(np.asarray(mesh.vertices, np.float32), dtype=wp.vec3, device="cpu")
        faces = wp.array(np.asarray(mesh.faces, np.int32).ravel(), dtype=wp.int32, device="cpu")
        surface = wp.Mesh(corners, faces)
        for pose in camera_poses(count):
            depth = wp.zeros(SIZE, dtype=wp.float32, device="cpu")
            rotation = wp.mat33(*pose[:3, :3].ravel())
            where = [surface.id, wp.vec3(*pose[:3, 3]), rotation, wp.vec4(*LENS)]
            wp.launch(render, SIZE, where, [depth], device="cpu")
            seen = depth.numpy().astype(np.float64)
            seen += rng.uniform(-0.99, 0.99, SIZE) * (NOISE + PER_METRE * seen)
            seen[rng.random(SIZE) < 0.001] = np.nan
            seen[150:153, 40:120] = 0.0
            found.append(seen)
    return found


def map_of(problem: Problem, count: int, seed: int) -> wc.OccupancyMap:
    """What so many cameras know."""
    seen = wc.OccupancyMap(BOUNDS, VOXEL)
    rng = np.random.default_rng(seed)
    for depth, pose in zip(images(problem, count, rng), camera_poses(count), strict=True):
        seen.integrate(
            depth,
            LENS,
            pose,
            max_depth=FARTHEST,
            noise=NOISE,
            noise_per_metre=PER_METRE,
        )
    return seen


def with_map(seen: wc.OccupancyMap) -> wc.MeshWorld:
    """Its occupied voxels, and those never seen."""
    grid = seen.to_voxel_grid()
    world = wc.MeshWorld(device="cpu")
    world.add("seen", grid.seen)
    world.add("never seen", grid.unseen)
    return world


def hits(spheres: torch.Tensor, world: wc.MeshWorld) -> torch.Tensor:
    """Which configurations (n,) of spheres (n, spheres, 4) touch something."""
    return wc.any_in_collision(spheres[:, None], world).flatten()


def compare(problem: Problem, seen: wc.OccupancyMap, spheres: torch.Tensor) -> Counts:
    """Raises if the map calls free what is not."""
    truth = hits(spheres, world_of(problem, CPU))
    found = hits(spheres, with_map(seen))
    if (truth & ~found).any():
        count = int((truth & ~found).sum())
        raise WrongResultError(f"{problem.name}: {count} configurations are free of the map alone")
    return Counts(len(truth), int((~truth).sum()), int((~found).sum()))


def plan(problem: Problem, seen: wc.OccupancyMap, robot: wc.RobotSpheres) -> str:
    """Whether a path among what was seen is there, and what the problem itself says of it."""
    world, ends = with_map(seen), torch.tensor([problem.start, problem.goal])
    without = bool(hits(robot.spheres(ends), world).any())
    world.enable("never seen", not without)
    found = optimize_paths(
        *(ends[:1], ends[1:], robot, world), until="first", on_invalid_endpoints="mark"
    )
    kind = "seen alone" if without else "unseen occupied"
    if not found.free.any():
        return f"{kind}: no path"
    path = found.joints[found.free][:1]
    hit = wc.joint_path_in_collision(path, robot, world_of(problem, CPU)).any()
    if hit and not without:
        raise WrongResultError(f"{problem.name}: a path is free of the map and hits the problem")
    return f"{kind}: {'hits what was not seen' if hit else 'solved'}"


def add_options(parser: Any) -> None:
    """Which problems, how many configurations."""
    parser.add_argument("--problems", nargs="+", default=problem_names())
    parser.add_argument("--configurations", type=int, default=300)


def run(options: Any) -> str:
    """The tables."""
    robot = load_panda()
    generator = torch.Generator().manual_seed(5)
    low, high = robot.joint_limits.T
    joints = low + (high - low) * torch.rand(
        options.configurations, robot.n_joints, generator=generator
    )
    spheres = robot.spheres(joints.float())
    # What stands still is part of the scene of no problem.
    moves = spheres[..., :3].std(dim=0).amax(dim=-1) > 0.12
    spheres = spheres[:, moves].contiguous()
    inside = (spheres[..., :3] > torch.tensor(BOUNDS[0]) + 0.1) & (
        spheres[..., :3] < torch.tensor(BOUNDS[1]) - 0.1
    )
    spheres = spheres[inside.all(dim=-1).all(dim=-1)]
    rows, plans = [], {}
    for count in (1, 2, 3, 6):
        totals, unseen = np.zeros(3, int), []
        for index, name in enumerate(options.problems):
            problem = load_problem(name)
            seen = map_of(problem, count, index)
            unseen.append(seen.unknown_fraction)
            totals += compare(problem, seen, spheres)
            if count == 3:
                outcome = plan(problem, seen, robot)
                plans[outcome] = plans.get(outcome, 0) + 1
        total, free, found = totals.tolist()
        share = f"{100.0 * float(np.mean(unseen)):.0f} %"
        rows.append([str(count), str(total), "0", f"{free - found} of {free}", share])
    titles = ["cameras", "configurations", "false free", "refused though free", "unseen"]
    text = table(titles, rows, 1)
    paths = table(
        ["planned among what three cameras saw", "problems"],
        [[*map(str, p)] for p in plans.items()],
        1,
    )
    return f"{text}\n\n{paths}"

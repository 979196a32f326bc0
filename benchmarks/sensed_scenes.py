"""What maps of depth images say of the problems that come with the package, and plans among them.

Cameras around a problem render it by rays, with noise, dropouts and a missing strip. Configurations
of the Panda are checked against the map, unseen voxels occupied, and against the problem itself:
what is free of the map alone ends the benchmark. With `--plan` paths are planned among what three
cameras saw, and judged by coal in the problem itself. Voxels that were never seen are occupied, but
for those within a margin of the robot at start and goal: it is known to fit there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
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
# Of the plans: what one image lacks, as a pixel without a return, another one has.
FINE_VOXEL = 0.01
Place = tuple[float, float, float]
# Around the scene, the first ones before the robot; and beside and behind it, looking into shelves.
EYES: tuple[Place, ...] = (
    *((1.5, -1.2, 1.4), (1.5, 1.2, 1.4), (-0.2, 0.1, 1.9)),
    *((-1.5, -1.3, 1.2), (-1.5, 1.3, 1.2), (0.6, 0.1, 2.2)),
)
EYES_OF_ROBOT: tuple[Place, ...] = ((-0.3, -1.5, 0.9), (-0.3, 1.5, 0.9), (-0.5, 0.0, 1.5))
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


def camera_poses(eyes: Sequence[Place]) -> list[np.ndarray]:
    """Poses (4, 4) of cameras that look at the middle of the scene."""
    poses = []
    for eye in eyes:
        z = np.array((0.4, 0.0, 0.3)) - eye
        z /= np.linalg.norm(z)
        x = np.cross(z, (0.0, 0.0, 1.0))
        x /= np.linalg.norm(x)
        pose = np.eye(4)
        pose[:3, :3] = np.stack((x, np.cross(z, x), z), axis=1)
        pose[:3, 3] = eye
        poses.append(pose)
    return poses


def images(problem: Problem, eyes: Sequence[Place], rng: np.random.Generator) -> list[np.ndarray]:
    """What the cameras see: noise within its bound, dropouts, and a strip without returns."""
    mesh = world_of(problem, CPU).to_scene().to_mesh()
    found = []
    with quiet_warp():
        corners = wp.array(np.asarray(mesh.vertices, np.float32), dtype=wp.vec3, device="cpu")
        faces = wp.array(np.asarray(mesh.faces, np.int32).ravel(), dtype=wp.int32, device="cpu")
        surface = wp.Mesh(corners, faces)
        for pose in camera_poses(eyes):
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


def map_of(
    problem: Problem, eyes: Sequence[Place], seed: int, voxel: float = VOXEL, frames: int = 1
) -> wc.OccupancyMap:
    """What cameras at some places know after some images of each."""
    seen = wc.OccupancyMap(BOUNDS, voxel)
    rng = np.random.default_rng(seed)
    options = {"max_depth": FARTHEST, "noise": NOISE, "noise_per_metre": PER_METRE}
    for _ in range(frames):
        for depth, pose in zip(images(problem, eyes, rng), camera_poses(eyes), strict=True):
            seen.integrate(depth, LENS, pose, **options)
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


def sample() -> dict[str, dict[str, Any]]:
    """The first eight problems of each of the seven sets of MotionBenchMaker."""
    folders = (files("warp_collision.assets") / name for name in ("planning", "problems"))
    read = [file for folder in folders for file in folder.iterdir() if file.name.endswith(".json")]
    entries = [json.loads(file.read_text()) for file in read]
    return {name: entry for part in entries for name, entry in sorted(part.items())}


def problem_of(name: str, entry: dict[str, Any]) -> Problem:
    """A problem of the sample."""
    kinds = {kind: entry.get(kind, {}) for kind in ("cuboid", "cylinder")}
    ends = entry["start"], entry["goal"]
    return Problem(name, entry["joint_names"], *ends, wc.io.load_world_mapping(kinds))


def plan(
    problem: Problem, seen: wc.OccupancyMap, robot: wc.RobotSpheres, margin: float
) -> tuple[str, Any]:
    """How start and goal stand to the map, and the path (horizon, 7) that is free of it, or None.

    Voxels that were never seen are occupied, but for those within a margin of the robot there [m].
    """
    ends = torch.tensor([problem.start, problem.goal])
    spheres = robot.spheres(ends)
    before = seen.to_voxel_grid()
    world = wc.MeshWorld(device="cpu")
    world.add("seen", before.seen)
    if hits(spheres, world).any():
        return "in voxels that were seen", None
    world.add("never seen", before.unseen)
    is_free = not hits(spheres, world).any()
    seen.clear(robot, ends, margin=margin)
    world.update("never seen", seen.to_voxel_grid().unseen)
    found = optimize_paths(
        *(ends[:1], ends[1:], robot, world),
        until="first",
        on_invalid_endpoints="mark",
        generator=torch.Generator().manual_seed(0),
    )
    path = found.joints[0].numpy() if found.free.all() else None
    return "free" if is_free else "in voxels never seen", path


def plan_sample(options: Any) -> str:
    """Plans among what three cameras saw, and lets the judge of the planning benchmark look."""
    from benchmarks.plan.judge import Judge
    from benchmarks.plan.scene import Scene

    robot = load_panda()
    urdf = Path(str(files("warp_collision.assets"))) / "panda" / "panda.urdf"
    judge = Judge(urdf, None, robot.joint_names)
    counts: dict[str, list[int]] = {}
    problems = sample()
    for index, name in enumerate(options.problems or problems):
        problem = problem_of(name, problems[name])
        seen = map_of(problem, EYES_OF_ROBOT, index, FINE_VOXEL, frames=3)
        ends, path = plan(problem, seen, robot, options.margin)
        row = counts.setdefault(ends, [0, 0, 0])
        row[0] += 1
        if path is not None:
            said = judge.judge(path, Scene.from_mapping(problems[name]))
            row[1] += 1
            row[2] += not said.free
            if not said.free:
                print(f"{name}: {1e3 * said.clearance:.1f} mm, {said.link} and {said.obstacle}")
    titles = ["start and goal", "problems", "solved: free of the map", "that hit the problem"]
    return table(titles, [[kind, *map(str, row)] for kind, row in counts.items()], 1)


def add_options(parser: Any) -> None:
    """Which problems, how many configurations."""
    parser.add_argument(
        "--plan", action="store_true", help="plan the sample of 56 problems, judged by coal"
    )
    parser.add_argument(
        "--margin", type=float, default=0.02, help="around the robot at start and goal [m]"
    )
    parser.add_argument("--problems", nargs="+", default=[])
    parser.add_argument("--configurations", type=int, default=300)


def run(options: Any) -> str:
    """The table."""
    if options.plan:
        return plan_sample(options)
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
    rows = []
    for count in (1, 2, 3, 6):
        totals, unseen = np.zeros(3, int), []
        for index, name in enumerate(options.problems or problem_names()):
            problem = load_problem(name)
            seen = map_of(problem, EYES[:count], index)
            unseen.append(seen.unknown_fraction)
            totals += compare(problem, seen, spheres)
        total, free, found = totals.tolist()
        share = f"{100.0 * float(np.mean(unseen)):.0f} %"
        rows.append([str(count), str(total), "0", f"{free - found} of {free}", share])
    titles = ["cameras", "configurations", "false free", "refused though free", "unseen"]
    return table(titles, rows, 1)

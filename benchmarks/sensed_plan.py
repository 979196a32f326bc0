"""Paths of the Panda among what three cameras see, judged by coal in the problem itself.

The first eight problems of each of the seven sets of MotionBenchMaker are rendered by rays, with
noise, dropouts and a missing strip, three images of each camera. All voxels that no camera saw are
occupied, but for those within a margin of the robot at start and goal: it is known to fit there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp

import warp_collision as wc
from benchmarks.harness import Failed, table
from benchmarks.scenes import PANDA, problems
from depth_scenes import look
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths

# Behind the robot, on both sides of it and above, from where they look into shelves and cages.
EYES, MIDDLE = ((-0.6, -1.2, 0.6), (-0.6, 1.2, 0.6), (-0.6, 0.0, 1.4)), (0.4, 0.0, 0.3)
LENS, SIZE = (520.0, 520.0, 319.5, 239.5), (480, 640)
BOUNDS, VOXEL, FARTHEST = ((-0.9, -1.2, -0.6), (1.2, 1.2, 1.5)), 0.01, 3.0  # [m]
MARGIN = 0.02  # [m] around the robot at start and goal: it is known to fit there
TRIES = 2  # of the planner, with other random numbers
IMAGES = 3  # of each camera: what one lacks, as a pixel without a return, another one has
NOISE = 0.001  # [m], and for each metre


@wp.kernel(enable_backward=False)
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


def obstacles_of(problem: dict[str, Any]) -> wc.MeshWorld:
    """The problem itself."""
    kinds = {kind: problem.get(kind, {}) for kind in ("cuboid", "cylinder")}
    return wc.MeshWorld.from_mapping(kinds, device="cpu")


def map_of(problem: dict[str, Any], seed: int) -> wc.OccupancyMap:
    """What the cameras know after some images of each."""
    mesh, rng = obstacles_of(problem).to_scene().to_mesh(), np.random.default_rng(seed)
    corners = wp.array(np.asarray(mesh.vertices, np.float32), dtype=wp.vec3, device="cpu")
    faces = wp.array(np.asarray(mesh.faces, np.int32).ravel(), dtype=wp.int32, device="cpu")
    surface, seen = wp.Mesh(corners, faces), wc.OccupancyMap(BOUNDS, VOXEL)
    for eye in EYES * IMAGES:
        pose = look(np.array(eye), np.array(MIDDLE))
        rendered = wp.zeros(SIZE, dtype=wp.float32, device="cpu")
        rotation = wp.mat33(*pose[:3, :3].ravel())
        given = [surface.id, wp.vec3(*eye), rotation, wp.vec4(*LENS), rendered]
        wp.launch(render, SIZE, given, device="cpu")
        depth = rendered.numpy().astype(np.float64)
        depth += rng.uniform(-0.99, 0.99, SIZE) * NOISE * (1.0 + depth)
        depth[rng.random(SIZE) < 0.001] = np.nan
        depth[300:306, 80:240] = 0.0
        options = {"max_depth": FARTHEST, "noise": NOISE, "noise_per_metre": NOISE}
        seen.integrate(depth, LENS, pose, **options)
    return seen


def plan(
    problem: dict[str, Any],
    seen: wc.OccupancyMap,
    robot: wc.RobotSpheres,
    margin: float,
    tries: int,
) -> tuple[str, Any]:
    """How start and goal stand to the map, and the path (horizon, 7) that is free of it, or None.

    Voxels that were never seen are occupied, but for those within a margin of the robot there [m].
    """
    ends = torch.tensor([problem["start"], problem["goal"]])
    spheres, before, world = robot.spheres(ends), seen.to_voxel_grid(), wc.MeshWorld(device="cpu")
    world.add("seen", before.seen)
    if wc.any_in_collision(spheres[:, None], world).any():
        return "in voxels that were seen", None
    world.add("never seen", before.unseen)
    is_free = not wc.any_in_collision(spheres[:, None], world).any()
    seen.clear(robot, ends, margin=margin)
    world.update("never seen", seen.to_voxel_grid().unseen)
    path = None
    for seed in range(tries):
        found = optimize_paths(
            ends[:1],
            ends[1:],
            robot,
            world,
            until="first",
            on_invalid_endpoints="mark",
            generator=torch.Generator().manual_seed(seed),
        )
        if found.free.all():
            path = found.joints[0].numpy()
            break
    return "free" if is_free else "in voxels never seen", path


def add_options(parser: Any) -> None:
    """Which problems, and what is taken for free."""
    parser.add_argument("--problems", nargs="+", default=[*problems()], metavar="NAME")
    parser.add_argument("--margin", type=float, default=MARGIN, help="around the robot [m]")
    parser.add_argument("--tries", type=int, default=TRIES, help="of the planner")


def solve(names: list[str], margin: float = MARGIN, tries: int = TRIES) -> dict[str, np.ndarray]:
    """By how start and goal stand to the map: problems, those solved, and paths that hit."""
    from path_judge import Judge, Scene

    robot, known = load_panda(), problems()
    judge = Judge(PANDA, None, robot.joint_names)
    counts: dict[str, np.ndarray] = {}
    for index, name in enumerate(known):
        if name not in names:
            continue
        ends, path = plan(known[name], map_of(known[name], index), robot, margin, tries)
        counts.setdefault(ends, np.zeros(3, int))[0] += 1
        if path is None:
            print(f"{name}: not solved, start or goal {ends}", flush=True)
        else:
            said = judge.judge(path, Scene.from_mapping(known[name]))
            counts[ends] += (0, 1, not said.free)
            if not said.free:
                print(f"{name}: {1e3 * said.clearance:.1f} mm, {said.link} and {said.obstacle}")
    return counts


def table_of(counts: dict[str, np.ndarray]) -> str:
    """A line for each way in which start and goal stand to the map."""
    head = ["start and goal", "problems", "solved: free of the map", "that hit the problem"]
    return table(head, [[kind, *map(str, row)] for kind, row in counts.items()])


def run(options: Any) -> str:
    """The table; fails where a path hits the problem."""
    counts = solve(options.problems, options.margin, options.tries)
    if any(row[2] for row in counts.values()):
        raise Failed(table_of(counts))
    return table_of(counts)

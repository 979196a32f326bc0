"""Functions beside the costs of spheres: kinematics, joint paths, planner, edits of worlds, graphs.

The Panda on 32 bent paths of 32 waypoints through a cage. Before a function is
timed its results are compared with kinematics of pinocchio and exact shapes in float64, which share
no code with the library (`path_judge`).
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import reference
import warp_collision as wc
from benchmarks import baseline, harness, scenes
from benchmarks.harness import Call, Workload, require
from benchmarks.scenes import (
    ACTIVATION_DISTANCE,
    PANDA,
    bent_paths,
    problems,
    random_poses,
    scattered,
    shape,
)
from warp_collision.devices import GPUS, is_gpu
from warp_collision.examples import world_of
from warp_collision.planning import optimize_paths
from warp_collision.poses import invert_pose, to_rows

TOLERANCE = 1e-3  # [m] of the library's proofs
ROUNDING = 1e-5  # [m] of float32
BATCH = 32  # paths of 32 waypoints


class Setup(NamedTuple):
    """The robot, its world and paths, and the judge of both."""

    robot: Any
    world: Any
    joints: Tensor  # (batch, horizon, n_joints)
    ends: tuple[Tensor, Tensor]  # of the problem, (1, n_joints)
    judge: Any
    scene: Any


def set_up(batch: int, device: torch.device) -> Setup:
    """On a device."""
    from path_judge import Judge, Scene

    robot, problem, joints = bent_paths(batch, "cage_2")
    ends = [torch.tensor([end], device=device) for end in (problem.start, problem.goal)]
    scene = Scene.from_mapping(problems()["cage_2"])
    judge = Judge(PANDA, None, robot.joint_names)
    return Setup(robot, world_of(problem, device), joints.to(device), (*ends,), judge, scene)


def _configurations(given: Setup, count: int = 200) -> tuple[Tensor, np.ndarray]:
    """Some joint values, and their spheres' centers by the judge."""
    some = given.joints.flatten(0, 1)[:count]
    return some, given.judge.centers(some.double().cpu().numpy())


def kinematics(given: Setup) -> Call:
    """Spheres of all configurations, forward and backward."""
    some, centers = _configurations(given)
    off = np.abs(given.robot(some).cpu().numpy()[..., :3] - centers).max()
    require(off < ROUNDING, f"a sphere is off by {off:g} m")
    return baseline.differentiated(given.robot, given.joints)


def self_collision(given: Setup) -> Call:
    """Cost of the robot with itself, forward and backward."""
    some, centers = _configurations(given)
    pairs, gaps = given.robot.self_collision_pairs(), given.judge.gaps(centers).min(axis=1)
    found = wc.self_clearance(given.robot(some)[None], pairs).clearance.cpu().numpy().ravel()
    require(np.abs(found - gaps).max() < ROUNDING, "another clearance of the robot of itself")
    return baseline.differentiated(
        lambda q: wc.self_collision_cost(given.robot(q), pairs), given.joints
    )


def configurations(given: Setup) -> Call:
    """Yes or no of all configurations."""
    some, centers = _configurations(given)
    world = given.scene.nearest(centers, given.judge.radii).clearance.min(axis=1)
    least = np.minimum(world, given.judge.gaps(centers).min(axis=1))
    hit = wc.configuration_in_collision(some, given.robot, given.world).cpu().numpy()
    known = np.abs(least) > ROUNDING
    require(((least < 0.0) == hit)[known].all(), "another answer")
    run = partial(wc.configuration_in_collision, given.joints, given.robot, given.world)
    return Call(run, given.joints[..., 0].numel())


def _judged(given: Setup, count: int = 4) -> tuple[Tensor, np.ndarray]:
    """Some paths (n, 2, n_joints) of one segment, and their clearances by the judge."""
    some = given.joints[:count, ::8].unfold(1, 2, 1).transpose(2, 3).flatten(0, 1).contiguous()
    paths = some.double().cpu().numpy()
    return some, np.array([given.judge.judge(path, given.scene).clearance for path in paths])


def joint_path_proof(given: Setup) -> Call:
    """Proofs that all segments are free."""
    some, least = _judged(given)
    hit = wc.joint_path_in_collision(some, given.robot, given.world, tolerance=TOLERANCE)
    right = np.where(hit[:, 0].cpu().numpy(), least < TOLERANCE + ROUNDING, least > -ROUNDING)
    require(bool(right.all()), "a segment that is not free, or refused with clearance")
    run = partial(wc.joint_path_in_collision, given.joints, given.robot, given.world)
    return Call(run, given.joints[:, 1:, 0].numel())


def joint_path_bounds(given: Setup) -> Call:
    """Certified clearances of all segments."""
    some, least = _judged(given)
    found = wc.joint_path_clearance(some, given.robot, given.world)
    lower, upper = (bound[:, 0].cpu().numpy() for bound in (found.lower, found.upper))
    # The judge samples: what it finds is above the smallest clearance, by a millimetre at most.
    require((lower <= least + ROUNDING).all(), "a lower bound above a clearance")
    require((upper >= least - TOLERANCE).all(), "an upper bound below all clearances")
    run = partial(wc.joint_path_clearance, given.joints, given.robot, given.world)
    return Call(run, given.joints[:, 1:, 0].numel())


def resting_costs(given: Setup) -> Call:
    """Cost of the waypoints alone, forward and backward."""
    return baseline.differentiated(
        lambda q: wc.sphere_cost(given.robot(q), given.world), given.joints
    )


def joint_path_costs(given: Setup, substeps: int | None = None) -> Call:
    """Cost of all paths, forward and backward."""
    some, centers = _configurations(given, 50)
    at_rest = wc.joint_path_cost(some[:, None], given.robot, given.world)
    d = given.judge.radii + ACTIVATION_DISTANCE
    d = np.stack([d - o.signed_distance(centers) for o in given.scene.obstacles])
    cost = reference.hinge(d, ACTIVATION_DISTANCE).sum(axis=(0, 2))
    found = at_rest.flatten(1).sum(dim=1).cpu().numpy()
    require(np.allclose(found, cost, rtol=1e-4, atol=1e-4), "another cost at rest")
    given_all = {"robot": given.robot, "world": given.world, "substeps": substeps}
    return baseline.differentiated(lambda q: wc.joint_path_cost(q, **given_all), given.joints)


def planner(given: Setup) -> Call:
    """One problem, planned to the end."""

    def plan() -> Any:
        generator = torch.Generator().manual_seed(0)
        return optimize_paths(*given.ends, given.robot, given.world, generator=generator)

    found = plan()
    path = found.joints[0].double().cpu().numpy()
    require(bool(found.free.all()), "no path")
    require(given.judge.judge(path, given.scene).free, "a path that is not free")
    return Call(plan)


def graphs(given: Setup) -> Call:
    """A captured graph of the resting cost, forward and backward."""
    gpu: Any = GPUS[given.joints.device.type]
    call = resting_costs(given)
    side = gpu.Stream()
    with gpu.stream(side):
        eager = [found.clone() for found in call.run()]
    gpu.current_stream().wait_stream(side)
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):
        captured = call.run()
    graph.replay()
    gpu.synchronize()
    require(all(map(torch.equal, captured, eager)), "a replay with other bits")
    return call._replace(run=graph.replay)


def adding(given: Setup) -> Call:
    """A mesh of 80,000 triangles into a new world."""
    mesh, device = shape("torus-80000"), given.joints.device
    return Call(lambda: wc.MeshWorld(1, 1, device).add("mesh", mesh))


def moving(given: Setup) -> Call:
    """All of 1,000 meshes, from a tensor on the device; the tree over them included."""
    device = given.joints.device
    placed, edge = scattered(np.random.default_rng(4), 1_000)
    world = scenes.world_of([placed], device)
    poses = torch.from_numpy(random_poses(np.random.default_rng(8), 1_000, edge)).to(device)
    wc.sphere_cost(torch.full((1, 1, 1, 4), 0.1, device=device), world)  # builds the tree
    world.set_poses(poses)
    off = (world.mesh_from_world[0] - to_rows(invert_pose(poses))).abs().max()
    require(off < 1e-5, f"a pose is off by {off:g}")
    return Call(lambda: world.set_poses(poses))


FUNCTIONS = {
    "kinematics, forward and backward": (kinematics, "configuration"),
    "self-collision cost, forward and backward": (self_collision, "configuration"),
    "configuration_in_collision": (configurations, "configuration"),
    "joint_path_in_collision": (joint_path_proof, "segment"),
    "joint_path_clearance": (joint_path_bounds, "segment"),
    "sphere_cost of waypoints, forward and backward": (resting_costs, "configuration"),
    "joint_path_cost with substeps=1": (partial(joint_path_costs, substeps=1), "configuration"),
    "joint_path_cost, forward and backward": (joint_path_costs, "configuration"),
    "optimize_paths": (planner, "problem"),
    "adding a mesh of 80,000 triangles": (adding, "mesh"),
    "moving 1,000 meshes": (moving, "world"),
    "waypoints' sphere_cost as a CUDA graph": (graphs, "configuration"),
}
add_options = partial(harness.timing_options, on_gpu=True)


def run(options: Any) -> str:
    """The table."""
    given = set_up(max(1, round(BATCH * options.scale)), options.device)
    workloads = [
        Workload(name, unit, lambda make=make: {"library": make(given)})
        for name, (make, unit) in FUNCTIONS.items()
        if make is not graphs or is_gpu(options.device)
    ]
    return harness.measure(workloads, options)

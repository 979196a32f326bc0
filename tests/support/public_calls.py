"""Every public call that runs on a device, as callers make it again and again."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trimesh
import warp as wp

from arms import arm_in
from robots import PANDA
from warp_collision import (
    CollisionCost,
    Cuboid,
    Cylinder,
    HeightField,
    MeshWorld,
    OccupancyMap,
    PointCloud,
    RobotSpheres,
    VoxelGrid,
    any_in_collision,
    clearance,
    clearance_residuals,
    configuration_in_collision,
    cost_residuals,
    gauss_newton,
    in_collision,
    joint_path_clearance,
    joint_path_cost,
    joint_path_in_collision,
    link_distances,
    sampling,
    self_clearance,
    self_collision_cost,
    signed_distance,
    sphere_cost,
    swept_in_collision,
    swept_sphere_cost,
)
from warp_collision.devices import CPU
from warp_collision.planning import CollisionTerm, JointLimitsTerm, MotionGuard, SmoothnessTerm
from warp_collision.planning.descent import PathDescent
from warp_collision.planning.objective import Objective
from warp_collision.robot import JointCurve, RobotChecker
from warp_collision.warp_primitives import SdfMeshWarpPy, SweptSdfMeshWarpPy

Tensor = torch.Tensor
BASE = (0.1, 0.0, 0.2, 0.8, 0.0, 0.0, 0.6)


class Operands:
    """What the calls read, on one device: two envs, a mesh among exact shapes, a carrying robot."""

    def __init__(self, device: torch.device):
        self.device = device
        rng = np.random.default_rng(7)
        self.world = world = MeshWorld(2, 4, device)
        for env in range(2):
            for name, shape in (("block", Cuboid((0.3, 0.2, 0.4))), ("can", Cylinder(0.1, 0.3))):
                world.add(name, shape, (*rng.uniform(-0.6, 0.6, 3), 1, 0, 0, 0), env=env)
        world.add("ball", trimesh.creation.icosphere(1, 0.2), (0.4, 0.1, 0.5, 1, 0, 0, 0))
        self.env_index = torch.tensor([0, 1], dtype=torch.int32, device=device)
        rows = np.concatenate(
            [rng.uniform(-0.7, 0.7, (2, 4, 5, 3)), np.full((2, 4, 5, 1), 0.05)], 3
        )
        self.spheres = torch.from_numpy(rows.astype(np.float32)).to(device)
        self.poses = torch.zeros((2, 4, 7), device=device)
        for env in range(2):
            self.poses[env, : len(world.names(env))] = world.poses(env)
        self.moving = self.poses[:, None].repeat(1, 4, 1, 1)
        self.moving[:, :, 0, 0] += torch.linspace(0.0, 0.3, 4, device=device)
        self.mask = torch.tensor([True, True, True], device=device)
        self.robot = RobotSpheres(PANDA)
        self.robot.attach("tool", "panda_hand", [[0.0, 0.0, 0.12, 0.03]], envs=[1])
        self.plain_robot = RobotSpheres(PANDA)
        self.pairs = self.plain_robot.self_collision_pairs()
        self.joints = self.joints_of(self.robot)
        self.limits = self.robot.joint_limits.to(device)
        self.base = torch.tensor(BASE, device=device)
        self.bases = torch.stack((self.base, self.base.roll(0)))
        self.probabilities = torch.full((4, 3), 1.0 / 3.0, device=device)

    def joints_of(self, robot: RobotSpheres) -> Tensor:
        """Two paths (2, 4, n_joints) in the middle of limits."""
        lower, upper = robot.joint_limits.unbind(-1)
        steps = torch.linspace(0.45, 0.55, 4)[:, None] + torch.tensor([0.0, 0.05])[:, None, None]
        return (lower + steps * (upper - lower)).to(self.device)

    @cached_property
    def robot_spheres(self) -> Tensor:
        """Spheres (2, 4, n_spheres, 4) of the robot that carries nothing."""
        return self.plain_robot.spheres(self.joints).detach()

    def curve_of(self, robot: RobotSpheres) -> JointCurve:
        """Cubic curves through the joint values."""
        joints = self.joints_of(robot)
        return JointCurve.from_hermite(range(joints.shape[1]), joints, torch.zeros_like(joints))

    @cached_property
    def curve(self) -> JointCurve:
        """Of the robot that carries something."""
        return self.curve_of(self.robot)

    @cached_property
    def arm(self) -> RobotSpheres:
        """A robot whose links have convex pieces."""
        return arm_in(Path(tempfile.mkdtemp()))

    @cached_property
    def checker(self) -> RobotChecker:
        """Of the robot that carries something in an env."""
        return RobotChecker(self.robot, self.world)

    @cached_property
    def guard(self) -> MotionGuard:
        """Of robots of both envs."""
        options = {"acceleration": 10.0, "env_index": self.env_index}
        return MotionGuard(self.robot, self.world, 1e-3, **options)

    @cached_property
    def sensed(self) -> MeshWorld:
        """A world of a point cloud, a voxel grid and a height field."""
        world = MeshWorld(device=self.device)
        points = np.random.default_rng(8).uniform(-0.4, 0.4, (50, 3))
        world.add("camera", PointCloud(points, radius=0.02))
        occupied = np.zeros((8, 8, 8), dtype=bool)
        occupied[2:5, 3:6, 1:4] = True
        world.add("map", VoxelGrid(occupied, voxel_size=0.1, origin=(-0.4, -0.4, -0.4)))
        heights = np.random.default_rng(9).uniform(0.0, 0.2, (9, 7))
        world.add("floor", HeightField(heights, (0.8, 0.8), 0.1), (0, 0, -0.5, 1, 0, 0, 0))
        return world

    @cached_property
    def foreign(self) -> tuple[Tensor, list[wp.Mesh]]:
        """Ids of a caller's own meshes, and these."""
        meshes = [
            wp.Mesh(
                wp.array(mesh.vertices, dtype=wp.vec3, device=str(self.device)),
                wp.array(mesh.faces.ravel(), dtype=wp.int32, device=str(self.device)),
                support_winding_number=True,
            )
            for mesh in (trimesh.creation.box((0.3, 0.3, 0.3)), trimesh.creation.icosphere(1, 0.2))
        ]
        ids = torch.tensor([[mesh.id for mesh in meshes] + [0, 0]] * 2, dtype=torch.int64)
        return ids.to(self.device), meshes

    def drop_in(self, function: Any, ids: Tensor, *options: Any) -> Callable[[], list[Tensor]]:
        """A call of a drop-in Function with its gradient."""
        shape, device = self.spheres.shape[:-1], self.device
        spheres = self.spheres.clone().requires_grad_()
        buffers = (
            torch.zeros(shape, device=device),
            torch.zeros((*shape, 4), device=device),
            torch.zeros(shape, dtype=torch.uint8, device=device),
        )
        one = torch.ones(1, device=device)
        upstream = torch.ones(shape, device=device)
        world = self.world
        tables = ids, world.mesh_from_world, world.enabled, world.n_meshes
        scalars = (one, 0.02 * one, *((one,) if function is SweptSdfMeshWarpPy else ()))

        def call() -> list[Tensor]:
            cost = function.apply(spheres, *buffers, *scalars, *tables, one, *options)
            return [cost.detach(), *torch.autograd.grad(cost, spheres, upstream)]

        return call


def with_gradient(
    function: Callable[[Tensor], Tensor], operand: Tensor
) -> Callable[[], list[Tensor]]:
    """A call with its gradient by one operand."""
    leaf = operand.detach().clone().requires_grad_()
    upstream = torch.ones_like(function(leaf).detach())

    def call() -> list[Tensor]:
        value = function(leaf)
        return [value.detach(), *torch.autograd.grad(value, leaf, upstream)]

    return call


Maker = Callable[[Operands], Callable[[], Any]]


def calls_of_spheres() -> dict[str, Maker]:
    """Costs and checks of spheres."""
    cost, swept = sphere_cost, swept_sphere_cost
    return {
        "sphere_cost": lambda o: lambda: cost(o.spheres, o.world),
        "sphere_cost + gradient": lambda o: with_gradient(lambda x: cost(x, o.world), o.spheres),
        "sphere_cost, weight, env_index + gradient": lambda o: with_gradient(
            lambda x: cost(x, o.world, weight=3.0, env_index=o.env_index), o.spheres
        ),
        "sphere_cost, poses + gradient": lambda o: with_gradient(
            lambda x: cost(x, o.world, poses=o.poses), o.spheres
        ),
        "sphere_cost + gradient by poses": lambda o: with_gradient(
            lambda poses: cost(o.spheres, o.world, poses=poses), o.poses
        ),
        "swept_sphere_cost": lambda o: lambda: swept(o.spheres, o.world),
        "swept_sphere_cost + gradient": lambda o: with_gradient(
            lambda x: swept(x, o.world), o.spheres
        ),
        "swept_sphere_cost, poses of waypoints + gradient": lambda o: with_gradient(
            lambda x: swept(x, o.world, poses=o.moving), o.spheres
        ),
        "swept_sphere_cost + gradient by poses": lambda o: with_gradient(
            lambda poses: swept(o.spheres, o.world, poses=poses), o.poses
        ),
        "swept_sphere_cost + gradient by poses of waypoints": lambda o: with_gradient(
            lambda poses: swept(o.spheres, o.world, poses=poses), o.moving
        ),
        "sphere_cost, PointCloud, VoxelGrid, HeightField + gradient": lambda o: with_gradient(
            lambda x: cost(x, o.sensed), o.spheres
        ),
        "swept_sphere_cost, PointCloud, VoxelGrid, HeightField + gradient": lambda o: with_gradient(
            lambda x: swept(x, o.sensed), o.spheres
        ),
        "signed_distance + gradient": lambda o: with_gradient(
            lambda x: signed_distance(x, o.world).distance, o.spheres[:, 0, :, :3].contiguous()
        ),
        "clearance": lambda o: lambda: [*clearance(o.spheres, o.world)],
        "clearance + gradient": lambda o: with_gradient(
            lambda x: clearance(x, o.world).clearance, o.spheres
        ),
        "in_collision": lambda o: lambda: in_collision(o.spheres, o.world),
        "any_in_collision": lambda o: lambda: any_in_collision(o.spheres, o.world),
        "swept_in_collision": lambda o: lambda: swept_in_collision(o.spheres, o.world),
        "CollisionCost + gradient": lambda o: with_gradient(CollisionCost(o.world), o.spheres),
        "cost_residuals + gradient": lambda o: with_gradient(
            lambda x: cost_residuals(cost(x, o.world)), o.spheres
        ),
        "clearance_residuals + gradient": lambda o: with_gradient(
            lambda x: clearance_residuals(clearance(x, o.world).clearance, 0.1), o.spheres
        ),
        "SdfMeshWarpPy, mesh_ids of a world + gradient": lambda o: o.drop_in(
            SdfMeshWarpPy, o.world.mesh_ids
        ),
        "SweptSdfMeshWarpPy, mesh_ids of a world + gradient": lambda o: o.drop_in(
            SweptSdfMeshWarpPy, o.world.mesh_ids, 3, True
        ),
        "SweptSdfMeshWarpPy, meshes of the caller + gradient": lambda o: o.drop_in(
            SweptSdfMeshWarpPy, o.foreign[0], 3, True
        ),
    }


def calls_of_worlds() -> dict[str, Maker]:
    """Edits of worlds on the device."""
    return {
        "MeshWorld.set_poses": lambda o: lambda: o.world.set_poses(o.poses[0, :3]),
        "MeshWorld.set_poses, then sphere_cost": lambda o: (
            lambda: (o.world.set_poses(o.poses[0, :3]), sphere_cost(o.spheres, o.world))[1]
        ),
        "MeshWorld.set_pose": lambda o: lambda: o.world.set_pose("block", o.poses[0, 0]),
        "MeshWorld.set_enabled": lambda o: lambda: o.world.set_enabled(o.mask),
        "MeshWorld.enable": lambda o: lambda: o.world.enable("can", True),
        "MeshWorld.refit": lambda o: lambda: o.world.refit(),
    }


def planner_iteration(o: Operands) -> Callable[[], list[Tensor]]:
    """A step of `planning.search` on what `optimize_paths` minimises, from the same paths."""
    objective = Objective((), CollisionTerm(o.robot, o.world), o.limits)
    problem = torch.arange(len(o.joints), device=o.device)
    derivative = objective.derivative(o.joints, problem)
    descent = PathDescent(o.joints, o.limits)

    def call() -> list[Tensor]:
        gradient, cost = derivative()
        descent.step(gradient, cost)
        return [gradient]

    return call


def by_shapes(call: Callable[..., Any], o: Operands) -> Callable[[], Any]:
    """A check of the arm by the shapes of its links."""
    joints = o.joints_of(o.arm)

    def check() -> Any:
        found = call(joints, o.arm, o.world, shapes="exact")
        return found if isinstance(found, Tensor) else [*found]

    return check


def guard_step(o: Operands) -> Callable[[], list[Tensor]]:
    """A step that begins anew each time: robots that move are elsewhere after it."""
    rows = o.joints[:, 0].double()
    command = torch.full_like(rows, 0.3)

    def step() -> list[Tensor]:
        passed = o.guard.step(rows, command, command)
        return [passed.joints, passed.velocities, passed.share]

    return step


def calls_of_robots() -> dict[str, Maker]:
    """Kinematics, costs and checks of robots."""
    configuration, path = configuration_in_collision, joint_path_in_collision
    contacts = (("panda_hand", "block"),)

    def cost(o: Operands, **options: Any) -> Callable[[], list[Tensor]]:
        options = {"substeps": 1} | options
        return with_gradient(lambda q: joint_path_cost(q, o.robot, o.world, **options), o.joints)

    return {
        "RobotSpheres.spheres": lambda o: lambda: o.robot.spheres(o.joints),
        "RobotSpheres.spheres, one robot for all envs": lambda o: (
            lambda: o.plain_robot.spheres(o.joints)
        ),
        "RobotSpheres.spheres, env_index": lambda o: (
            lambda: o.robot.spheres(o.joints, env_index=o.env_index)
        ),
        "RobotSpheres.spheres + gradient": lambda o: with_gradient(o.plain_robot.spheres, o.joints),
        "RobotSpheres.spheres, base_pose of numbers + gradient": lambda o: with_gradient(
            lambda q: o.plain_robot.spheres(q, BASE), o.joints
        ),
        "RobotSpheres.spheres, base_pose of tensors + gradient": lambda o: with_gradient(
            lambda q: o.plain_robot.spheres(q, o.bases), o.joints
        ),
        "RobotSpheres.spheres + gradient by base_pose": lambda o: with_gradient(
            lambda pose: o.plain_robot.spheres(o.joints, pose), o.base
        ),
        "RobotSpheres.spheres, float64": lambda o: lambda: o.robot.spheres(o.joints.double()),
        "RobotSpheres.link_transforms": lambda o: lambda: o.robot.link_transforms(o.joints),
        "RobotSpheres.link_transforms, base_pose": lambda o: (
            lambda: o.robot.link_transforms(o.joints, BASE)
        ),
        "RobotSpheres.sphere_jacobian": lambda o: lambda: o.robot.sphere_jacobian(o.joints),
        "RobotSpheres.sphere_jacobian, base_pose": lambda o: (
            lambda: o.robot.sphere_jacobian(o.joints, BASE)
        ),
        "self_collision_cost + gradient": lambda o: with_gradient(
            lambda x: self_collision_cost(x, o.pairs), o.robot_spheres
        ),
        "self_clearance + gradient": lambda o: with_gradient(
            lambda x: self_clearance(x, o.pairs).clearance, o.robot_spheres
        ),
        "configuration_in_collision": lambda o: lambda: configuration(o.joints, o.robot, o.world),
        "configuration_in_collision, env_index, ignore": lambda o: (
            lambda: configuration(
                o.joints, o.robot, o.world, env_index=o.env_index, ignore=contacts
            )
        ),
        "configuration_in_collision, base_pose of numbers": lambda o: (
            lambda: configuration(o.joints, o.robot, o.world, base_pose=BASE)
        ),
        "configuration_in_collision, base_pose of tensors": lambda o: (
            lambda: configuration(o.joints, o.robot, o.world, base_pose=o.bases)
        ),
        "joint_path_in_collision": lambda o: lambda: path(o.joints, o.robot, o.world),
        "joint_path_in_collision, JointCurve": lambda o: lambda: path(o.curve, o.robot, o.world),
        "RobotChecker.path_in_collision": lambda o: lambda: o.checker.path_in_collision(o.joints),
        "RobotChecker.configuration_in_collision": lambda o: (
            lambda: o.checker.configuration_in_collision(o.joints)
        ),
        "MotionGuard.step": guard_step,
        "joint_path_in_collision, base_pose of numbers, ignore": lambda o: (
            lambda: path(o.joints, o.robot, o.world, base_pose=BASE, ignore=contacts)
        ),
        "joint_path_in_collision, base_pose of tensors": lambda o: (
            lambda: path(o.joints, o.robot, o.world, base_pose=o.bases)
        ),
        "joint_path_in_collision, poses of waypoints": lambda o: (
            lambda: path(o.joints, o.robot, o.world, poses=o.moving)
        ),
        "joint_path_in_collision, world_clearance": lambda o: (
            lambda: path(o.joints, o.robot, o.world, world_clearance=0.02)
        ),
        "joint_path_clearance": lambda o: (
            lambda: [*joint_path_clearance(o.joints, o.robot, o.world)]
        ),
        "joint_path_clearance, JointCurve": lambda o: (
            lambda: [*joint_path_clearance(o.curve, o.robot, o.world)]
        ),
        "joint_path_clearance, poses of waypoints": lambda o: (
            lambda: [*joint_path_clearance(o.joints, o.robot, o.world, poses=o.moving)]
        ),
        **{
            f"{call.__name__}, shapes": partial(by_shapes, call)
            for call in (configuration, path, joint_path_clearance)
        },
        "joint_path_in_collision, shapes, JointCurve": lambda o: partial(
            path, o.curve_of(o.arm), o.arm, o.world, shapes="exact"
        ),
        "RobotChecker.path_in_collision, shapes": lambda o: partial(
            RobotChecker(o.arm, o.world, shapes="exact").path_in_collision, o.joints_of(o.arm)
        ),
        "link_distances": lambda o: lambda: [*link_distances(o.joints, o.robot, o.world)[:-1]],
        "link_distances, self_collision + gradient": lambda o: with_gradient(
            lambda q: link_distances(q, o.plain_robot, o.world, self_collision=o.pairs).distance,
            o.joints,
        ),
        "joint_path_cost, substeps + gradient": cost,
        "joint_path_cost, substeps, self_weight + gradient": lambda o: cost(o, self_weight=1.0),
        "joint_path_cost, substeps, base_pose, ignore + gradient": lambda o: cost(
            o, base_pose=BASE, ignore=contacts
        ),
        "joint_path_cost, substeps, poses of waypoints + gradient": lambda o: cost(
            o, substeps=3, poses=o.moving
        ),
        "joint_path_cost + gradient": lambda o: cost(o, substeps=None),
        "RobotSpheres.interpolate": lambda o: lambda: o.robot.interpolate(o.joints, 1e-3).joints,
        "CollisionTerm + gradient": lambda o: with_gradient(
            CollisionTerm(o.robot, o.world), o.joints
        ),
        "optimize_paths, an iteration of a descent": planner_iteration,
        "SmoothnessTerm + gradient": lambda o: with_gradient(SmoothnessTerm(), o.joints),
        "JointLimitsTerm + gradient": lambda o: with_gradient(JointLimitsTerm(o.limits), o.joints),
        "gauss_newton": lambda o: (
            lambda: [
                *gauss_newton(
                    lambda q: cost_residuals(sphere_cost(o.plain_robot.spheres(q), o.world)),
                    o.joints,
                )
            ]
        ),
        "sampling.sample_bernoulli": lambda o: lambda: sampling.sample_bernoulli(o.probabilities),
        "sampling.sample_multinomial": lambda o: (
            lambda: sampling.sample_multinomial(o.probabilities, 1)
        ),
        "sampling.choice": lambda o: lambda: sampling.choice(o.probabilities, 1),
    }


def among_meshes(o: Operands, count: int = 100) -> MeshWorld:
    """A world of that many meshes of which no query knows yet."""
    world = MeshWorld(max_obstacles=count, device=o.device)
    for i in range(count):
        mesh = trimesh.creation.icosphere(1, 0.05 + 0.001 * i)
        world.add(f"ball {i}", mesh, (0.3 * (i % 10), 0.3 * (i // 10), 0, 1, 0, 0, 0))
    return world


# Each made anew for every call.
FIRST_CALLS: dict[str, Maker] = {
    "sphere_cost, the first among 100 meshes": lambda o: partial(
        sphere_cost, o.spheres, among_meshes(o)
    ),
}


def image_of(device: torch.device) -> Tensor:
    """Depths (48, 64) of a wall that is not flat [m]."""
    row, column = torch.meshgrid(torch.arange(48), torch.arange(64), indexing="ij")
    return (1.0 + 0.002 * row + 0.001 * column).float().to(device)


_LENS, _CAMERA = (60.0, 60.0, 31.5, 23.5), (0.0, 0.0, 0.0, 0.5, -0.5, 0.5, -0.5)


def map_with_images(o: Operands, depth: Tensor) -> Callable[[], object]:
    """A map that takes one more image, after those of which it says whether they agree."""
    seen = OccupancyMap(((-0.5, -1.0, -1.0), (2.0, 1.0, 1.0)), 0.05, device=o.device)
    for time in range(16):
        seen.integrate(depth, _LENS, _CAMERA, time=float(time))
    return lambda: seen.integrate(depth, _LENS, _CAMERA, time=20.0)


def cloud_update(o: Operands, points: Tensor) -> Callable[[], object]:
    """A cloud with a capacity that gets other points, outside of a graph."""
    world = MeshWorld(device=o.device)
    world.add("seen", PointCloud(points, 0.01, capacity=2 * len(points)))
    return lambda: world.update("seen", points)


def map_update(o: Operands) -> Callable[[], object]:
    """The world gets what is occupied and what is unseen of two maps in turn."""
    world, maps = MeshWorld(device=o.device), []
    for scale in (1.0, 0.8):
        seen = OccupancyMap(((-0.5, -1.0, -1.0), (2.0, 1.0, 1.0)), 0.1, device=o.device)
        seen.integrate(scale * image_of(CPU), _LENS, _CAMERA, time=0.0)
        maps.append(seen)
    turns = itertools.cycle(maps)
    grid = next(turns).to_voxel_grid()
    world.load({"seen": grid.seen, "unseen": grid.unseen})

    def update() -> None:
        grid = next(turns).to_voxel_grid()
        world.update("seen", grid.seen)
        world.update("unseen", grid.unseen)

    return update


# What sensors see. The host sorts pixels, and tells whether points are numbers: it reads what is on
# a device, once.
SENSING: dict[str, Maker] = {
    "OccupancyMap.integrate": lambda o: map_with_images(o, image_of(CPU)),
    "OccupancyMap.integrate, depth on the device": lambda o: map_with_images(o, image_of(o.device)),
    "PointCloud.from_depth, depth on the device": lambda o: partial(
        PointCloud.from_depth, image_of(o.device), _LENS, _CAMERA
    ),
    "MeshWorld.update, PointCloud": lambda o: cloud_update(o, o.spheres[0, 0, :, :3].cpu()),
    "MeshWorld.update, both parts of an OccupancyMap": map_update,
}
CALLS: dict[str, Maker] = calls_of_spheres() | calls_of_worlds() | calls_of_robots()

"""Clearances of paths, and reports, by the shapes of links, beside coal."""

import numpy as np
import pytest
import torch
import trimesh

from arms import LOOSE
from cases import mostly_slow
from reference import Array
from warp_collision import (
    Cuboid,
    Cylinder,
    HalfSpace,
    MeshWorld,
    RobotSpheres,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.sampled_pairs import random_joints

pytest.importorskip("coal", reason="the judge needs coal, of the extra 'dev'")
from mesh_judge import Fixed, MeshJudge, of_mesh

NAMES = ("box", "ring", "can")
TURN = (0.2, -0.1, 0.3, 0.9, 0.3, -0.2, 0.1)


def scene(device: torch.device) -> tuple[MeshWorld, list[Fixed]]:
    """A box with padding, a ring of triangles, and a cylinder, each turned."""
    world, fixed = MeshWorld(device=device), []
    ring = trimesh.creation.torus(0.25, 0.04, major_sections=24, minor_sections=8)
    box = trimesh.creation.box((0.3, 0.4, 0.2))
    can = trimesh.creation.cylinder(0.1, 0.3, sections=256)
    for number, (name, shape, mesh, place) in enumerate(
        [
            ("box", Cuboid((0.3, 0.4, 0.2)), box, (0.5, 0.3, 0.4)),
            ("ring", ring, ring, (-0.3, -0.5, 0.6)),
            ("can", Cylinder(0.1, 0.3), can, (0.1, 0.6, 0.7)),
        ]
    ):
        generator = np.random.default_rng(number)
        pose = trimesh.transformations.random_rotation_matrix(generator.random(3))
        pose[:3, 3] = place
        pose = pose.astype(np.float32).astype(float)
        world.add(name, shape, torch.from_numpy(pose))
        fixed.append(of_mesh(mesh, pose))
    return world, fixed


def judged(arm: RobotSpheres, joints: torch.Tensor, fixed: list[Fixed]) -> Array:
    """(n,) clearance of the links that move, by their meshes [m]; 0 where they touch."""
    links = {name: [*map(mesh_in_link, shapes)] for name, shapes in arm.link_shapes.items()}
    del links["base"]
    links["upper"].append(trimesh.creation.icosphere(3, 0.07).apply_translation((0.02, 0.0, 0.3)))
    judge = MeshJudge(links, fixed)
    rows = arm.link_transforms(joints.double().cpu()).numpy()
    numbers = {name: arm.link_names.index(name) for name in links}
    return np.array([judge.clearance({n: row[k] for n, k in numbers.items()}) for row in rows])


def ends(arm: RobotSpheres, count: int, seed: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    begin = random_joints(arm.joint_limits, count, generator).float()[:, None]
    step = 0.1 * torch.randn((count, 1, 3), generator=generator)
    return torch.cat((begin, begin + step), dim=1).to(device)


def dense(path: torch.Tensor, count: int) -> torch.Tensor:
    """(n, count, n_joints) along straight segments (n, 2, n_joints)."""
    shares = torch.linspace(0.0, 1.0, count, device=path.device)[:, None]
    return path[:, :1] + shares * (path[:, 1:] - path[:, :1])


@pytest.mark.parametrize("count", mostly_slow([200, 40], [40]))
def test_clearances_of_paths(arm: RobotSpheres, count: int, device: torch.device) -> None:
    world, fixed = scene(device)
    path = ends(arm, count, 1, device)
    options = {"self_collision": False, "ignore": [("base", name) for name in NAMES]}
    by_spheres = joint_path_clearance(path, arm, world, **options)
    found = joint_path_clearance(path, arm, world, shapes="exact", **options)
    lower, upper = (part[:, 0].cpu().numpy() for part in (found.lower, found.upper))
    truth = judged(arm, dense(path, 7).flatten(0, 1), fixed).reshape(count, 7).min(1)
    assert (found.upper - found.lower <= 1e-3 + 5e-5).all()
    assert (found.lower >= by_spheres.lower - 1e-3).all()
    is_apart = lower > 0.0
    # Samples are from above, and pieces from below.
    assert (lower[is_apart] <= truth[is_apart] + 1e-5).all()
    assert (upper[is_apart] >= truth[is_apart] - LOOSE - 0.02).all()
    gained = (found.lower - by_spheres.lower)[:, 0].cpu().numpy()
    assert (gained > 0.002).sum() >= count // 10
    # What is apart is what the check proves, at its own tolerance.
    free = ~joint_path_in_collision(path, arm, world, shapes="exact", **options)[:, 0]
    assert free[found.lower[:, 0] > 1e-3].all()
    assert not free[found.upper[:, 0] < 1e-4].any()


def test_the_position_has_the_clearance(arm: RobotSpheres, device: torch.device) -> None:
    world, _ = scene(device)
    path = ends(arm, 30, 2, device)
    options = {"self_collision": False, "shapes": "exact"}
    options["ignore"] = [("base", name) for name in NAMES]
    found = joint_path_clearance(path, arm, world, **options)
    at = path[:, 0] + found.position * (path[:, 1] - path[:, 0])
    still = at[:, None].expand(-1, 2, -1).contiguous()
    resting = joint_path_clearance(still, arm, world, **options)
    # Another link may be nearer by the tolerance.
    torch.testing.assert_close(resting.upper, found.upper, rtol=0, atol=1e-3)
    assert (resting.upper <= found.upper + 5e-5).all()


def test_obstacles_that_move(arm: RobotSpheres, device: torch.device) -> None:
    """A table that rises to 2 mm below the tool, which spheres are in."""
    joints = torch.tensor([[[0.4, -0.3, 0.1]]], device=device).expand(1, 2, 3).contiguous()
    at = arm.link_transforms(joints[0, 0].double().cpu()).numpy()[arm.link_names.index("tool")]
    world = MeshWorld(device=device)
    world.add("table", Cuboid((0.6, 0.5, 0.03)))
    options = {"self_collision": False}
    options["ignore"] = [(name, "table") for name in ("base", "upper", "elbow")]
    poses = []
    for height in (-0.1, -0.002):
        below = np.eye(4)
        below[:3, 3] = 0.0, 0.01, height - 0.015
        frame = at @ below
        poses.append([*frame[:3, 3], *trimesh.transformations.quaternion_from_matrix(frame)])
    moved = torch.tensor(poses, dtype=torch.float32, device=device)[:, None]
    found = joint_path_clearance(joints, arm, world, poses=moved, shapes="exact", **options)
    assert 0.0008 < found.lower.item() <= found.upper.item() < 0.0025
    assert joint_path_clearance(joints, arm, world, poses=moved, **options).upper.item() < 0.0


@pytest.mark.parametrize("turn", [None, TURN])
def test_reports(arm: RobotSpheres, turn: tuple[float, ...] | None, device: torch.device) -> None:
    """A link is listed where its pieces touch; the depth of a margin is minus their distance."""
    joints = torch.tensor([[0.4, -0.3, 0.1]], device=device)
    at = arm.link_transforms(joints.double().cpu()).numpy()[0, arm.link_names.index("tool")]
    below = np.eye(4)
    below[:3, 3] = 0.0, 0.01, -0.02  # its top is 5 mm below the end of the tool
    frame, base = at @ below, None
    if turn is not None:
        moved = trimesh.transformations.quaternion_matrix(turn[3:])
        moved[:3, 3] = turn[:3]
        frame, base = moved @ frame, torch.tensor(turn, device=device)
    options = {"self_collision": False, "base_pose": base}
    options["ignore"] = [(name, "table") for name in ("base", "upper", "elbow")]
    for shape in (Cuboid((0.6, 0.5, 0.03)), HalfSpace((0.0, 0.0, 1.0), 0.015)):
        world = MeshWorld(device=device)
        world.add("table", shape, torch.from_numpy(frame))
        spheres = arm.report(joints[None], world, **options)
        assert spheres.link == ("tool",)
        assert spheres.depth[0] > 0.0
        assert arm.report(joints[None], world, shapes="exact", **options).link == ()
        near = arm.report(joints[None], world, shapes="exact", margin=0.01, **options)
        assert near.link == ("tool",)
        assert abs(near.depth[0] + 0.005) < 1e-4
        world.set_pose("table", torch.from_numpy(frame + 0.006 * np.outer(at[:, 2], [0, 0, 0, 1])))
        touching = arm.report(joints[None], world, shapes="exact", **options)
        assert touching.link == ("tool",)
        assert touching.depth[0] > 0.0


def test_reports_have_the_answers_of_the_checks(arm: RobotSpheres, device: torch.device) -> None:
    """Of batches in two envs, whose robots stand in different places."""
    world = MeshWorld(n_envs=2, device=device)
    for env, place in enumerate([(0.4, 0.3, 0.4), (-0.4, 0.2, 0.7)]):
        world.add("box", Cuboid((0.3, 0.4, 0.2)), (*place, 0.9, 0.3, -0.2, 0.1), env=env)
    joints = random_joints(arm.joint_limits, 60, torch.Generator().manual_seed(4)).float()
    joints = joints.reshape(2, 30, 3).to(device)
    bases = torch.tensor([TURN, (0.0, 0.1, 0.0, 1.0, 0.0, 0.0, 0.2)], device=device)
    envs = torch.tensor([1, 0], dtype=torch.int32, device=device)
    options = {"self_collision": False, "ignore": [("base", "box")], "env_index": envs}
    options |= {"base_pose": bases, "shapes": "exact"}
    hit = configuration_in_collision(joints, arm, world, **options)
    report = arm.report(joints, world, **options)
    expected = torch.zeros_like(hit)
    expected[report.batch, report.waypoint] = True
    assert hit.any()
    assert torch.equal(hit, expected)


def test_bad_input(arm: RobotSpheres) -> None:
    world, joints = MeshWorld(device="cpu"), torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match="shapes must be 'spheres' or 'exact', got 'mesh'"):
        joint_path_clearance(joints, arm, world, shapes="mesh")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="shapes must be 'spheres' for spheres, got 'exact'"):
        arm.report(arm.spheres(joints), world, shapes="exact")

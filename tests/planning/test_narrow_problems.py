"""Narrow problems that spheres refuse, solved by the shapes of links; coal judges the paths."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
import trimesh

from reference import Array
from warp_collision import (
    Cuboid,
    Cylinder,
    MeshWorld,
    RobotSpheres,
    configuration_in_collision,
)
from warp_collision.planning import optimize_paths
from warp_collision.robot.model.link_shapes import mesh_in_link

pytest.importorskip("coal", reason="the judge needs coal, of the extra 'dev'")
from mesh_judge import MeshJudge, of_mesh

TIP = 0.2  # of the fingers below the origin of the hand [m]
ABOVE, BESIDE = 0.005, 0.004  # of the table, and of walls and objects at a goal [m]
PALM = (0.16, 0.05, 0.06)
# A hand with two fingers on a gantry: three joints that slide, and one that turns.
GRIPPER = """<robot name="gantry">
  <link name="base"/><link name="bridge"/><link name="cart"/><link name="column"/>
  <link name="hand">
    <collision><origin xyz="0 0 -0.03"/><geometry><box size="0.16 0.05 0.06"/></geometry>
    </collision>
    <collision><origin xyz="0.035 0 -0.13"/><geometry><box size="0.02 0.04 0.14"/></geometry>
    </collision>
    <collision><origin xyz="-0.035 0 -0.13"/><geometry><box size="0.02 0.04 0.14"/></geometry>
    </collision>
  </link>
  <joint name="x" type="prismatic"><parent link="base"/><child link="bridge"/>
    <axis xyz="1 0 0"/><limit lower="-0.5" upper="0.5" effort="1" velocity="1"/></joint>
  <joint name="y" type="prismatic"><parent link="bridge"/><child link="cart"/>
    <axis xyz="0 1 0"/><limit lower="-0.5" upper="0.5" effort="1" velocity="1"/></joint>
  <joint name="z" type="prismatic"><parent link="cart"/><child link="column"/>
    <axis xyz="0 0 1"/><limit lower="0.2" upper="0.7" effort="1" velocity="1"/></joint>
  <joint name="turn" type="revolute"><parent link="column"/><child link="hand"/>
    <axis xyz="0 0 1"/><limit lower="-1.5" upper="1.5" effort="1" velocity="1"/></joint>
</robot>"""


@pytest.fixture(scope="module")
def gripper(tmp_path_factory) -> RobotSpheres:
    path = tmp_path_factory.mktemp("gripper") / "gantry.urdf"
    path.write_text(GRIPPER)
    return RobotSpheres(path)


class Problem(NamedTuple):
    """Where to go, and what is there.

    Attributes:
        start: (4,) joint values.
        goal: likewise.
        bodies: shapes with their meshes, and poses (4, 4).
    """

    start: Array
    goal: Array
    bodies: list[tuple[Cuboid | Cylinder, trimesh.Trimesh, Array]]


def box(*sides: float) -> tuple[Cuboid, trimesh.Trimesh]:
    return Cuboid(sides), trimesh.creation.box(sides)


def problem(seed: int) -> Problem:
    """From above to 5 mm above a table, around a can; or into a slot beside that as narrow."""
    rng = np.random.default_rng(seed)
    goal = np.array([*rng.uniform(-0.25, 0.25, 2), TIP + ABOVE, rng.uniform(-0.6, 0.6)])
    start = np.array([*rng.uniform(-0.4, 0.4, 2), rng.uniform(0.55, 0.65), rng.uniform(-1.2, 1.2)])
    at = trimesh.transformations.rotation_matrix(goal[3], (0, 0, 1))
    at[:2, 3] = goal[:2]
    bodies = [(*box(1.6, 1.6, 0.1), np.array([0.0, 0.0, -0.05]))]
    if seed % 2 == 0:
        can = 0.025 - BESIDE, 0.12
        mesh = trimesh.creation.cylinder(*can, sections=128)
        bodies.append((Cylinder(*can), mesh, np.array([0.0, 0.0, 0.06])))
    else:
        height = TIP + ABOVE - 0.5 * PALM[2]  # half of the palm is between the walls
        away = 0.5 * PALM[1] + BESIDE + 0.02
        for side in (-away, away):
            bodies.append((*box(0.3, 0.04, height), np.array([0.0, side, 0.5 * height])))
    placed = []
    for shape, mesh, offset in bodies:
        pose = at.copy()
        pose[:3, 3] += at[:3, :3] @ offset
        placed.append((shape, mesh, pose.astype(np.float32).astype(float)))
    return Problem(start, goal, placed)


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(20), marks=pytest.mark.slow)], ids=["2", "20"]
)
def test_they_are_solved(gripper: RobotSpheres, seeds: range, device: torch.device) -> None:
    problems = [*map(problem, seeds)]
    world = MeshWorld(n_envs=len(problems), max_obstacles=3, device=device)
    for env, one in enumerate(problems):
        for number, (shape, _, pose) in enumerate(one.bodies):
            world.add(f"body {number}", shape, torch.from_numpy(pose), env=env)
    start, goal = (
        torch.from_numpy(np.stack(joints)).float().to(device)
        for joints in ([one.start for one in problems], [one.goal for one in problems])
    )
    envs = torch.arange(len(problems), dtype=torch.int32, device=device)
    options = {"env_index": envs}
    assert configuration_in_collision(goal, gripper, world, **options).all()
    # No contact is allowed to prove them.
    assert not configuration_in_collision(goal, gripper, world, shapes="exact", **options).any()
    found = optimize_paths(
        *(start, goal, gripper, world),
        shapes="exact",
        until="first",
        generator=torch.Generator().manual_seed(0),
        **options,
    )
    assert found.free.tolist() == [True] * len(problems)
    meshes = [*map(mesh_in_link, gripper.link_shapes["hand"])]
    number = gripper.link_names.index("hand")
    shares = torch.linspace(0.0, 1.0, 7, device=device)[:, None]
    for one, path in zip(problems, found.joints, strict=True):
        judge = MeshJudge({"hand": meshes}, [of_mesh(mesh, pose) for _, mesh, pose in one.bodies])
        dense = path[:-1, None] + shares * path.diff(dim=0)[:, None]
        for frame in gripper.link_transforms(dense.flatten(0, 1).double().cpu()).numpy()[:, number]:
            assert judge.clearance({"hand": frame}) > 0.0

"""Links that stand near each other, and links in contact, against exact boxes and coal."""

import coal
import numpy as np
import pytest
import torch
import trimesh
from benchmarks.robots import bvh_of

from warp_collision import MeshWorld, configuration_in_collision
from warp_collision.robot import RobotSpheres, coverage
from warp_collision.robot.fitting.link_surface import LinkSurface
from warp_collision.robot.model.pair_rules import APART

# An arm over the base: a box 20 mm from another at all values of two joints, so near that fitted
# spheres of both touch, and a link that always reaches into the base, though a joint lies between.
NEAR = """<robot name="near">
  <link name="base"><collision><origin xyz="0 0 -0.05"/>
    <geometry><box size="0.3 0.2 0.1"/></geometry></collision></link>
  <link name="hub"/><link name="mid"/>
  <link name="arm"><collision><origin xyz="0.2 0 0.05"/>
    <geometry><box size="0.3 0.06 0.06"/></geometry></collision></link>
  <link name="stub"><collision><origin xyz="-0.1 0 -0.03"/>
    <geometry><box size="0.03 0.03 0.08"/></geometry></collision></link>
  <joint name="a" type="fixed"><parent link="base"/><child link="hub"/></joint>
  <joint name="turn" type="revolute"><parent link="hub"/><child link="mid"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
  <joint name="slide" type="prismatic"><parent link="hub"/><child link="stub"/><axis xyz="0 1 0"/>
    <limit lower="-0.05" upper="0.05" effort="1" velocity="1"/></joint>
  <joint name="shift" type="prismatic"><parent link="mid"/><child link="arm"/><axis xyz="0 1 0"/>
    <limit lower="-0.01" upper="0.01" effort="1" velocity="1"/></joint>
</robot>"""


@pytest.fixture(scope="module")
def robot(tmp_path_factory) -> RobotSpheres:
    path = tmp_path_factory.mktemp("near") / "near.urdf"
    path.write_text(NEAR)
    return RobotSpheres(path)


def test_links_that_stand_near_are_free_and_checked(robot):
    assert ("base", "arm") in robot.default_pairs.link_pairs
    joints = torch.tensor([[0.0, 0.0, 0.0], [0.8, 0.01, 0.01], [-0.7, -0.04, 0.0]])
    assert not configuration_in_collision(joints, robot, MeshWorld(device="cpu")).any()


def test_smaller_spheres_cover_as_much_and_are_read_from_the_cache(robot, tmp_path):
    for link in ("base", "arm"):
        covers = robot.coverage(links=[link], resolution=0.004)
        assert covers[link].uncovered == 0.0
        (fit,) = robot.fits[link]
        assert fit.count == len(robot.spheres_of(link))
        assert covers[link].overshoot <= fit.overshoot + 1e-6
    path = tmp_path / "near.urdf"
    path.write_text(NEAR)
    again = RobotSpheres(path)
    assert all((again.spheres_of(x) == robot.spheres_of(x)).all() for x in robot.link_names)


def test_links_that_always_touch_are_left_out_and_said(robot):
    reasons = {frozenset(pair[:2]): pair.reason for pair in robot.default_pairs.left_out}
    assert reasons[frozenset(("base", "stub"))] == (
        "in contact at the neutral configuration and in 100% of random ones"
    )
    assert frozenset(("base", "arm")) not in reasons


TURN = '<child link="mid"/><axis xyz="0 0 1"/>\n    <limit lower="-1" upper="1"'
TILT = '<child link="mid"/><axis xyz="0 -1 0"/>\n    <limit lower="LOW" upper="0.05"'


def with_one_joint(tmp_path, low: float) -> RobotSpheres:
    """The arm beside one joint that tilts it, down to a value."""
    text = NEAR.replace('name="shift" type="prismatic"', 'name="shift" type="fixed"')
    path = tmp_path / "tilt.urdf"
    path.write_text(text.replace(TURN, TILT.replace("LOW", str(low))))
    return RobotSpheres(path)


def test_links_beside_a_joint_are_proven_apart(tmp_path):
    robot = with_one_joint(tmp_path, -0.01)  # 20 mm above the base, and 3.5 mm less at the limit
    reasons = {frozenset(pair[:2]): pair.reason for pair in robot.default_pairs.left_out}
    assert reasons[frozenset(("base", "arm"))] == APART
    assert "base and arm (apart at all values" in " ".join(str(robot).split())
    # Apart at the neutral configuration, and in contact further down.
    robot = with_one_joint(tmp_path, -0.3)
    assert ("base", "arm") in robot.default_pairs.link_pairs


def test_given_overshoots_are_kept(tmp_path):
    path = tmp_path / "near.urdf"
    path.write_text(NEAR)
    robot = RobotSpheres(path, max_overshoot=0.02)
    assert max(fit.overshoot for (fit,) in robot.fits.values()) > 0.015
    assert len(robot.spheres_of("arm")) < 40


def test_distances_of_links_are_those_of_coal():
    first = trimesh.creation.torus(0.1, 0.03, major_sections=24, minor_sections=12)
    second = trimesh.creation.capsule(0.12, 0.02, count=[12, 8])
    one, other = LinkSurface("one", first), LinkSurface("other", second)
    models, rng = (bvh_of(first), bvh_of(second)), np.random.default_rng(1)
    poses = []
    for _ in range(12):
        pose = trimesh.transformations.random_rotation_matrix(rng.uniform(size=3))
        pose[:3, 3] = rng.uniform(-0.16, 0.16, 3)
        poses.append(pose)
    coarse = one.distances(other, np.array(poses))
    for pose, bound in zip(poses, coarse, strict=True):
        there = coal.Transform3s(pose[:3, :3], pose[:3, 3])
        expected = coal.distance(
            models[0],
            coal.Transform3s.Identity(),
            models[1],
            there,
            coal.DistanceRequest(),
            coal.DistanceResult(),
        )
        found = one.distance(other, pose)
        if expected > 1e-3:
            assert expected - 1e-6 <= found <= expected + 3e-4
            assert found <= bound + 1e-9
        else:
            assert found <= 1e-3


def test_a_refitted_part_covers_what_was_covered():
    from warp_collision.robot import fit_spheres
    from warp_collision.robot.fitting.solid import Solid
    from warp_collision.robot.fitting.sphere_fit import refit

    mesh = trimesh.creation.capsule(0.3, 0.06, count=[12, 8])
    rows = fit_spheres(mesh, max_overshoot=0.02).spheres
    gone = rows[:, 2] > 0.05
    new = refit(Solid("mesh", mesh), rows[~gone], rows[gone], 0.006)
    report = coverage(np.concatenate([rows[~gone], new]), mesh, resolution=0.002)
    assert report.uncovered == 0.0
    assert coverage(new, mesh).overshoot <= 0.006 + 1e-6
    assert len(new) > gone.sum()

"""Robots of other people's packages, as they come, against coal on their own meshes."""

import numpy as np
import pytest
import torch
from benchmarks import robots
from benchmarks.harness import Failed

from pieces import inside_of, outside_of
from warp_collision import MeshWorld, joint_path_in_collision
from warp_collision.planning import optimize_paths
from warp_collision.robot.model.convex_pieces import cached_pieces
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.urdf_model import LinkSphere

pytestmark = pytest.mark.slow
# In how many of the configurations the library and meshes say the same, at least.
AGREE = dict.fromkeys(("iiwa", "ur5", "ur10", "kinova", "z1", "so101", "xarm6", "a1"), 0.99)
AGREE |= dict.fromkeys(("solo12", "b1-z1", "baxter", "romeo", "tiago-pro", "centauro"), 0.99)
AGREE |= {"pr2": 0.99} | dict.fromkeys(("talos", "tiago"), 0.97)
FREE_AT_HOME = ("iiwa", "ur5", "ur10", "kinova", "so101", "xarm6", "a1", "solo12", "baxter")
FREE_AT_HOME += ("tiago", "tiago-pro", "centauro", "g1")


@pytest.fixture(scope="module", autouse=True)
def wheels():
    try:
        robots.data_folder()
    except (Failed, OSError) as error:
        pytest.skip(f"the robots come from wheels that pip downloads: {error}")


@pytest.mark.parametrize("name", [*AGREE, "vega", "g1"])
def test_links_touch_where_their_meshes_touch(name):
    robot = robots.load(name)
    found = robots.contacts(robot, 1000)
    assert max(map(robot.sphere_links.count, set(robot.sphere_links))) <= 40
    assert found.missed == 0
    assert name not in FREE_AT_HOME or not found.home
    assert found.agree >= AGREE.get(name, 0.97)


@pytest.mark.parametrize("name", AGREE)
def test_a_path_is_proven_and_planned(name):
    robot, world = robots.load(name), MeshWorld(device="cpu")
    joints = robots.random_configurations(robot, 400).float()
    blocked = joint_path_in_collision(torch.stack((joints, joints), 1), robot, world)[:, 0]
    free = joints[~blocked]
    assert len(free) >= 2
    # Not far: whole-body motions of 40 joints that touch nothing are few.
    start, goal = free[:1], free[:1] + 0.02 * (free[1:2] - free[:1])
    found = optimize_paths(start, goal, robot, world, until="first", max_seconds=120.0)
    assert found.free.all()
    assert not joint_path_in_collision(found.joints, robot, world).any()


@pytest.mark.parametrize("name", AGREE)
def test_pieces_cover_the_inside_of_links(name):
    """Of all closed links of all robots, at more than a million points inside together."""
    rng = np.random.default_rng(6)
    n_inside = 0
    for shape in robots.urdf_of(robots.load(name)).collisions:
        if isinstance(shape, LinkSphere):
            continue
        mesh = mesh_in_link(shape).copy()
        mesh.merge_vertices()
        if not mesh.is_watertight:
            continue
        inside = inside_of(mesh, rng.uniform(*mesh.bounds, (15_000, 3)))
        n_inside += len(inside)
        assert len(outside_of(cached_pieces(np.asarray(mesh.triangles)).pieces, inside)) == 0, (
            shape.link
        )
    assert n_inside > 10_000 or name == "iiwa"  # no mesh of which is closed

"""What no camera saw of a map, and another robot as obstacles, in the viewer and in pictures."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

pytest.importorskip("viser", reason="the extra `view` is not installed")
from viewer_pages import START, status
from warp_collision import (
    MeshWorld,
    OccupancyMap,
    RobotSpheres,
    Sphere,
    VoxelGrid,
    joint_path_in_collision,
)
from warp_collision.viewer import Viewer
from warp_collision.viewer.colors import DISABLED, OBSTACLE, UNSEEN
from warp_collision.viewer.panels import rgb
from warp_collision.viewer.stage import scenery_of

URDF = Path(__file__).resolve().parents[2] / "assets" / "panda" / "panda.urdf"
POSE = (0.1, -0.2, 0.3, 0.6, 0.0, 0.8, 0.0)


def mapped(columns: slice) -> OccupancyMap:
    """A box that a camera has seen into, but for what a plate in its view hides."""
    depth = np.full((60, 80), 1.5, np.float32)
    depth[20:40, columns] = 0.8
    found = OccupancyMap(((0.2, -0.5, 0.1), (1.2, 0.5, 1.1)), voxel_size=0.05)
    found.integrate(depth, (75.0, 75.0, 39.5, 29.5), (1.7, 0.0, 0.6, 0.5, -0.5, -0.5, 0.5))
    return found


def corners(vertices: np.ndarray) -> np.ndarray:
    return np.stack([vertices.min(0), vertices.max(0)])


def test_unseen_space_of_a_map_is_a_haze_of_its_own(panda):
    first, second = (mapped(slice(begin, begin + 30)).to_voxel_grid() for begin in (10, 40))
    world = MeshWorld(device="cpu")
    world.add("map", first, POSE)
    with Viewer(world, panda, port=0) as viewer:
        assert viewer.wait(60)
        for grid in (first, second):
            world.update("map", grid)
            viewer.put("notice", viewer._notice)
            assert viewer.wait(60)
            drawn = viewer._world.drawn["map"]
            solid, haze = drawn.handles[0], drawn.haze
            assert grid.seen.n_occupied > 0
            assert grid.unseen.n_occupied > 0
            np.testing.assert_allclose(corners(solid.vertices), grid.seen.bounds, atol=1e-6)
            np.testing.assert_allclose(corners(haze.vertices), grid.unseen.bounds, atol=1e-6)
            assert tuple(haze.color) == rgb(UNSEEN)
            assert haze.opacity < 0.5 * solid.opacity
        viewer.enable("map", False)
        viewer.put("gizmo", lambda: viewer.move("map", (1.0, 0, 0, 1, 0, 0, 0)))
        assert viewer.wait(60)
        assert tuple(haze.color) == rgb(DISABLED)
        np.testing.assert_allclose(haze.position, (1.0, 0, 0), atol=1e-6)
    world.enable("map", True)
    bodies = scenery_of(world.obstacles()).bodies
    assert {body.colors for body in bodies} == {OBSTACLE, UNSEEN}
    faces = {body.colors: len(body.parts[0].faces) for body in bodies}
    assert faces[OBSTACLE] == 2 * len(second.seen.faces())
    assert faces[UNSEEN] == 2 * len(second.unseen.faces())


def test_maps_without_unseen_space_have_no_haze():
    full = np.ones((2, 2, 2), bool)
    world = MeshWorld(device="cpu")
    world.add("whole", VoxelGrid(full, 0.1))
    world.add("never", VoxelGrid(~full, 0.1, unknown_mask=full))
    world.add("taken for free", VoxelGrid(full, 0.1, unknown_mask=~full, unknown="free"))
    with Viewer(world, port=0) as viewer:
        assert viewer.wait(60)
        assert all(drawn.haze is None for drawn in viewer._world.drawn.values())
        assert viewer._world.drawn["never"].is_unseen


def test_another_robot_is_obstacles_that_its_joints_move(panda):
    """Its spheres; what is said of the first robot follows where the other one is moved."""
    base, rest = (0.8, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0), torch.tensor(START)
    world = MeshWorld(max_obstacles=128, device="cpu")

    def move(joints: torch.Tensor) -> None:
        rows = panda.spheres(joints.view(1, 1, -1), base_pose=base)[0, 0].tolist()
        for index, (*center, radius) in enumerate(rows):
            name = f"other/{panda.sphere_links[index]}/{index}"
            if name not in world.names():
                world.add(name, Sphere(radius))
            world.set_pose(name, (*center, 1.0, 0.0, 0.0, 0.0))

    away = rest.clone()
    away[0] = 2.5
    move(away)
    path = torch.lerp(rest, rest + 0.1, torch.linspace(0, 1, 4)[:, None])
    with Viewer(world, panda, port=0) as viewer:
        viewer.add_path(path, "mine")
        assert viewer.wait(60)
        assert "collision" not in status(viewer)
        assert viewer._paths._choice.value == "mine: proven free"
        near = rest.clone()
        near[0] = 0.67  # it reaches for the hand
        move(near)
        viewer.put("notice", viewer._notice)
        words = re.sub("<[^>]+>", " ", status(viewer))
        drawn = viewer._world.drawn
        assert len(drawn) == panda.n_spheres
        spheres = panda.spheres(near.view(1, 1, -1), base_pose=base)[0, 0, :, :3].numpy()
        places = [one.handles[0].position for one in drawn.values()]
        np.testing.assert_allclose(places, spheres, atol=1e-5)
        hit = bool(joint_path_in_collision(path[None], panda, world).any())
        assert hit
        assert viewer._paths._choice.value == "mine: not free"
        assert "other/panda_" in words


def two_arms_in(folder: Path) -> Path:
    """A URDF file of two Pandas that face each other, with the names of each after its side."""
    cell = ElementTree.fromstring('<robot name="cell"><link name="cell"/></robot>')
    for side, place in (("left", 'xyz="0 0 0"'), ("right", 'xyz="0.9 0 0" rpy="0 0 3.1415927"')):
        arm = ElementTree.parse(URDF).getroot()
        for node in arm.iter():
            for key in {"link", "joint", "name"} & node.attrib.keys():
                node.set(key, f"{side}/{node.get(key)}")
            if node.tag == "mesh":
                node.set("filename", str(URDF.parent / node.attrib["filename"]))
        cell.extend(arm)
        cell.append(
            ElementTree.fromstring(
                f'<joint name="{side}" type="fixed"><parent link="cell"/><origin {place}/>'
                f'<child link="{side}/panda_link0"/></joint>'
            )
        )
    ElementTree.ElementTree(cell).write(folder / "cell.urdf")
    return folder / "cell.urdf"


def test_two_robots_that_move_at_once_are_one_of_one_urdf(tmp_path):
    """Each arm is held against the other; the judge has contacts of its own."""
    judges = pytest.importorskip("path_judge", reason="the judge's libraries are not installed")
    robot = RobotSpheres(two_arms_in(tmp_path))
    judge = judges.Judge(tmp_path / "cell.urdf", None, robot.joint_names)
    rest, turn = torch.tensor([*START, *START]), torch.zeros(14)
    turn[[0, 7]] = 1.0
    shares = torch.linspace(0, 1, 7)[:, None]
    # To the same side of their own bases, so past each other; and into each other in the middle.
    paths = {"away": rest - shares * turn, "together": rest + 0.9 * shares * turn}
    words = {}
    with Viewer(MeshWorld(device="cpu"), robot, port=0) as viewer:
        viewer.add_paths(paths)
        for name in paths:
            viewer.put("open", lambda name=name: viewer._paths.open(name))
            assert viewer.wait(60)
            words[name] = re.sub("<[^>]+>", "", viewer._paths._verdict.content)
        labels = viewer._paths._choice.options
    free = {
        name: judge.judge(path.double().numpy(), judges.Scene.from_mapping({})).free
        for name, path in paths.items()
    }
    assert free == {"away": True, "together": False}
    assert labels == ("away: proven free", "together: not free")
    assert re.search("left/panda_.* mm into right/panda_|right/.* mm into left/", words["together"])

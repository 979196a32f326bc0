"""Cameras of drivers and other libraries, and mistakes that are told."""

import re
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
from scipy.spatial.transform import Rotation

from depth_scenes import LENS, SIZE, Box, cameras, look, rays, render, scene
from warp_collision import (
    Camera,
    CameraWarning,
    DepthOptions,
    OccupancyMap,
    PointCloud,
    UnitsWarning,
)
from warp_collision.examples import load_panda
from warp_collision.obstacles.depth_image import DepthImage

EYE = np.array([1.7, 0.4, 0.9])
POSE = look(EYE, np.array([0.3, 0.0, 0.2]))
ROOM = [*scene(), Box(np.full(3, -4.0), np.array([4.0, 4.0, -0.1]))]
DEPTH = render(ROOM, POSE)[0]
MATRIX = np.array([[LENS[0], 0, LENS[2]], [0, LENS[1], LENS[3]], [0, 0, 1]])


def random_rotation(seed: int) -> np.ndarray:
    """(3, 3)."""
    return Rotation.random(rng=seed).as_matrix()


@pytest.mark.parametrize("convention", ["opencv", "opengl", "ros"])
def test_conventions(convention: Any) -> None:
    """Forward and right of each, by what a pixel right of the middle sees."""
    forward = {"opencv": (0, 0, 1), "opengl": (0, 0, -1), "ros": (1, 0, 0)}[convention]
    right = {"opencv": (1, 0, 0), "opengl": (1, 0, 0), "ros": (0, -1, 0)}[convention]
    up = {"opencv": (0, -1, 0), "opengl": (0, 1, 0), "ros": (0, 0, 1)}[convention]
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = random_rotation(3), (0.3, -1.0, 0.7)
    camera = Camera(LENS, pose, convention, size=SIZE)
    depth = np.full(SIZE, 2.0)
    cloud = PointCloud.from_depth(depth, camera)
    row, column = 10, 140
    x, y = (column - LENS[2]) / LENS[0], (row - LENS[3]) / LENS[1]
    local = 2.0 * (np.array(forward) + x * np.array(right) - y * np.array(up))
    expected = pose[:3, :3] @ local + pose[:3, 3]
    np.testing.assert_allclose(cloud.points[row * SIZE[1] + column], expected, atol=1e-5)
    again = Camera(LENS, np.eye(4), convention, size=SIZE).at(pose)
    np.testing.assert_allclose(again.pose, camera.pose, atol=1e-12)
    assert "optical frame at (0.3, -1, 0.7" in repr(again)


def test_cameras_of_other_libraries() -> None:
    """Each has the same lens; messages of ROS 1 and 2, as objects and dicts."""
    info = {
        "width": 160,
        "height": 120,
        "K": MATRIX.ravel().tolist(),
        "D": [],
        "P": np.hstack((MATRIX, np.zeros((3, 1)))).ravel().tolist(),
        "distortion_model": "",
    }
    ros2 = SimpleNamespace(width=160, height=120, k=np.array(info["K"]), d=np.zeros(5))
    realsense = SimpleNamespace(fx=130.0, fy=130.0, ppx=79.5, ppy=59.5, width=160, height=120)
    open3d = SimpleNamespace(intrinsic_matrix=MATRIX, width=160, height=120)
    of_trimesh = trimesh.scene.Camera(resolution=(160, 120), focal=(130.0, 130.0))
    found = [
        Camera.from_camera_info(info, POSE),
        Camera.from_camera_info(info, POSE, rectified=True),
        Camera.from_camera_info(ros2, POSE),
        *(Camera(given, POSE) for given in (realsense, open3d)),
        Camera(torch.tensor(MATRIX), POSE, size=SIZE),
    ]
    plain = PointCloud.from_depth(DEPTH, LENS, POSE)
    for camera in found:
        assert camera.size == SIZE
        np.testing.assert_allclose(PointCloud.from_depth(DEPTH, camera).points, plain.points)
    own = Camera(of_trimesh, POSE, "opengl")
    assert (*own.focal, *own.middle, *own.size) == (130, 130, 80, 60, 120, 160)  # pyright: ignore
    for bad, message in (
        (info | {"K": [0.0] * 9}, "K of a camera info must be calibrated"),
        (info | {"D": [0.1] * 4, "distortion_model": "equidistant"}, "got 'equidistant'"),
        ({"K": info["K"]}, "a camera info must have height, got dict without"),
    ):
        with pytest.raises(ValueError, match=message):
            Camera.from_camera_info(bad, POSE)


@pytest.mark.parametrize("count", [5, 8])
def test_bent_images_are_made_straight(count: int) -> None:
    """A wall that is seen by a lens with distortion, ray by ray, by inversion of its formula."""
    distortion = np.array([-0.2, 0.05, 0.002, -0.001, 0.01, 0.02, -0.01, 0.003])[:count]
    camera = Camera(LENS, np.eye(4), size=SIZE, distortion=distortion)
    way = rays(np.eye(4))[..., :2]
    k = np.concatenate((distortion, np.zeros(8 - count)))

    def bend(point: np.ndarray) -> np.ndarray:
        x, y = point[..., 0], point[..., 1]
        r = x**2 + y**2
        radial = (1 + k[0] * r + k[1] * r**2 + k[4] * r**3) / (
            1 + k[5] * r + k[6] * r**2 + k[7] * r**3
        )
        tangential = np.stack(
            (2 * k[2] * x * y + k[3] * (r + 2 * x**2), k[2] * (r + 2 * y**2) + 2 * k[3] * x * y), -1
        )
        return point * radial[..., None] + tangential

    straight = way.copy()
    for _ in range(60):
        straight += way - bend(straight)
    assert np.abs(bend(straight) - way).max() < 1e-9
    slope = np.array([0.3, -0.2])
    depth = 1.0 / (1.0 - straight @ slope)  # the plane z = 1 + 0.3 x - 0.2 y
    assert np.abs(straight - way).max() * LENS[0] > 3.0  # pixels
    cloud = PointCloud.from_depth(depth, camera)
    off = cloud.points[:, 2] - 1.0 - cloud.points[:, :2] @ slope
    assert len(cloud) > 0.8 * depth.size
    # Half a pixel in both directions, of a bent image that is up to 1.7 times as dense.
    assert (np.abs(off) < 1.7 * 0.5 * (0.3 + 0.2) * cloud.points[:, 2] / LENS[0]).all()
    assert np.abs(off).mean() > 1e-4


def seen_of(
    pose: Any,
    depth: np.ndarray = DEPTH,
    lens: Any = LENS,
    before: Sequence[Any] = (),
    device: Any = "cpu",
    **options: Any,
) -> list[str]:
    """What is said of an image of the scene, in words, in a map that has those of poses before."""
    box = OccupancyMap(((0.1, -0.8, -0.15), (1.5, 0.8, 0.8)), 0.05, device=device)
    for earlier in before:
        box.integrate(render(ROOM, earlier)[0], LENS, earlier)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CameraWarning)
        box.integrate(depth, lens, pose, **options)
    assert all(found.filename == __file__ for found in caught)
    return [str(found.message) for found in caught]


def with_xyzw(pose: np.ndarray) -> np.ndarray:
    """Its quaternion in the other order."""
    quaternion = Rotation.from_matrix(pose[:3, :3]).as_quat()
    return np.concatenate((pose[:3, 3], quaternion))


ROBOT, JOINTS = load_panda(), torch.tensor([0.0, -0.8, 0.0, -2.2, 0.0, 1.5, 0.8])
KNOWN = {"robot": ROBOT, "joints": JOINTS}


def with_robot(pose: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """An image with the spheres of the robot before what is in it."""
    spheres, way = ROBOT.spheres(JOINTS).numpy(), rays(pose)
    square = (way**2).sum(axis=-1)
    for *center, radius in spheres[spheres[:, 3] > 0.0]:
        to = np.array(center) - pose[:3, 3]
        middle = way @ to / square
        inside = radius**2 - ((to**2).sum() - middle**2 * square)
        front = middle - np.sqrt(np.maximum(inside, 0.0) / square)
        depth = np.where((inside > 0.0) & (front < depth), front, depth)
    return depth


ROOM_AND_ROBOT = with_robot(POSE, DEPTH)
OPTICAL_OF_ROS = np.eye(4)  # the optical frame of a body whose x is forward
OPTICAL_OF_ROS[:3, :3] = [[0, 0, 1], [-1, 0, 0], [0, -1, 0]]
OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])


def turned(rotation: np.ndarray, place: np.ndarray = EYE) -> np.ndarray:
    """A pose (4, 4)."""
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, place
    return pose


TURN = POSE[:3, :3]
MILLIMETRES = (1000.0 * ROOM_AND_ROBOT).astype(np.uint16)
SPARSE = np.where(np.arange(SIZE[1]) % 7 == 0, (0.0, np.nan, np.inf, -1.0) * 40, ROOM_AND_ROBOT)
FAR = ROOM_AND_ROBOT > 1.6
# What is right, of an image of the room with the robot, whose joints and floor are known.
RIGHT: dict[str, dict[str, Any]] = {
    "as it is": {},
    "float32": {"depth": ROOM_AND_ROBOT.astype(np.float32)},
    "float16": {"depth": ROOM_AND_ROBOT.astype(np.float16)},
    "a tensor of bfloat16": {"depth": torch.tensor(ROOM_AND_ROBOT).bfloat16()},
    "millimetres with their scale": {"depth": MILLIMETRES, "depth_scale": 0.001},
    "pixels without a return": {"depth": SPARSE},
    "columns first in memory": {"depth": np.asfortranarray(ROOM_AND_ROBOT)},
    "a quaternion": {"pose": Camera(LENS, POSE).pose},
    "a tensor": {"pose": torch.tensor(POSE)},
    "a matrix of intrinsics": {"lens": MATRIX},
    "a camera of OpenGL": {"lens": Camera(LENS, POSE @ OPENGL, "opengl"), "pose": None},
    "a body of ROS": {"lens": Camera(LENS, POSE @ OPTICAL_OF_ROS.T, "ros"), "pose": None},
    "a camera that hangs": {
        "pose": POSE @ np.diag([-1.0, -1, 1, 1]),
        "depth": ROOM_AND_ROBOT[::-1, ::-1],
    },
    "a largest depth": {"max_depth": 1.2},
    "a wall behind": {"depth": np.full(SIZE, 0.5)},
    "a far plane": {"depth": np.where(FAR, 1000.0, ROOM_AND_ROBOT), "floor": None},
}
AT_MAP, OF_ROBOT, FLOOR = (
    "must look at the map",
    "it is in|it is that|it is of a",
    "above the floor",
)
MIDDLE, RIGID = "principal point must be near", "must be a rigid transform"
UNSEEN, METRES = "robot must be where it is seen", "depth must be in metres"
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "axes of OpenGL": ({"pose": POSE @ OPENGL}, AT_MAP),
    "a body of ROS": ({"pose": POSE @ OPTICAL_OF_ROS.T}, AT_MAP),
    "an optical frame as a body": ({"lens": Camera(LENS, POSE, "ros"), "pose": None}, AT_MAP),
    "an optical frame as OpenGL": ({"lens": Camera(LENS, POSE, "opengl"), "pose": None}, AT_MAP),
    "inverted": ({"pose": np.linalg.inv(POSE)}, "that of the world in the camera"),
    "x, y, z, w": ({"pose": with_xyzw(POSE)}, "of a quaternion x, y, z, w"),
    "rotation inverted": ({"pose": turned(TURN.T)}, FLOOR),
    "position inverted": ({"pose": turned(TURN, -TURN.T @ EYE)}, AT_MAP),
    "matrix transposed": ({"pose": POSE.T}, RIGID),
    "left-handed": ({"pose": turned(TURN @ np.diag([1.0, -1, 1]))}, RIGID),
    "no rotation": ({"pose": turned(np.eye(3))}, AT_MAP),
    "no position": ({"pose": turned(TURN, np.zeros(3))}, FLOOR),
    "position in mm": ({"pose": turned(TURN, 1000.0 * EYE)}, AT_MAP),
    "another side": ({"pose": look(EYE, 2.0 * EYE)}, AT_MAP),
    "hanging, image not": ({"pose": POSE @ np.diag([-1.0, -1, 1, 1])}, FLOOR),
    "moved": ({"pose": turned(TURN, EYE + np.array([0.2, 0.1, -0.2]))}, FLOOR),
    "fx, cx, fy, cy": ({"lens": (130.0, 79.5, 130.0, 59.5)}, "look like fx, cx, fy, cy"),
    "cx, cy, fx, fy": ({"lens": (79.5, 59.5, 130.0, 130.0)}, MIDDLE),
    "fx, fy, cy, cx": ({"lens": (130.0, 130.0, 59.5, 79.5)}, "looks transposed"),
    "matrix of intrinsics transposed": ({"lens": MATRIX.T}, "intrinsics must be fx, 0, cx"),
    "middle at 0": ({"lens": (130.0, 130.0, 0.0, 0.0)}, MIDDLE),
    "parts of the image": ({"lens": (0.81, 1.08, 0.5, 0.5)}, MIDDLE),
    "off": ({"lens": (130.0, 130.0, 79.5, 9.5)}, MIDDLE),
    "twice the resolution": ({"lens": [2.0 * x for x in LENS]}, "one 2 times as large"),
    "half the resolution": ({"lens": [0.5 * x for x in LENS]}, "one 0.5 times as large"),
    "every other pixel": ({"depth": ROOM_AND_ROBOT[::2, ::2]}, "one 2.01 times as large"),
    "cropped": ({"depth": ROOM_AND_ROBOT[:, :120]}, MIDDLE),
    "focal length in mm": ({"lens": (3.0, 3.0, 79.5, 59.5)}, "field of view must be 10 to 150"),
    "narrow": ({"lens": (4000.0, 4000.0, 79.5, 59.5)}, "field of view must be 10 to 150"),
    "flat": ({"lens": (130.0, 260.0, 79.5, 59.5)}, "fx and fy must be about equal"),
    "transposed": ({"depth": ROOM_AND_ROBOT.T}, "looks transposed"),
    "upside down": ({"depth": ROOM_AND_ROBOT[::-1]}, FLOOR),
    "color": ({"depth": np.dstack([ROOM_AND_ROBOT] * 3)}, r"shape \(height, width\)"),
    "no scale": ({"depth": MILLIMETRES}, "depth_scale must be given for integers"),
    "scale of metres": ({"depth": MILLIMETRES, "depth_scale": 1.0}, METRES),
    "scale inverted": ({"depth": MILLIMETRES, "depth_scale": 1000.0}, METRES),
    "millimetres": ({"depth": 1000.0 * ROOM_AND_ROBOT, "floor": None}, METRES),
    "millimetres of float16": ({"depth": (1e3 * DEPTH).astype(np.float16)}, METRES),
    "centimetres": ({"depth": 100.0 * ROOM_AND_ROBOT}, METRES),
    "centimetres up to 3 m": ({"depth": 100.0 * ROOM_AND_ROBOT, "max_depth": 3.0}, METRES),
    "disparities": ({"depth": 5e3 / np.maximum(ROOM_AND_ROBOT, 0.1), "floor": None}, METRES),
    "negative": ({"depth": -ROOM_AND_ROBOT}, "all 19200 pixels are 0, negative"),
    "no return": ({"depth": np.nan * DEPTH}, "all 19200 pixels are 0, negative"),
    "an image without the robot": ({"depth": DEPTH}, UNSEEN),
    "joints in degrees": ({"joints": torch.rad2deg(JOINTS)}, UNSEEN),
    "noise in mm": ({"noise": 2.0}, r"noise must be in \[0, 1\)"),
}


def said_of(given: dict[str, Any]) -> list[str]:
    """What is said of an image of the room with the robot, errors too."""
    known = {"pose": POSE, "depth": ROOM_AND_ROBOT, "floor": -0.1, **KNOWN}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnitsWarning)
        try:
            said = seen_of(**(known | given))
        except ValueError as error:
            return [str(error)]
    return said + [str(found.message) for found in caught]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_suspected(name: str) -> None:
    assert said_of(RIGHT[name]) == []


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told(name: str) -> None:
    given, message = MISTAKES[name]
    said = said_of(given)
    assert any(re.search(message, text) for text in said), said


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_rounded_depths(kind: torch.dtype) -> None:
    """Radii and bounds cover what a depth was rounded by, also where it has no noise."""
    depth = torch.rand((40, 50), generator=torch.Generator().manual_seed(0)).double() * 3.0 + 0.5
    lens, exact = (40.0, 40.0, 24.5, 19.5), {"noise": 0.0, "noise_per_metre": 0.0}
    options = DepthOptions(**exact, max_angle=1.5)  # pyright: ignore
    given, truth = (
        DepthImage(image, Camera(lens, np.eye(4)), options) for image in (depth.to(kind), depth)
    )
    off = np.abs(given.depth - truth.depth)
    assert off.max() > 2.0**-11
    a, b, c = given.noise
    assert (off <= a + given.depth * (b + given.depth * c)).all()
    assert truth.noise == (0.0, 0.0, 0.0)
    wall = torch.full((40, 50), 1.3)
    for each in (wall, wall.to(kind)):
        cloud = PointCloud.from_depth(each, lens, np.eye(4), **exact)  # pyright: ignore
        bounds = DepthImage(each, Camera(lens, np.eye(4)), options).bounds()
        assert (bounds <= 1.3).all()
        assert cloud.radii.min() > np.abs(float(each[0, 0]) - 1.3)


def test_cameras_that_look_through_the_map_are_right() -> None:
    """No point is in it, and it is free: a wall behind it, or poses around the scene."""
    for pose in cameras(6):
        assert seen_of(pose, render(scene(), pose)[0]) == []
        assert seen_of(pose, np.full(SIZE, 8.0)) == []


def test_images_that_see_through_what_earlier_ones_hit() -> None:
    """Right ones agree, from all sides; a wrong pose is told where its rays reach into the map."""
    poses = cameras(6)
    for number, pose in enumerate(poses):
        assert seen_of(pose, render(ROOM, pose)[0], before=poses[:number]) == []
    moved = np.eye(4)
    moved[:3, 3] = 0.2, 0.1, -0.2
    wrong = [(number, moved @ pose) for number, pose in enumerate(poses)]
    for number, pose in (*wrong, (4, with_xyzw(poses[4])), (5, with_xyzw(poses[5]))):
        others = poses[:number] + poses[number + 1 :]
        said = seen_of(pose, render(ROOM, poses[number])[0], before=others)
        assert any("see through what earlier images hit" in text for text in said), (number, said)


def test_a_map_on_a_gpu_is_compared_with_its_first_images(gpu: torch.device) -> None:
    """Later ones do not wait for it; what an image alone tells is told of all."""
    moved, poses = np.eye(4), cameras(6)
    moved[:3, 3] = 0.2, 0.1, -0.2
    depth, right = render(ROOM, poses[0])[0], [*poses[1:]] * 4
    for count, is_told in ((15, True), (16, False)):
        said = seen_of(moved @ poses[0], depth, before=right[:count], device=gpu)
        assert any("see through what earlier images hit" in text for text in said) == is_told
    said = seen_of(look(EYE, 2.0 * EYE), before=right[:16], device=gpu)
    assert any("must look at the map" in text for text in said)


def test_points_below_the_floor() -> None:
    """The floor of the room is at -0.1; poses that put a part of it lower."""
    for pose in cameras(6):
        assert seen_of(pose, render(ROOM, pose)[0], floor=-0.1) == []
    assert any("are below it" in text for text in seen_of(POSE, floor=0.3))
    first, *_, last = cameras(6)
    for pose, wrong in (
        (POSE, with_xyzw(POSE)),
        (first, np.linalg.inv(first)),
        (last, with_xyzw(last)),
    ):
        said = seen_of(wrong, render(ROOM, pose)[0], floor=-0.1)
        assert any("must be above the floor at -0.1 m" in text for text in said), said
    with pytest.raises(ValueError, match="floor must be finite, got nan"):
        seen_of(POSE, floor=float("nan"))


def test_a_robot_that_should_be_in_view() -> None:
    """Where pixels see through many of its spheres, pose or joints are wrong."""
    depth, known = ROOM_AND_ROBOT, KNOWN
    assert seen_of(POSE, depth, **known) == []
    # The robot is hidden by something, or not in view: nothing is wrong.
    assert seen_of(POSE, np.full(SIZE, 0.6), **known) == []
    away = look(EYE + np.array([0.0, 0.6, 0.0]), np.array([1.2, 0.0, 0.0]))
    assert seen_of(away, np.full(SIZE, 0.8), **known) == []
    for wrong, text in (
        (np.linalg.inv(POSE), "that of the world in the camera"),
        (with_xyzw(POSE), "of a quaternion x, y, z, w"),
        (POSE @ np.diag([1.0, -1, -1, 1]), "in OpenGL's axes"),
        (POSE @ OPTICAL_OF_ROS.T, "that of a body of ROS"),
    ):
        said = seen_of(wrong, depth, **known)
        assert any(text in each for each in said), (text, said)
    said = seen_of(POSE, DEPTH, **known)  # an image without the robot
    assert any("must be where it is seen" in text for text in said), said


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"convention": "usd"}, ValueError, "convention must be one of opencv, opengl, ros"),
        ({"size": (120, 0)}, ValueError, "size must be"),
        ({"distortion": [1.0]}, ValueError, "distortion must be 4 to 8 finite numbers"),
        ({"pose": np.eye(3)}, ValueError, "camera_pose must have shape"),
        ({"intrinsics": (1, 2, 3)}, ValueError, "intrinsics must be 4 numbers"),
    ],
)
def test_what_is_no_camera(given: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        Camera(**({"intrinsics": LENS, "pose": POSE} | given))


def test_images_of_another_size_are_refused() -> None:
    camera = Camera(LENS, POSE, size=SIZE)
    with pytest.raises(ValueError, match=r"shape \(120, 160\), got \(160, 120\) \(is it transp"):
        PointCloud.from_depth(DEPTH.T, camera)
    with pytest.raises(TypeError, match="camera_pose must be given with intrinsics"):
        PointCloud.from_depth(DEPTH, LENS)

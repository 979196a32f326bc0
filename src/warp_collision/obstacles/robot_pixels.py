"""Pixels of a depth image that see the robot itself, and poses of cameras that miss it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from warp_collision.obstacles.camera import warn_of_camera
from warp_collision.obstacles.depth_options import DepthOptions
from warp_collision.obstacles.shapes import rotation_matrix

# So many spheres of a robot that pixels see through are no accident.
_SEEN_THROUGH = 3
# Of so many points of an image such a part is of the robot, if its pose is read as it was meant.
_POINTS, _PART = 2000, 0.03


def robot_spheres(robot: Any, joints: Any) -> torch.Tensor:
    """(..., n_spheres, 4) float64 where a `RobotSpheres` is; waits for the device."""
    if not hasattr(robot, "sphere_links"):
        raise TypeError(f"robot must be a RobotSpheres, got {type(robot).__name__}")
    spheres = robot.spheres(joints).detach().double()
    if not spheres.isfinite().all():
        raise ValueError("joints must be finite, got some that are not")
    return spheres


def drop_robot(image: Any, options: DepthOptions) -> None:
    """Takes the pixels from the surface that may be of spheres of the robot, or near them."""
    robot = options.robot
    placed = robot_spheres(robot, options.joints)
    if placed.ndim != 2:
        raise ValueError(f"joints must be of one configuration, got {tuple(options.joints.shape)}")
    spheres = placed.cpu().numpy()
    was_surface = image.is_surface.copy()
    at, reach = _reaches(image, spheres, options.robot_margin)
    is_there = (spheres[:, 3] >= 0.0) & (at[:, 2] > -reach)
    given = np.column_stack((at, spheres[:, 3] + options.robot_margin))[is_there]
    found = image.drop_spheres(given, _windows_around(image, at, reach)[is_there])
    for link, count in zip(np.array(robot.sphere_links)[is_there], found, strict=True):
        if count:
            image.counts.robot[str(link)] = image.counts.robot.get(str(link), 0) + int(count)
    of_robot = np.count_nonzero(found)
    seen_through = 0
    for place, far in zip(at[is_there][found == 0], reach[is_there][found == 0], strict=True):
        if place[2] > 0.0:
            column, row = np.rint(image.focal * place[:2] / place[2] + image.middle)
            if 0 <= row < image.depth.shape[0] and 0 <= column < image.depth.shape[1]:
                seen_through += image.depth[int(row), int(column)] > place[2] + far
    is_seen_through = seen_through >= max(_SEEN_THROUGH, of_robot)
    reading = None
    if was_surface.any() and (is_seen_through or not of_robot):
        grown = spheres[spheres[:, 3] > 0.0]
        grown[:, 3] += options.robot_margin
        reading = _other_reading(image, was_surface, grown)
    if reading is not None:
        warn_of_camera(
            "camera_pose must be that of the optical frame in the world: more pixels are of the "
            f"robot if it is {reading}"
        )
    elif is_seen_through:
        warn_of_camera(
            f"the robot must be where it is seen: pixels see {of_robot} of its spheres and "
            f"through {seen_through}: are camera pose and joints those of the image?"
        )


def _reaches(image: Any, spheres: np.ndarray, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """Where spheres (n, 4) are in the axes of a camera, and how far from there their points are."""
    a, b, c = image.noise

    def noise(depth: np.ndarray) -> np.ndarray:
        return a + depth * (b + depth * c)

    at = (spheres[:, :3] - image.pose[:3]) @ image.rotation
    near = spheres[:, 3] + margin  # beside it is the noise of a depth
    farthest = np.maximum(at[:, 2], 0.0) + near
    return at, near + noise(farthest + noise(farthest))


def _windows_around(image: Any, at: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """(n, 4) first column and row around spheres, and those behind the last.

    Of a sphere beside the camera these are all.
    """
    size = np.array(image.depth.shape[::-1])
    is_beside = at[:, 2] <= 1.5 * reach
    depth = np.where(is_beside, 1.0, at[:, 2])[:, None]
    near = depth - np.where(is_beside, 0.0, reach)[:, None]
    slant = (np.abs(at[:, :2]) + reach[:, None]) / near
    span = image.focal * reach[:, None] / near * np.sqrt(1.0 + slant**2)
    middle = image.focal * at[:, :2] / depth + image.middle
    low = np.clip(np.floor(middle - 1.5 * span - 1), 0, size)
    high = np.clip(np.ceil(middle + 1.5 * span + 2), 0, size)
    low[is_beside], high[is_beside] = 0, size
    return np.concatenate((low, high), axis=1).astype(np.int32)


def _other_reading(image: Any, was_surface: np.ndarray, spheres: np.ndarray) -> str | None:
    """What the pose is mistaken for, if that puts many pixels on spheres of the robot (n, 4)."""
    row, column = np.nonzero(was_surface)
    some = slice(None, None, 1 + len(row) // _POINTS)
    x, y = image.slants()
    depth = image.depth[row[some], column[some]]
    local = np.stack((x[column[some]] * depth, y[row[some]] * depth, depth), axis=1)
    least = 2.0 * (1.0 - image.is_surface[was_surface].mean())
    for name, (rotation, place) in _readings(image).items():
        points = local @ rotation.T + place
        square = ((points[:, None] - spheres[:, :3]) ** 2).sum(axis=2)
        if (square <= spheres[:, 3] ** 2).any(axis=1).mean() > max(_PART, least):
            return name
    return None


def _readings(image: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rotation (3, 3) and position (3,) of a camera, by what its pose is mistaken for."""
    rotation, place = image.rotation, image.pose[:3]
    w, x, y, z = image.pose[3:]
    ros = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    return {
        "that of the world in the camera": (rotation.T, -rotation.T @ place),
        "in OpenGL's axes": (rotation @ np.diag([1.0, -1.0, -1.0]), place),
        "that of a body of ROS, x forward": (rotation @ ros, place),
        "of a quaternion x, y, z, w": (rotation_matrix(np.array([z, w, x, y])), place),
    }

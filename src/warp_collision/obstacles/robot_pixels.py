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
    x, y = image.slants()
    a, b, c = image.noise

    def noise(depth: Any) -> Any:
        return a + depth * (b + depth * c)

    height, width = image.depth.shape
    of_robot, seen_through = 0, 0
    was_surface = image.is_surface.copy()
    for (*center, radius), link in zip(spheres, robot.sphere_links, strict=True):
        at = (np.array(center) - image.pose[:3]) @ image.rotation
        near = radius + options.robot_margin  # beside it is the noise of a depth
        farthest = max(at[2], 0.0) + near
        reach = near + noise(farthest + noise(farthest))
        if radius < 0.0 or at[2] <= -reach:
            continue
        # Its window, with all pixels where it is beside the camera.
        rows, columns = slice(0, height), slice(0, width)
        if at[2] > 1.5 * reach:
            span = (
                image.focal
                * reach
                / (at[2] - reach)
                * np.sqrt(1.0 + ((np.abs(at[:2]) + reach) / (at[2] - reach)) ** 2)
            )
            low = np.floor(image.focal * at[:2] / at[2] + image.middle - 1.5 * span - 1)
            high = np.ceil(image.focal * at[:2] / at[2] + image.middle + 1.5 * span + 2)
            low = np.clip(low, 0, (width, height)).astype(int)
            high = np.clip(high, 0, (width, height)).astype(int)
            columns, rows = slice(low[0], high[0]), slice(low[1], high[1])
        depth = image.depth[rows, columns]
        square = (
            (x[columns] * depth - at[0]) ** 2
            + (y[rows, None] * depth - at[1]) ** 2
            + (depth - at[2]) ** 2
        )
        found = image.is_surface[rows, columns] & (square <= (near + noise(depth)) ** 2)
        if found.any():
            image.counts.robot[link] = image.counts.robot.get(link, 0) + int(found.sum())
            image.is_surface[rows, columns] &= ~found
            of_robot += 1
        elif at[2] > 0.0:
            pixel = np.rint(image.focal * at[:2] / at[2] + image.middle)
            if (pixel >= 0).all() and (pixel < (width, height)).all():
                seen_through += image.depth[int(pixel[1]), int(pixel[0])] > at[2] + reach
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

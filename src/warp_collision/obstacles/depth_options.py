"""How depth images are read, and what became of their pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warp_collision.validate import require_int, require_number

MAX_HOLE = 10_000  # pixels: larger ones are no dead pixels


@dataclass
class DepthCounts:
    """What became of the pixels of a depth image.

    Attributes:
        points: that are a surface.
        no_return: 0, NaN, infinite or negative.
        too_far: beyond the largest depth.
        flying: at edges, between what is in front and what is behind.
        robot: by link, those that see the robot itself.

    Example:
        >>> from warp_collision import DepthCounts
        >>> print(DepthCounts(points=300, no_return=12, robot={"panda_hand": 40}))
        300 points; no return 12, too far 0, flying 0, of the robot: panda_hand 40
    """

    points: int = 0
    no_return: int = 0
    too_far: int = 0
    flying: int = 0
    robot: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        robot = ", ".join(f"{name} {count}" for name, count in self.robot.items()) or "none"
        return (
            f"{self.points} points; no return {self.no_return}, too far {self.too_far}, "
            f"flying {self.flying}, of the robot: {robot}"
        )


@dataclass(frozen=True)
class DepthOptions:
    """How `PointCloud.from_depth` and `OccupancyMap.integrate` read a depth image.

    Attributes:
        max_depth: beyond it nothing is a point; a map is seen through up to it [m].
        depth_scale: metres of a unit of integer depths, 0.001 for millimetres; only for these.
        noise: a depth is right up to this [m]. Three numbers a, b, c are a + b z + c z^2 for a
            depth of z.
        noise_per_metre: it is right up to so much more of itself; 0.002 unless noise has three
            numbers.
        disparity_noise: of stereo cameras, their disparities are right up to this [pixels], and
        baseline: how far apart they are [m].
        max_angle: largest angle between rays and normals [rad]. Neighbours that differ by more are
            of two surfaces; pixels between the two, and those with no two neighbours on their own
            surface, are flying, and left out.
        max_hole: what `OccupancyMap` assumes of pixels without a return. A hole of at most so many
            pixels, none at the edge of the image, hides nothing nearer than all pixels around it.
            0 to 10,000. Beside silhouettes, holes of stereo cameras have some hundreds of pixels.
        floor: height in the world below which nothing is [m], if known. An image with more than a
            tenth of its points below it gives a `CameraWarning`; the points stay.
        robot: a `RobotSpheres`, whose own points are left out,
        joints: at these joint values (n_joints,),
        robot_margin: and what may be nearer to its spheres than this, with the noise [m].

    Example:
        >>> from warp_collision import DepthOptions
        >>> DepthOptions(max_depth=3.0, noise=0.005).max_depth
        3.0
    """

    max_depth: float | None = None
    depth_scale: float | None = None
    noise: float | tuple[float, float, float] = 0.002
    noise_per_metre: float | None = None
    disparity_noise: float = 0.0
    baseline: float | None = None
    max_angle: float = 1.3
    max_hole: int = 8
    floor: float | None = None
    robot: Any = None
    joints: Any = None
    robot_margin: float = 0.02

    def __post_init__(self) -> None:
        for name in ("max_depth", "depth_scale", "baseline"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), positive=True)
        for name in ("disparity_noise", "max_angle", "robot_margin"):
            require_number(name, getattr(self, name))
        if self.floor is not None:
            require_number("floor", self.floor, signed=True)
        self._check_noise()
        require_int("max_hole", self.max_hole)
        if not 0 <= self.max_hole <= MAX_HOLE:
            raise ValueError(f"max_hole must be from 0 to {MAX_HOLE} pixels, got {self.max_hole}")
        if self.max_angle >= 0.5 * math.pi:
            raise ValueError(f"max_angle must be in [0, pi / 2) rad, got {self.max_angle}")
        if self.robot is None and self.joints is not None:
            raise ValueError("joints must be given with their robot, got no robot")
        if self.robot is not None and self.joints is None:
            raise ValueError("joints must be given with a robot, got None")

    def _check_noise(self) -> None:
        if isinstance(self.noise, (tuple, list, np.ndarray)):
            if len(self.noise) != 3:
                raise ValueError(f"noise must be a number or a, b, c, got {self.noise}")
            if self.noise_per_metre is not None:
                raise ValueError("noise_per_metre must not be given with a noise of a, b, c")
            for number in self.noise:
                require_number("noise", number)
        else:
            require_number("noise", self.noise)
            if self.noise >= 1.0:
                raise ValueError(f"noise must be in [0, 1), got {self.noise}")
        if self.noise_per_metre is not None:
            require_number("noise_per_metre", self.noise_per_metre)
            if self.noise_per_metre >= 1.0:
                raise ValueError(f"noise_per_metre must be in [0, 1), got {self.noise_per_metre}")
        if (self.disparity_noise > 0.0) != (self.baseline is not None):
            raise ValueError("disparity_noise must be given with a baseline, and the other way")

    def noise_terms(self, focal: np.ndarray) -> tuple[float, float, float]:
        """The numbers a, b, c: a depth of z is right up to a + b z + c z^2 [m].

        Args:
            focal: (2,) lengths of the camera in pixels. A disparity of f B / z that is wrong by one
                pixel is a depth that is wrong by z^2 / (f B).
        """
        if isinstance(self.noise, (int, float)):
            per_metre = 0.002 if self.noise_per_metre is None else self.noise_per_metre
            a, b, c = float(self.noise), float(per_metre), 0.0
        else:
            a, b, c = map(float, self.noise)
        if self.baseline is not None:
            c += self.disparity_noise / (float(focal[0]) * self.baseline)
        return a, b, c

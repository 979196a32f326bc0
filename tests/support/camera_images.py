"""Depth images as cameras give them: pixels that see two surfaces, holes, noise, outliers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from depth_scenes import Box, look, rays, render
from reference import Array

BASELINE = 0.05  # of the stereo camera [m]
SUB_RAYS = 3  # of a pixel, along each side


class Setting(NamedTuple):
    """A kind of camera.

    Attributes:
        spoil: from depths (height, 3, width, 3) of nine rays in each pixel, its focal length and a
            generator to the image (height, width), NaN where there is no return.
        options: of `DepthOptions`, which say of the noise what is true.
    """

    spoil: Callable[[Array, float, np.random.Generator], Array]
    options: dict[str, Any]


def middle(fine: Array, focal: float = 0.0, rng: Any = None) -> Array:
    """Each pixel sees along its middle ray."""
    return fine[:, 1, :, 1].copy()


def mixed(fine: Array, focal: float = 0.0, rng: Any = None) -> Array:
    """Each pixel is the mean of what it sees, as of time of flight."""
    return fine.mean(axis=(1, 3))


def dropouts(share: float) -> Callable[..., Array]:
    """Single pixels have no return."""

    def spoil(fine: Array, focal: float, rng: np.random.Generator) -> Array:
        depth = middle(fine)
        depth[rng.random(depth.shape) < share] = np.nan
        return depth

    return spoil


def stereo(pixels: float) -> Callable[..., Array]:
    """Disparities have noise of that standard deviation, and never more than three of it."""

    def spoil(fine: Array, focal: float, rng: np.random.Generator) -> Array:
        disparity = focal * BASELINE / middle(fine)
        noise = np.clip(rng.normal(0.0, pixels, disparity.shape), -3 * pixels, 3 * pixels)
        return focal * BASELINE / (disparity + noise)

    return spoil


def patches(fine: Array, focal: float, rng: np.random.Generator) -> Array:
    """Ten discs without a return, as of surfaces that shine."""
    depth = middle(fine)
    height, width = depth.shape
    row, column = np.indices(depth.shape)
    for _ in range(10):
        radius = rng.uniform(0.01, 0.03) * width
        at = rng.uniform(0, height), rng.uniform(0, width)
        depth[np.hypot(row - at[0], column - at[1]) < radius] = np.nan
    return depth


def outliers(fine: Array, focal: float, rng: np.random.Generator) -> Array:
    """One pixel of five hundred has any depth."""
    depth = middle(fine)
    wrong = rng.random(depth.shape) < 0.002
    depth[wrong] = rng.uniform(0.2, 5.0, wrong.sum())
    return depth


def everything(fine: Array, focal: float, rng: np.random.Generator) -> Array:
    """Mixed pixels with noise of 2 mm and 2 mm a metre, outliers, dropouts of 0.5 %, patches."""
    depth = mixed(fine)
    depth += rng.uniform(-0.002, 0.002, depth.shape) * (1.0 + depth)
    for other in (outliers(fine, focal, rng), dropouts(0.005)(fine, focal, rng)):
        changed = other != middle(fine)
        depth[changed] = other[changed]
    depth[np.isnan(patches(fine, focal, rng))] = np.nan
    return depth


_EXACT = {"noise": 0.0, "noise_per_metre": 0.0}
SETTINGS = {
    "ideal": Setting(middle, _EXACT),
    "0.1 % dropouts": Setting(dropouts(0.001), _EXACT),
    "0.5 % dropouts": Setting(dropouts(0.005), _EXACT),
    "2 % dropouts": Setting(dropouts(0.02), _EXACT),
    "mixed edges": Setting(mixed, _EXACT),
    "stereo, 0.08 px": Setting(
        stereo(0.08), _EXACT | {"disparity_noise": 0.24, "baseline": BASELINE}
    ),
    "stereo, 0.3 px": Setting(stereo(0.3), _EXACT | {"disparity_noise": 0.9, "baseline": BASELINE}),
    "patches": Setting(patches, _EXACT),
    "outliers": Setting(outliers, _EXACT),
    "everything": Setting(everything, {}),
}


class Pinhole(NamedTuple):
    """Focal length, and size of the image in pixels."""

    focal: float
    height: int
    width: int

    @property
    def lens(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy."""
        return self.focal, self.focal, 0.5 * (self.width - 1), 0.5 * (self.height - 1)


def nine_rays(boxes: list[Box], pose: Array, camera: Pinhole, beyond: float = 9.0) -> Array:
    """Depths (height, 3, width, 3) of nine rays in each pixel; that of the background is given."""
    way = rays(pose, SUB_RAYS, camera.lens, (camera.height, camera.width))
    depth = render(boxes, pose, way=way)[0]
    depth[depth == 0.0] = beyond
    return depth.reshape(camera.height, SUB_RAYS, camera.width, SUB_RAYS)


def random_view(rng: np.random.Generator, distance: float) -> Array:
    """Pose (4, 4) of a camera that looks about at the origin from above, turned by any angle."""
    way = rng.normal(size=3)
    way[2] = 0.2 + abs(way[2])
    pose = look(distance * way / np.linalg.norm(way), rng.uniform(-0.1, 0.1, 3))
    return turned(pose, rng.uniform(0.0, 2.0 * np.pi))


def turned(pose: Array, angle: float) -> Array:
    """A pose turned around its optical axis [rad]."""
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return pose @ turn


def random_boxes(rng: np.random.Generator, count: int, least: float) -> list[Box]:
    """Boxes with edges of up to twice the least one [m], around the origin."""
    lower = rng.uniform(-2.0 * least, least, (count, 3))
    return [Box(low, low + rng.uniform(least, 2.0 * least, 3)) for low in lower]


def depth_in_solids(free: Array, lower: Array, edge: float, boxes: list[Box]) -> Array:
    """How far free voxels (n, 3) reach into boxes (n,) [m], 0 where they do not."""
    low = lower + edge * free
    reach = np.zeros(len(free))
    for box in boxes:
        overlap = np.minimum(low + edge, box.upper) - np.maximum(low, box.lower)
        deepest = np.clip(0.5 * (box.lower + box.upper), low, low + edge)
        inside = np.minimum(deepest - box.lower, box.upper - deepest).min(axis=1)
        reach = np.maximum(reach, np.where((overlap > 1e-9).all(axis=1), inside, 0.0))
    return reach

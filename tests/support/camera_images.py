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
        assumes: what has to be true for it, in words.
        least: how much of what ideal images show, these must show.
    """

    spoil: Callable[[Array, float, np.random.Generator], Array]
    options: dict[str, Any]
    assumes: str
    least: float = 0.8


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


def uniform(a: float, b: float, c: float) -> Callable[..., Array]:
    """Noise of up to a + b z + c z^2 at a depth of z [m]."""

    def spoil(fine: Array, focal: float, rng: np.random.Generator) -> Array:
        depth = middle(fine)
        return depth + rng.uniform(-1.0, 1.0, depth.shape) * (a + depth * (b + depth * c))

    return spoil


def no_edges(fine: Array, focal: float, rng: Any = None) -> Array:
    """Pixels without a return where their rays see depths that differ by a twentieth."""
    depth = middle(fine)
    depth[fine.max(axis=(1, 3)) > 1.05 * fine.min(axis=(1, 3))] = np.nan
    return depth


def no_slant(fine: Array, focal: float, rng: Any = None) -> Array:
    """Pixels without a return where a surface is seen at more than about 75 degrees."""
    depth = middle(fine)
    steps = np.maximum(np.ptp(fine[:, :, :, 1], axis=1), np.ptp(fine[:, 1], axis=2))
    depth[steps > 2.0 / 3.0 * np.tan(np.radians(75.0)) * depth / focal] = np.nan
    return depth


def mixed_and_dropouts(fine: Array, focal: float, rng: np.random.Generator) -> Array:
    """Both."""
    depth = mixed(fine)
    depth[rng.random(depth.shape) < 0.02] = np.nan
    return depth


_EXACT = {"noise": 0.0, "noise_per_metre": 0.0}
_HOLES = "holes of up to 8 pixels hide nothing nearer than what is around them"
_TWO = "obstacles are two pixels wide"
_DISPARITY = "disparities are right up to three standard deviations"
_NOISE = "depths are right up to the noise"
_STEREO = {"baseline": BASELINE, **_EXACT}
SETTINGS = {
    "ideal": Setting(middle, _EXACT, "obstacles are one pixel wide"),
    "0.1 % dropouts": Setting(dropouts(0.001), _EXACT, _HOLES),
    "0.5 % dropouts": Setting(dropouts(0.005), _EXACT, _HOLES),
    "2 % dropouts": Setting(dropouts(0.02), _EXACT, _HOLES),
    "mixed edges": Setting(mixed, _EXACT, _TWO),
    "mixed edges, 2 % dropouts": Setting(mixed_and_dropouts, _EXACT, f"{_TWO}; {_HOLES}"),
    "stereo, 0.08 px": Setting(stereo(0.08), {"disparity_noise": 0.24, **_STEREO}, _DISPARITY),
    "stereo, 0.3 px": Setting(stereo(0.3), {"disparity_noise": 0.9, **_STEREO}, _DISPARITY, 0.0),
    "noise of 2 mm and 2 mm a metre": Setting(uniform(0.002, 0.002, 0.0), {}, _NOISE),
    "noise of 1 mm + 3 mm z²": Setting(
        uniform(0.001, 0.0, 0.003), {"noise": (0.001, 0.0, 0.003)}, _NOISE
    ),
    "patches": Setting(patches, _EXACT, "none: they hide all along their rays"),
    "no return at edges": Setting(no_edges, _EXACT, _HOLES, 0.0),
    "no return at a slant": Setting(no_slant, _EXACT, _HOLES, 0.0),
    "outliers": Setting(outliers, _EXACT, _HOLES),
    "everything": Setting(everything, {}, f"{_TWO}; {_HOLES}; {_NOISE}"),
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

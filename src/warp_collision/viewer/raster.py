"""A small software renderer in NumPy: triangles and spheres, smooth edges, translucent bodies.

It needs no display, no OpenGL and no system library, so a picture looks the same on every machine.
Camera frame: x to the right, y down, z forward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating]

# Towards the key light, in the camera frame: over the left shoulder of the viewer.
_KEY_LIGHT = np.array([-0.45, -0.72, -0.53]) / np.linalg.norm([-0.45, -0.72, -0.53])
_GLOSS = 0.25  # of the highlight
_CREASE = 40.0  # degrees


@dataclass(frozen=True)
class Camera:
    """A pinhole camera: eye and target in the world [m], z up, vertical field of view [degrees]."""

    eye: tuple[float, float, float]
    target: tuple[float, float, float]
    width: int
    height: int
    field_of_view: float = 30.0

    @property
    def focal_length(self) -> float:
        """Distance of the image plane [pixels]."""
        return 0.5 * self.height / np.tan(np.radians(self.field_of_view) / 2.0)

    @property
    def camera_from_world(self) -> Floats:
        """(3, 3) rotation; its rows are the camera's right, down and forward axes."""
        forward = np.subtract(self.target, self.eye)
        forward = forward / np.linalg.norm(forward)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        return np.stack([right, np.cross(forward, right), forward])

    def view(self, points: ArrayLike) -> Floats:
        """Returns world points (n, 3) in the camera frame [m]."""
        return (np.asarray(points, float) - self.eye) @ self.camera_from_world.T

    def project(self, points: ArrayLike) -> Floats:
        """Returns the pixel coordinates (n, 2) of world points (n, 3), origin at the top left."""
        return self.project_view(self.view(points))

    def project_view(self, points: Floats) -> Floats:
        """As `project`, of points in the camera frame."""
        center = np.array([0.5 * self.width, 0.5 * self.height])
        return self.focal_length * points[:, :2] / points[:, 2:] + center

    def rays(self, x: slice, y: slice) -> Floats:
        """Returns (rows, columns, 3) directions with z = 1 through the pixels of a rectangle."""
        columns = (np.arange(x.start, x.stop) + 0.5 - 0.5 * self.width) / self.focal_length
        rows = (np.arange(y.start, y.stop) + 0.5 - 0.5 * self.height) / self.focal_length
        directions = np.ones((len(rows), len(columns), 3), np.float32)
        directions[..., 0], directions[..., 1] = columns[None, :], rows[:, None]
        return directions


class Layer:
    """The nearest surface in each pixel of a rectangle: depth [m], normal (camera frame), colour.

    Args:
        camera: The view.
        points: World points (n, 3); the rectangle is their bounding box. None: the whole image.
        farthest: Keep the farthest surface instead: the far walls of a translucent body.
    """

    def __init__(self, camera: Camera, points: ArrayLike | None = None, *, farthest: bool = False):
        self.camera = camera
        low, high = np.zeros(2, int), np.array([camera.width, camera.height])
        if points is not None:
            pixels = camera.project(points)
            low = np.clip(np.floor(pixels.min(0)).astype(int) - 2, 0, high)
            high = np.clip(np.ceil(pixels.max(0)).astype(int) + 2, low, high)
        self.x, self.y = slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1]))
        shape = (self.y.stop - self.y.start, self.x.stop - self.x.start)
        self._sign = -1.0 if farthest else 1.0
        self.depth = np.full(shape, self._sign * np.inf, np.float32)
        self.normal = np.zeros((*shape, 3), np.float32)
        self.color = np.zeros((*shape, 3), np.float32)

    @property
    def covered(self) -> NDArray[np.bool_]:
        """(rows, columns): where there is a surface."""
        return np.isfinite(self.depth)

    def add_triangles(
        self, vertices: ArrayLike, faces: NDArray[np.integer], color: ArrayLike
    ) -> None:
        """Draws a mesh: vertices (n, 3) in the world, smooth up to creases of 40 degrees."""
        points = self.camera.view(vertices)
        corners = points[faces]
        normals = _corner_normals(corners, faces, len(points))
        pixels = self.camera.project_view(points)[faces] - [self.x.start, self.y.start]
        for corner, normal, pixel in zip(corners, normals, pixels, strict=True):
            self._add_triangle(corner[:, 2], normal, pixel, np.asarray(color))

    def _add_triangle(self, z: Floats, normals: Floats, pixel: Floats, color: Floats) -> None:
        area = _cross(pixel[1] - pixel[0], pixel[2] - pixel[0])
        box = self._box(pixel.min(0), pixel.max(0))
        if box is None or abs(area) < 1e-9 or z.min() <= 0.0:
            return
        x = np.arange(box[1].start, box[1].stop) + 0.5
        y = np.arange(box[0].start, box[0].stop) + 0.5
        shares = []
        for i in range(3):
            (ax, ay), (bx, by) = pixel[(i + 1) % 3], pixel[(i + 2) % 3]
            along_x, along_y = (ay - by) / area * (x - ax), (bx - ax) / area * (y - ay)
            shares.append(np.add.outer(along_y, along_x, dtype=np.float32))
        # A little below 0: rounding must not open cracks between neighbours.
        inside = np.minimum(np.minimum(shares[0], shares[1]), shares[2]) >= -1e-5
        if not inside.any():
            return
        # Linear on the image are the shares divided by depth, not the shares themselves.
        over_z = np.stack([s[inside] / np.float32(d) for s, d in zip(shares, z, strict=True)])
        depth = 1.0 / over_z.sum(0)
        self._keep(box, inside, depth, (over_z * depth).T @ normals.astype(np.float32), color)

    def add_spheres(self, spheres: ArrayLike, colors: ArrayLike) -> None:
        """Draws spheres (n, 4) x, y, z, radius in the world, with colours (n, 3)."""
        spheres = np.asarray(spheres, float).reshape(-1, 4)
        centers = self.camera.view(spheres[:, :3])
        pixels = self.camera.project_view(centers) - [self.x.start, self.y.start]
        for center, pixel, radius, color in zip(
            centers, pixels, spheres[:, 3], np.asarray(colors), strict=True
        ):
            if center[2] > radius > 0.0:
                # Half as much again: a sphere off the axis is drawn as an ellipse.
                reach = 1.5 * self.camera.focal_length * radius / (center[2] - radius)
                self._add_sphere(center, radius, self._box(pixel - reach, pixel + reach), color)

    def _add_sphere(
        self, center: Floats, radius: float, box: tuple[slice, slice] | None, color: Floats
    ) -> None:
        if box is None:
            return
        x0, y0 = self.x.start, self.y.start
        rays = self.camera.rays(
            slice(x0 + box[1].start, x0 + box[1].stop), slice(y0 + box[0].start, y0 + box[0].stop)
        )
        a = np.einsum("yxi,yxi->yx", rays, rays)
        b = rays @ center.astype(np.float32)
        discriminant = b * b - a * np.float32(center @ center - radius * radius)
        inside = discriminant > 0.0
        depth = (b[inside] - self._sign * np.sqrt(discriminant[inside])) / a[inside]
        normals = (rays[inside] * depth[:, None] - center) / radius
        self._keep(box, inside, depth, normals, color)

    def _box(self, low: Floats, high: Floats) -> tuple[slice, slice] | None:
        """Returns the rows and columns between two points, None if they are off the layer."""
        rows, columns = self.depth.shape
        left, top = np.clip(np.floor(low).astype(int), 0, [columns, rows])
        right, bottom = np.clip(np.ceil(high).astype(int), 0, [columns, rows])
        return (slice(top, bottom), slice(left, right)) if right > left and bottom > top else None

    def _keep(
        self,
        box: tuple[slice, slice],
        inside: NDArray[np.bool_],
        depth: Floats,
        normals: Floats,
        color: Floats,
    ) -> None:
        """Writes the fragments of one surface where they win."""
        kept = self.depth[box]
        wins = self._sign * depth < self._sign * kept[inside]
        if not wins.all():
            inside[inside], depth, normals = wins, depth[wins], normals[wins]
        kept[inside] = depth
        self.normal[box][inside] = normals
        self.color[box][inside] = color

    def edges(self) -> NDArray[np.bool_]:
        """(rows, columns): silhouettes and creases, two pixels wide."""
        marks = np.zeros(self.depth.shape, bool)
        for axis in (0, 1):
            step = np.abs(np.diff(self.normal, axis=axis)).sum(-1) > 0.5
            ahead = np.pad(step, [(0, 1), (0, 0)] if axis == 0 else [(0, 0), (0, 1)])
            marks |= ahead | np.roll(ahead, 1, axis=axis)
        return marks

    def shaded(self) -> Floats:
        """Returns (rows, columns, 3) colours with light: key light, fill light and highlight."""
        seen = self.covered
        toward_eye = -self.camera.rays(self.x, self.y)[seen]
        toward_eye /= np.linalg.norm(toward_eye, axis=-1, keepdims=True)
        normal = self.normal[seen]
        normal /= np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-9)
        facing = np.einsum("pi,pi->p", normal, toward_eye)
        # Open meshes and far walls are seen from behind: light the side that is seen.
        normal *= np.where(facing < 0.0, -1.0, 1.0).astype(np.float32)[:, None]
        key_light = _KEY_LIGHT.astype(np.float32)
        light = 0.42 + 0.46 * np.maximum(normal @ key_light, 0.0) + 0.2 * np.abs(facing)
        half = toward_eye + key_light
        half /= np.linalg.norm(half, axis=-1, keepdims=True)
        shine = np.maximum(np.einsum("pi,pi->p", normal, half), 0.0)
        for _ in range(5):  # to the power of 32
            shine *= shine
        colors = self.color.copy()
        colors[seen] = np.clip(colors[seen] * light[:, None] + _GLOSS * shine[:, None], 0.0, 1.0)
        return colors


def _cross(a: Floats, b: Floats) -> float:
    return float(a[0] * b[1] - a[1] * b[0])


def _corner_normals(corners: Floats, faces: NDArray[np.integer], n_vertices: int) -> Floats:
    """Returns (n_faces, 3, 3) normals: the vertex's mean where the face is near it, else its own.

    Faces are weighted by their area, which is the length of the cross product.
    """
    scaled = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    own = scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-30)
    mean = np.zeros((n_vertices, 3))
    np.add.at(mean, faces.reshape(-1), np.repeat(scaled, 3, axis=0))
    mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-30)
    smooth = mean[faces]
    near = np.einsum("fci,fi->fc", smooth, own) > np.cos(np.radians(_CREASE))
    return np.where(near[..., None], smooth, own[:, None, :])


def blend(
    image: Floats, behind: ArrayLike, layer: Layer, colors: ArrayLike, alpha: float | Floats
) -> None:
    """Blends a layer over an image in place, where it is nearer than the depths `behind`.

    Args:
        image: (height, width, 3) colours from 0 to 1.
        behind: (height, width) or one, depth of the opaque surfaces [m].
        layer: What is blended; only its place and depth are used.
        colors: (rows, columns, 3) or (3,) colours of the layer.
        alpha: Opacity, one number or (rows, columns).
    """
    box = (layer.y, layer.x)
    seen = layer.covered & (layer.depth < np.broadcast_to(behind, image.shape[:2])[box])
    opacity = np.broadcast_to(np.float32(alpha), seen.shape)[seen][:, None]
    target = image[box]
    drawn = np.broadcast_to(np.asarray(colors, np.float32), target.shape)[seen]
    target[seen] += opacity * (drawn - target[seen])

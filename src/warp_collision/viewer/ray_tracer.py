"""Images of bodies by ray casting: no display, no OpenGL, no system library.

Warp's trees over triangles find what a ray meets, so that the time grows with the pixels and
hardly with the triangles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import warp as wp
from torch import Tensor

from warp_collision.devices import CPU
from warp_collision.extras import require_extra
from warp_collision.kernels import ray_image as kernels
from warp_collision.launching.launch import launch, warp_stream
from warp_collision.launching.warp_runtime import quiet_warp
from warp_collision.viewer.camera import Camera
from warp_collision.viewer.colors import Color, Floats, Theme
from warp_collision.viewer.triangles import Triangles, box_corners, corner_normals

# Rays for each pixel of the picture that has an edge, in each direction; one ray for others.
SAMPLES = kernels.SAMPLES

# Toward the key light, in the camera frame: over the left shoulder of the viewer.
_KEY_LIGHT = np.array([-0.45, -0.72, -0.53]) / np.linalg.norm([-0.45, -0.72, -0.53])
_SHADOW_LIGHT = np.array([-0.12, -0.18, 1.0]) / np.linalg.norm([-0.12, -0.18, 1.0])
_OUTLINES = (0.35, 0.5, 0.2)  # opacity of the outlines of the layers
_SHADOW_CELLS = 320  # of the longer side of the shadow map


class Body(NamedTuple):
    """What is seen as one surface, or as glass whose every wall is seen.

    Attributes:
        parts: triangles in the world [m].
        colors: r, g, b from 0 to 1, of all parts, or (n_parts, 3) of each.
        opacity: of one wall.
        is_glass: whether every wall is seen.
    """

    parts: Sequence[Triangles]
    colors: Color | Floats
    opacity: float = 1.0
    is_glass: bool = False


class Rays(NamedTuple):
    """What the pixels show.

    Attributes:
        color: (height, width, 4) r, g, b times opacity, and opacity.
        layers: (height, width, 3, 4) normal and depth [m] of the first solid, the nearest and the
            farthest wall of glass before it; infinitely deep where there is none.
        first: (height, width) the first solid body, -1 for none.
    """

    color: Tensor
    layers: Tensor
    first: Tensor


class RayTracer:
    """Bodies, ready to be seen from anywhere.

    Args:
        bodies: at most 16 of them are no glass.
        device: where rays are cast.

    Attributes:
        numbers: of the bodies, as `Rays.first` has them; -1 for glass and what has no faces.
    """

    def __init__(self, bodies: Sequence[Body], device: torch.device = CPU):
        self._device = device
        solids = [b for b in bodies if not b.is_glass and any(len(p.faces) for p in b.parts)]
        solids.sort(key=lambda body: -body.opacity)  # behind opaque ones nothing is looked for
        assert len(solids) <= kernels.MOST_SOLIDS
        self.numbers = [
            next((i for i, other in enumerate(solids) if other is body), -1) for body in bodies
        ]
        parts = [(i, p.vertices) for i, b in enumerate(solids) for p in b.parts if len(p.faces)]
        self._owners = [owner for owner, _ in parts]
        self._boxes = np.array([box_corners(v) for _, v in parts]).reshape(-1, 8, 3)
        meshes = [[body for body in bodies if body.is_glass], *([body] for body in solids)]
        self._tables = [_tables(mesh) for mesh in meshes]
        with quiet_warp(), warp_stream(device):
            self._meshes = [self._mesh(table) for table in self._tables]
        sizes = [len(table.faces) for table in self._tables]
        ids = [0 if mesh is None else mesh.id for mesh in self._meshes]
        self._ids = self._on_device(ids, torch.int64)
        self._first_faces = self._on_device(np.cumsum([0, *sizes[:-1]]), torch.int32)
        self._opacities = self._on_device([0.0, *(b.opacity for b in solids)], torch.float32)
        self._normals, self._colors = (
            self._on_device(np.concatenate(columns), torch.float32)
            for columns in ([t.normals for t in self._tables], [t.colors for t in self._tables])
        )

    def _mesh(self, table: _Tables) -> wp.Mesh | None:
        if not len(table.faces):
            return None
        device = str(self._device)
        vertices = wp.array(table.vertices.astype(np.float32), dtype=wp.vec3, device=device)
        faces = table.faces.astype(np.int32).reshape(-1)
        return wp.Mesh(vertices, wp.array(faces, dtype=wp.int32, device=device))

    def _on_device(self, values: Any, dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(values, dtype=dtype, device=self._device)

    def cast(self, camera: Camera, window: tuple[slice, slice] | None = None) -> Rays:
        """Returns what each pixel of a camera, or of a window of rows and columns, shows."""
        rows, columns = window or (slice(0, camera.height), slice(0, camera.width))
        size, device = (rows.stop - rows.start, columns.stop - columns.start), self._device
        places = torch.empty((*size, 2), dtype=torch.int32, device=device)
        places[..., 0] = torch.arange(rows.start, rows.stop, device=device)[:, None]
        places[..., 1] = torch.arange(columns.start, columns.stop, device=device)
        return self._cast(camera, places)

    def _cast(self, camera: Camera, places: Tensor) -> Rays:
        """What pixels (n, k, 2), row and column, show."""
        size, device = (places.shape[0], places.shape[1]), self._device
        color = torch.empty((*size, 4), device=device)
        first = torch.empty(size, dtype=torch.int32, device=device)
        layers = torch.empty((*size, kernels.N_LAYERS, 4), device=device)
        light = _KEY_LIGHT @ camera.camera_from_world
        view = self._on_device(np.stack([camera.eye, *camera.rays(), light]), torch.float32)
        launch(
            kernels.cast_rays, size, places,
            self._ids, self._first_faces, self._opacities, self._near(camera),
            self._normals, self._colors, view,
            color, layers, first,
            device=device, items=size[0] * size[1],
        )  # fmt: skip
        return Rays(color, layers, first)

    def _near(self, camera: Camera) -> Tensor:
        """(height, width) bits of the solid bodies with a part whose box a pixel may show."""
        near = np.zeros((camera.height, camera.width), np.int32)
        bounds = camera.bounds(self._boxes).tolist()
        for owner, ((left, top), (right, bottom)) in zip(self._owners, bounds, strict=True):
            near[top:bottom, left:right] |= 1 << owner
        return self._on_device(near, torch.int32)

    def image(
        self,
        camera: Camera,
        outline: Color,
        strengths: Sequence[float] = _OUTLINES,
        window: tuple[slice, slice] | None = None,
    ) -> Tensor:
        """Returns (height, width, 4) r, g, b times opacity, and opacity, with outlines.

        The camera has `SAMPLES` times as many pixels as the image in each direction. Only pixels
        that differ from one beside them are made of so many rays.
        """
        size = camera.height // SAMPLES, camera.width // SAMPLES
        pixels = dataclasses.replace(camera, height=size[0], width=size[1])
        window = window or (slice(0, camera.height), slice(0, camera.width))
        rows, columns = (slice(s.start // SAMPLES, s.stop // SAMPLES) for s in window)
        coarse = self.cast(pixels, (rows, columns))
        is_edge = torch.empty_like(coarse.first)
        launch(
            kernels.find_edges, tuple(is_edge.shape), coarse.color, coarse.layers, is_edge,
            device=self._device, items=is_edge.numel(),
        )  # fmt: skip
        edges = is_edge.bool()
        chosen = edges.nonzero().to(torch.int32)
        index = torch.full_like(coarse.first, -1)
        index[edges] = torch.arange(len(chosen), dtype=torch.int32, device=self._device)
        steps = torch.arange(SAMPLES, dtype=torch.int32, device=self._device)
        samples = (SAMPLES * chosen[:, None] + torch.cartesian_prod(steps, steps)).contiguous()
        first = self._on_device([window[0].start, window[1].start], torch.int32)
        fine = self._cast(camera, (samples + first).contiguous())
        launch(
            kernels.draw_outlines, tuple(fine.first.shape),
            samples, index, coarse.layers, fine.layers,
            *(self._on_device(values, torch.float32) for values in (strengths, [outline])),
            fine.color, device=self._device, items=fine.first.numel(),
        )  # fmt: skip
        coarse.color[edges] = fine.color.mean(dim=1)
        return coarse.color

    def shadows(self, low: Floats, high: Floats, floor: float) -> Floats:
        """Returns the shadow (rows y, columns x) from 0 to 1 on a part of a floor [m]."""
        sides = high - low
        columns, rows = np.maximum(_SHADOW_CELLS * sides / sides.max(), 1).astype(int)
        x = low[0] + sides[0] * (np.arange(columns) + 0.5) / columns
        y = low[1] + sides[1] * (np.arange(rows) + 0.5) / rows
        points = np.empty((rows, columns, 3))
        points[..., 0], points[..., 1], points[..., 2] = x, y[:, None], floor
        shadow = torch.zeros((int(rows), int(columns)), device=self._device)
        launch(
            kernels.cast_shadows, tuple(shadow.shape), self._ids,
            *(self._on_device(v, torch.float32) for v in (points, _SHADOW_LIGHT[None])),
            shadow, device=self._device, items=shadow.numel(),
        )  # fmt: skip
        return shadow.cpu().numpy()


class _Tables(NamedTuple):
    """One mesh of some bodies, and what the kernels know of its faces."""

    vertices: Floats
    faces: np.ndarray
    normals: Floats
    colors: Floats


def _tables(bodies: Sequence[Body]) -> _Tables:
    nothing = np.zeros((0, 3))
    tables = [_Tables(nothing, nothing.astype(int), np.zeros((0, 3, 3)), np.zeros((0, 4)))]
    count = 0
    for body in bodies:
        colors = np.broadcast_to(np.asarray(body.colors), (len(body.parts), 3))
        for part, color in zip(body.parts, colors, strict=True):
            rgba = np.tile((*color, body.opacity), (len(part.faces), 1))
            tables.append(_Tables(part.vertices, part.faces + count, corner_normals(part), rgba))
            count += len(part.vertices)
    return _Tables(*(np.concatenate(column) for column in zip(*tables, strict=True)))


class Room:
    """An empty room: a floor with the soft shadows of bodies.

    Args:
        camera: in the pixels that rays are cast for.
        theme: the colours.
        low: (2,) lower corner of the part of the floor that has shadows.
        high: (2,) its upper corner.
        floor: its height [m].
    """

    def __init__(self, camera: Camera, theme: Theme, low: Floats, high: Floats, floor: float):
        self._low, self._high, self._floor = low, high, floor
        height, width = camera.height // SAMPLES, camera.width // SAMPLES
        corner, right, down = Camera(camera.eye, camera.target, width, height).rays()
        rows = corner + (np.arange(height)[:, None] + 0.5) * down  # rays; `right` is level
        fade = np.linspace(0.0, 1.0, height, dtype=np.float32)[:, None, None]
        wall, ground = (np.array(color, np.float32) for color in (theme.wall, theme.floor))
        self._empty = np.broadcast_to((1.0 - fade) * wall + fade * ground, (height, width, 3))
        self._is_floor = (rows[:, 2] < -1e-3) & (camera.eye[2] > floor)
        rows = rows[self._is_floor, None]
        depth = (floor - camera.eye[2]) / rows[..., 2:]
        columns = np.arange(width)[:, None] + 0.5
        place = camera.eye[:2] + (rows[..., :2] + columns * right[:2]) * depth
        self._place = (place - low) / (high - low)  # from 0 to 1 where there are shadows

    def draw(self, tracer: RayTracer) -> Floats:
        """Returns (height, width, 3) the room with the shadows of bodies."""
        require_extra("matplotlib", "a picture")
        from PIL import Image, ImageFilter

        image = self._empty.copy()
        shadow = tracer.shadows(self._low, self._high, self._floor)
        blurred = Image.fromarray(np.uint8(255 * np.pad(shadow, 8)))
        blurred = blurred.filter(ImageFilter.GaussianBlur(4))
        shadow = np.asarray(blurred, np.float32)[8:-8, 8:-8] / 255.0
        size = np.array(shadow.shape)[::-1]
        cells = np.floor(self._place * size).astype(int)
        inside = ((cells >= 0) & (cells < size)).all(-1)
        cells = np.clip(cells, 0, size - 1)
        image[self._is_floor] *= (
            1.0 - 0.3 * (shadow[cells[..., 1], cells[..., 0]] * inside)[..., None]
        )
        return image


def over(image: Floats, drawn: Tensor, opacity: float = 1.0) -> Floats:
    """Returns an image (height, width, 3) with another (height, width, 4) drawn over it."""
    values = drawn.cpu().numpy()
    values = values if opacity == 1.0 else opacity * values
    return values[..., :3] + (1.0 - values[..., 3:]) * image

"""Point clouds: unions of balls around points that a sensor saw."""

from __future__ import annotations

import os
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from warp_collision.devices import sent
from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.formats.point_files import read_points
from warp_collision.formats.ros_messages import message_points
from warp_collision.kernels.cloud_grid import fill_cloud_grid
from warp_collision.kernels.mesh_record import Shape as ShapeKind
from warp_collision.messages import errors_at, escaped
from warp_collision.obstacles.camera import camera_of
from warp_collision.obstacles.depth_image import DepthImage, check_stride, footprint
from warp_collision.obstacles.depth_options import DepthCounts, DepthOptions
from warp_collision.obstacles.part_tree import PartBuffers
from warp_collision.obstacles.sensed import Sensed, Uploaded
from warp_collision.obstacles.shapes import Triangles, rotation_matrix
from warp_collision.obstacles.units import warn_of_extent
from warp_collision.poses import PoseLike
from warp_collision.validate import (
    check_pose,
    flag,
    on_host,
    require_count,
    require_device,
    require_tensor,
    shape_of,
)

_CELLS_PER_POINT = 4
_DRAWN = 20_000  # balls of a mesh around a cloud
_OCTAHEDRON = np.array(
    [(0, 1, 2), (1, 3, 2), (3, 4, 2), (4, 0, 2), (1, 0, 5), (3, 1, 5), (4, 3, 5), (0, 4, 5)]
)


class PointCloud(Sensed):
    """A union of balls around points, as an obstacle.

    The signed distance is the least distance to a point less the radius of its ball: exact outside
    of all balls, and 1-Lipschitz everywhere. What is proven free is free of the balls. It is free
    of the surface that the points are of where the balls cover it: where the radius is at least the
    largest distance from a point of the surface to the nearest point of the cloud.

    Attributes:
        points: (n, 3) float32 [m], read-only.
        radii: (n,) float32 [m], read-only.
        counts: of the pixels of a depth image that it is from, else None.
        capacity: how many points `world.update` may give to its slot, in place; None for any number
            in new buffers.
        drop_invalid: whether points that are not finite are left out of updates, too.

    Example:
        >>> import torch
        >>> from warp_collision import MeshWorld, PointCloud, signed_distance
        >>> world = MeshWorld()
        >>> world.add("camera", PointCloud([[0.5, 0.0, 0.2], [0.5, 0.0, 0.21]], radius=0.01))
        0
        >>> round(signed_distance(torch.tensor([[0.5, 0.0, 0.5]]), world).distance.item(), 4)
        0.28
    """

    kind = ShapeKind.POINT_CLOUD
    grid_kernel = fill_cloud_grid

    def __init__(
        self,
        points: Any,
        radius: Any = None,
        *,
        drop_invalid: bool = False,
        capacity: int | None = None,
    ):
        """Copies points.

        Args:
            points: (n, 3) array or tensor [m], n > 0; or (n, 4) with a radius in each row.
            radius: of the balls [m], a positive number or (n,); not given if the points have radii.
            drop_invalid: leave out points that are not finite, as sensors give without a return;
                without, they are an error.
            capacity: how many points updates may have. The slot has room for them from the
                beginning. Updates are written in place, in a CUDA graph too, and each takes as long
                as one of that many points.

        Raises:
            TypeError: no real numbers.
            ValueError: another shape, no point, values that are not finite or beyond 1e9, a radius
                that is not positive, more points than the capacity.
        """
        rows = _floats("points", points)
        if rows.ndim != 2 or rows.shape[1] not in (3, 4):
            raise ValueError(f"points must have shape (n, 3) or (n, 4), got {rows.shape}")
        if rows.shape[1] == 3:
            if radius is None:
                raise ValueError("radius must be given for points (n, 3), got None")
            rows = np.column_stack((rows, _radii(radius, len(rows))))
        elif radius is not None:
            raise ValueError("radius must not be given for points (n, 4), which have radii")
        balls = _valid(rows, flag("drop_invalid", drop_invalid))
        if capacity is not None:
            require_count("capacity", capacity)
            _require_room(len(balls), capacity)
        extents = [float(np.ptp(balls[:, axis])) for axis in range(3)]
        warn_of_extent("points", "a cloud", extents)
        self.counts: DepthCounts | None = None
        self.capacity, self.drop_invalid = capacity, drop_invalid
        self._balls = balls
        self._balls.flags.writeable = False

    @classmethod
    def from_depth(
        cls,
        depth: Any,
        intrinsics: Any,
        camera_pose: PoseLike | None = None,
        *,
        stride: int = 1,
        **options: Any,
    ) -> PointCloud:
        """The surface that a depth image saw, in the world.

        The radius of a point covers what its pixel sees, of a surface whose normal is at most
        `max_angle` off the ray, and the noise. Steeper surfaces, and what is smaller than a pixel,
        may have parts outside of all balls; an `OccupancyMap` knows of what no ray saw through.

        Args:
            depth: (height, width) along the optical axis: floating point in metres, or integers
                with a `depth_scale`. 0, NaN, infinite and negative values are no return.
            intrinsics: fx, fy, cx, cy in pixels, or the matrix (3, 3); the center of the first
                pixel is 0, 0. Or a `Camera`, which has a pose.
            camera_pose: of the camera's optical frame in the world, z forward, x right, y down:
                x, y, z, qw, qx, qy, qz or a 4 x 4 matrix. Of a `Camera` another pose, in its
                convention.
            stride: of this many rows and columns one is taken; radii grow with it.
            options: see `DepthOptions`: the noise, which radii grow by; the largest depth and
                angle; the unit of integers; a robot whose own points are left out.

        Returns:
            The cloud; its `counts` say what became of the pixels.

        Raises:
            TypeError: no real numbers, or an option that there is not.
            ValueError: shapes, intrinsics, a pose that is not rigid, options out of range, or no
                pixel of a surface.

        Example:
            >>> import numpy as np
            >>> from warp_collision import PointCloud
            >>> depth = np.full((120, 160), 1000, np.uint16)  # a wall at 1 m
            >>> camera = (0, 0, 0, 0.5, -0.5, 0.5, -0.5)  # looks along x
            >>> lens = (150.0, 150.0, 79.5, 59.5)
            >>> cloud = PointCloud.from_depth(depth, lens, camera, depth_scale=0.001, stride=4)
            >>> len(cloud), cloud.counts.points
            (1200, 1200)
        """
        stride, how = check_stride(stride), DepthOptions(**options)
        image = DepthImage(depth, camera_of(intrinsics, camera_pose), how)
        seen = image.pixels(stride)
        if not image.counts.points:
            raise ValueError(f"depth must see a surface, got {image.counts}")
        a, b, c = image.noise
        depths = image.depth[seen]
        off = a + depths * (b + depths * c)
        cloud = cls(image.points(*seen), footprint(image, *seen, stride, how.max_angle) + off)
        cloud.counts = image.counts
        return cloud

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        radius: Any = None,
        *,
        drop_invalid: bool = False,
        capacity: int | None = None,
    ) -> PointCloud:
        """The points of a file, in metres.

        Args:
            path: .ply, .pcd, .npy, or .npz with an array `points` or a single array.
            radius: see `PointCloud`; not given for a file of NumPy whose points have radii.
            drop_invalid: see `PointCloud`.
            capacity: see `PointCloud`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: another ending, a damaged file, or as `PointCloud`.

        Example:
            >>> import tempfile
            >>> import numpy as np
            >>> from warp_collision import PointCloud
            >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            ...     np.save(file.name, np.zeros((5, 3)))
            ...     PointCloud.from_file(file.name, radius=0.01)
            PointCloud(5 points, radius=0.01)
        """
        points = read_points(path)
        with errors_at(escaped(str(path))):
            return cls(points, radius, drop_invalid=drop_invalid, capacity=capacity)

    @classmethod
    def from_message(
        cls,
        message: Any,
        radius: Any,
        *,
        pose: PoseLike | None = None,
        drop_invalid: bool = True,
        capacity: int | None = None,
    ) -> PointCloud:
        """The points of a ROS message, as of a lidar or a depth camera.

        Args:
            message: a sensor_msgs/PointCloud2 of ROS 1 or 2, or a dict of its fields, in metres.
                Its x, y and z may have any number type, order of bytes and stride.
            radius: see `PointCloud`.
            pose: of the sensor's frame in the world; None: the points are in the world.
            drop_invalid: see `PointCloud`. Rays without a return are NaN in such messages.
            capacity: see `PointCloud`.

        Raises:
            ValueError: a message without x, y and z, or with less data than it states, a pose that
                is not finite, or as `PointCloud`.

        Example:
            >>> import numpy as np
            >>> from warp_collision import PointCloud
            >>> fields = [{"name": n, "offset": 4 * i, "datatype": 7} for i, n in enumerate("xyz")]
            >>> points = np.array([[1, 2, 3], [4, 5, np.nan]], np.float32)
            >>> message = {"height": 1, "width": 2, "point_step": 12, "fields": fields}
            >>> PointCloud.from_message({**message, "data": points.tobytes()}, radius=0.02).points
            array([[1., 2., 3.]], dtype=float32)
        """
        points = message_points(message)
        if pose is not None:
            frame = check_pose("pose", pose).numpy()
            points = points @ rotation_matrix(frame[3:]).T + frame[:3]
        return cls(points, radius, drop_invalid=drop_invalid, capacity=capacity)

    @property
    def points(self) -> np.ndarray:
        """(n, 3) float32 centers of the balls [m], read-only."""
        return self._balls[:, :3]

    @property
    def radii(self) -> np.ndarray:
        """(n,) float32 [m], read-only."""
        return self._balls[:, 3]

    def __len__(self) -> int:
        return len(self._balls)

    def __repr__(self) -> str:
        low, high = float(self.radii.min()), float(self.radii.max())
        radii = f"radius={low:.3g}" if low == high else f"radii {low:.3g} to {high:.3g} m"
        room = "" if self.capacity is None else f", capacity={self.capacity}"
        return f"PointCloud({len(self)} points, {radii}{room})"

    @property
    def bounds(self) -> np.ndarray:
        """(2, 3) lower and upper corner of the box around the balls [m]."""
        # By columns: NumPy takes ten times as long for the rows.
        balls = self._balls.astype(np.float64, order="F")
        radii = balls[:, 3]
        lower = [(balls[:, axis] - radii).min() for axis in range(3)]
        upper = [(balls[:, axis] + radii).max() for axis in range(3)]
        return np.array([lower, upper])

    @property
    def grid_cells(self) -> int:
        """More than that take longer to fill than the tree to build."""
        return _CELLS_PER_POINT * len(self) if self.capacity is None else 0

    @property
    def n_bytes(self) -> int:
        """Of two buffers that take turns, where there is a capacity."""
        return self._balls.nbytes if self.capacity is None else 2 * 16 * self.capacity

    def tessellate(self) -> Triangles:
        """An octahedron around each ball, of large clouds around those of a thinner one."""
        spacing = 0.1 * float(np.ptp(self.bounds, axis=0).max()) / _DRAWN**0.5
        cloud = self
        while len(cloud) > _DRAWN:
            spacing *= 2.0
            cloud = thin(self, spacing)
        corners = np.concatenate((np.eye(3), -np.eye(3)))
        reach = 3.0**0.5 * cloud.radii[:, None, None].astype(np.float64)
        vertices = cloud.points[:, None].astype(np.float64) + reach * corners
        first = 6 * np.arange(len(cloud))[:, None, None]
        return Triangles(vertices.reshape(-1, 3), (first + _OCTAHEDRON).reshape(-1, 3))

    def arrays(self) -> dict[str, np.ndarray]:
        """Its only argument."""
        return {"points": self._balls}

    def successor(self, name: str, given: Any, at: Any) -> PointCloud:
        """Points (n, 3) have the radius of this cloud."""
        if at is not None:
            return cast("PointCloud", super().successor(name, given, at))
        if isinstance(given, PointCloud):
            return given if self.capacity is None else self.with_balls(given._balls)
        rows = _floats("points", given)
        if rows.shape[1:] != (3,):
            return self.with_balls(rows)
        return self.with_balls(rows, self._common_radius(name, rows.shape))

    def with_balls(self, points: np.ndarray, radius: float | None = None) -> PointCloud:
        """Other points, with the capacity of this cloud, which drops as it does."""
        options: Any = {"capacity": self.capacity, "drop_invalid": self.drop_invalid}
        return PointCloud(points, radius, **options)

    def captured(self, name: str, points: Any, device: torch.device) -> Tensor:
        """(n, 4) balls on a GPU of an update that a graph captures, without waiting for them.

        Their values are not known: points that are not finite have no place, and a radius of -1,
        where they are to be left out. Else, and where there is no other, all of space is hit.
        """
        if self.capacity is None:
            raise ValueError(
                f"{name!r} must have a capacity to be updated in a graph, as of "
                f"PointCloud(..., capacity={len(self)})"
            )
        require_tensor("points", points, "(n, 3) or (n, 4)")
        require_device("points", points, device)
        if points.ndim != 2 or points.shape[1] not in (3, 4) or not len(points):
            raise ValueError(f"points must have shape (n, 3) or (n, 4), got {shape_of(points)}")
        _require_room(len(points), self.capacity)
        balls = points.detach().float()
        if points.shape[1] == 3:
            radius = self._common_radius(name, tuple(points.shape))
            balls = torch.cat((balls, torch.full_like(balls[:, :1], radius)), dim=1)
        is_valid = (balls.abs() < MAX_COORDINATE).all(dim=1) & (balls[:, 3] > 0.0)
        everywhere = torch.zeros_like(balls[:1])
        everywhere[:, 3] = 0.999 * MAX_COORDINATE
        other = everywhere
        if self.drop_invalid:
            other = torch.where(is_valid.any(), -torch.eye(4, device=device)[3:], everywhere)
        return torch.where(is_valid[:, None], balls, other)

    def _common_radius(self, name: str, shape: tuple[int, ...]) -> float:
        """The radius of all balls; points of that shape have none."""
        if not (self.radii == self.radii[0]).all():
            raise ValueError(
                f"points must have radii, shape (n, 4), as those of {name!r} differ, got {shape}"
            )
        return float(self.radii[0])

    def balls_on(self, device: torch.device) -> Tensor:
        """(n, 4) centers and radii on a device."""
        return sent(torch.from_numpy(self._balls.copy()), device)

    def upload(self, device: torch.device) -> Uploaded:
        """Builds the tree."""
        return PartBuffers(self.balls_on(device)[:, None], self.capacity or len(self))


def thin(points: Any, spacing: float) -> Any:
    """A subset of points that covers all of them.

    Points are grouped by cubes in which none is farther than the spacing from another; one of each
    stays.

    Args:
        points: (n, 3) array or tensor [m], or a `PointCloud`.
        spacing: [m], positive.

    Returns:
        Of an array (m, 3) of those that stay: each point left out lies within the spacing of one of
        them. Of a cloud a `PointCloud` whose balls contain all of its own: a radius has grown by as
        much as the points that it stands for need, by at most the spacing.

    Example:
        >>> import numpy as np
        >>> from warp_collision import PointCloud, thin
        >>> line = np.linspace((0, 0, 0), (1, 0, 0), 1001)
        >>> thin(line, 0.02).shape
        (87, 3)
        >>> thin(PointCloud(line, radius=0.005), 0.02)
        PointCloud(87 points, radii 0.011 to 0.016 m)
    """
    cloud = points if isinstance(points, PointCloud) else None
    rows = _floats("points", points) if cloud is None else cloud.points.astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise ValueError(f"points must have shape (n, 3), got {rows.shape}")
    spacing = float(_radii(spacing, 1, "spacing")[0])
    edge = spacing / 3.0**0.5 * (1.0 - 1e-9)
    if len(rows) and not np.abs(rows).max() / edge < 2.0**52:
        raise ValueError(
            f"spacing must be above 1e-15 of the largest coordinate, and points finite, got "
            f"{spacing}"
        )
    cells = np.floor(rows / edge).astype(np.int64)
    _, first, group = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(first)  # as they were given
    if cloud is None:
        return rows[first[order]]
    kept = rows[first][group]
    needed = np.linalg.norm(rows - kept, axis=1) + cloud.radii
    radii = np.zeros(len(first))
    np.maximum.at(radii, group, needed)
    grown = np.nextafter(radii.astype(np.float32), np.float32(np.inf))
    grown = np.where(radii == cloud.radii[first], cloud.radii[first], grown)
    return PointCloud(np.column_stack((rows[first], grown))[order])


def _require_room(count: int, capacity: int) -> None:
    if count > capacity:
        raise ValueError(f"points must be at most the capacity of {capacity}, got {count}")


def _floats(name: str, value: Any) -> np.ndarray:
    """Real numbers as float64, of any shape."""
    value = on_host(value)
    if getattr(value, "dtype", None) == torch.bfloat16:
        value = value.float()
    try:
        array = np.asarray(value)
    except ValueError:
        raise TypeError(f"{name} must be an array of numbers, got rows of unequal length") from None
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be real numbers, got {array.dtype}")
    return array.astype(np.float64)


def _radii(value: Any, count: int, name: str = "radius") -> np.ndarray:
    radii = _floats(name, value)
    if radii.size == 1:
        radii = radii.reshape(1)
    elif radii.shape != (count,):
        raise ValueError(f"{name} must be a number or have shape ({count},), got {radii.shape}")
    bad = ~((radii > 0.0) & (radii < MAX_COORDINATE))
    if bad.any():
        raise ValueError(f"{name} must be positive and below 1e9, got {radii[bad][0]}")
    return np.full(count, radii[0]) if len(radii) == 1 else radii


def _valid(rows: np.ndarray, drop_invalid: bool) -> np.ndarray:
    """Balls (n, 4) float32, finite and in range."""
    if not np.isfinite(rows).all():
        finite = np.isfinite(rows).all(axis=1)
        if not drop_invalid:
            row = int(np.flatnonzero(~finite)[0])
            raise ValueError(
                f"points must be finite, got {int((~finite).sum())} of {len(rows)} that are not, "
                f"the first at {row}: {rows[row, :3].tolist()}; drop_invalid=True leaves them out"
            )
        rows = rows[finite]
    if not len(rows):
        raise ValueError("points must be at least one, got none")
    if rows[:, 3].min() <= 0.0:
        raise ValueError(f"points must have positive radii, got {rows[rows[:, 3] <= 0.0][0, 3]}")
    if not np.abs(rows).max() < MAX_COORDINATE:
        row = int(np.flatnonzero((np.abs(rows) >= MAX_COORDINATE).any(axis=1))[0])
        raise ValueError(f"points must be below 1e9, got {rows[row, :3].tolist()} at {row}")
    return rows.astype(np.float32)

"""Maps of depth images: which voxels are free, which occupied, and which no ray has seen."""

from __future__ import annotations

import math
import os
import time as clock
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
import warp as wp
from torch import Tensor

from warp_collision.devices import CPU, canonical_device, require_memory, sent
from warp_collision.formats import octomap_files
from warp_collision.formats.files import existing_file
from warp_collision.formats.point_files import read_arrays
from warp_collision.kernels.carving import (
    ALL_PARTS,
    BLOCK,
    FREE,
    OCCUPIED,
    UNSEEN,
    VoxelBlock,
    carve,
    clear_spheres,
    mark_hits,
)
from warp_collision.kernels.scans import mark_points
from warp_collision.kernels.sight import find_shown
from warp_collision.kernels.voxel_transform import LARGEST_BAND
from warp_collision.kernels.window_tables import widen_windows
from warp_collision.launching import launch
from warp_collision.launching.edit import Edit
from warp_collision.launching.structs import sent_struct, upload_struct
from warp_collision.messages import any_error_at, escaped
from warp_collision.obstacles.camera import Camera, camera_of
from warp_collision.obstacles.depth_image import DepthImage
from warp_collision.obstacles.depth_options import DepthCounts, DepthOptions
from warp_collision.obstacles.map_views import camera_view, image_view, scan_view, voxels_in
from warp_collision.obstacles.octomap_voxels import aligned, filled
from warp_collision.obstacles.robot_pixels import robot_spheres
from warp_collision.obstacles.scan_image import ScanImage
from warp_collision.obstacles.sensed import length_of
from warp_collision.obstacles.units import warn_of_extent
from warp_collision.obstacles.view_checks import warn_of_view
from warp_collision.obstacles.voxel_grid import MAX_CELLS, Outside, Unknown, VoxelGrid
from warp_collision.obstacles.voxel_tables import squares_of
from warp_collision.poses import PoseLike
from warp_collision.validate import require_number

Evidence = Literal["images", "strict"]
_LEVELS = 7  # of tables of windows: up to 64 pixels wide
# Images that a GPU's map is compared with: reading it waits for the device.
_COMPARED = 16


class OccupancyMap:
    """Voxels of a box, each of them unseen, free or occupied, from depth images.

    A voxel becomes free only where all of it was seen through: where every pixel that it may cover,
    and those within 1.5 pixels of it, see nothing before its farthest point, the noise that was
    stated taken off. Where an edge of the image, a hole of it or anything nearer covers a part of
    it, it stays what it was. The eighths of a voxel may be seen through by different images. A
    voxel with a point in it is occupied, until later images have seen through all of it, or it is
    forgotten.

    An edit is all or nothing: one that runs out of memory or is interrupted leaves the map as it
    was, or as the whole edit makes it.

    Attributes:
        lower: (3,) corner of the box [m].
        voxel_size: edge of a voxel [m].
        shape: nx, ny, nz.
        evidence: "images" or "strict".

    Example:
        >>> import numpy as np
        >>> from warp_collision import MeshWorld, OccupancyMap
        >>> seen = OccupancyMap(((0.2, -0.3, -0.3), (1.4, 0.3, 0.3)), voxel_size=0.02)
        >>> wall = np.full((120, 160), 1.0, np.float32)  # a wall at 1 m
        >>> camera = (0, 0, 0, 0.5, -0.5, 0.5, -0.5)  # looks along x
        >>> print(seen.integrate(wall, (150.0, 150.0, 79.5, 59.5), camera))
        19200 points; no return 0, too far 0, flying 0, of the robot: none
        >>> grid = seen.to_voxel_grid()
        >>> world = MeshWorld()
        >>> world.add("map", grid.seen), world.add("never seen", grid.unseen)
        (0, 1)
    """

    def __init__(
        self,
        bounds: Any,
        voxel_size: float,
        *,
        evidence: Evidence = "images",
        device: Any = "cpu",
    ):
        """A map of which nothing was seen.

        Args:
            bounds: lower and upper corner of the box (2, 3) [m]; the upper one is moved out to
                whole voxels.
            voxel_size: edge of a voxel [m].
            evidence: "images" assumes that small holes of an image hide nothing, see `max_hole` of
                `DepthOptions`, puts together what several images saw of a voxel, and takes hits
                back that later images see through. With "strict" each pixel without a return hides
                all along its ray, one image has to see through a whole voxel, and hits stay.
            device: where the map lives.

        Raises:
            ValueError: bounds or edges that make no map, more than 2e9 voxels, or more than the
                memory of the device holds, at 6 bytes each.
        """
        corners = _corners_of(bounds)
        if evidence not in ("images", "strict"):
            raise ValueError(f"evidence must be 'images' or 'strict', got {evidence!r}")
        self.evidence = evidence
        self.voxel_size = length_of("voxel_size", voxel_size)
        counts = np.ceil((corners[1] - corners[0]) / self.voxel_size - 1e-6)
        if counts.prod() > MAX_CELLS:
            raise ValueError(
                f"the map must have at most {MAX_CELLS:.0e} voxels, got {counts.prod():.3g} of "
                f"{self.voxel_size} m"
            )
        warn_of_extent("bounds", "a map", (corners[1] - corners[0]).tolist())
        self.lower = corners[0]
        self.shape = tuple(int(count) for count in counts)
        self._device = canonical_device(device)
        cells = math.prod(self.shape)
        require_memory("the map", 6 * cells, self._device)
        self._states = torch.zeros(cells, dtype=torch.uint8, device=self._device)
        self._parts = torch.zeros_like(self._states)
        self._stamps = torch.full((cells,), -math.inf, device=self._device)
        self._began: float | None = None
        self._n_images = 0
        grid = VoxelBlock()
        grid.origin, grid.cell = wp.vec3(*self.lower), self.voxel_size
        grid.shape = wp.vec3i(*self.shape)
        self._grid = upload_struct(grid, self._device)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return (
            f"OccupancyMap({shape} voxels of {self.voxel_size:.3g} m, "
            f"{100.0 * self.unknown_fraction:.1f} % unseen)"
        )

    def integrate(
        self,
        depth: Any,
        intrinsics: Any,
        camera_pose: PoseLike | None = None,
        *,
        time: float | None = None,
        **options: Any,
    ) -> DepthCounts:
        """Adds an image.

        Args:
            depth: see `PointCloud.from_depth`.
            intrinsics: see there.
            camera_pose: see there.
            time: when it was taken [s], of any clock, the same for all images; by default now.
            options: see `DepthOptions`: flying pixels and the robot are no hits; what is before the
                robot is free, and so is what pixels see through that see beyond the largest depth.

        Returns:
            What became of the pixels.
        """
        how = DepthOptions(**options)
        if self.evidence == "strict":
            how = replace(how, max_hole=0)
        image = DepthImage(depth, camera_of(intrinsics, camera_pose), how)
        image.counts.points = int(image.is_surface.sum())
        self._n_images += 1
        is_compared = self._device == CPU or self._n_images <= _COMPARED
        upper = self.lower + self.voxel_size * np.array(self.shape)
        states = self._states if is_compared else None
        warn_of_view(image, self.lower, upper, self._grid, states)
        view = image_view(image, self.evidence == "strict")
        surface = self._tensor(np.where(image.is_surface, image.depth, 0.0).astype(np.float32))
        now, edit = self._moment(time), Edit()
        camera = self._carve(edit, view, image.bounds(), now)
        on_cpu = self._device == CPU
        places = torch.empty_like(surface, dtype=torch.int32) if on_cpu else None
        pixels = len(surface), 1 if on_cpu else surface.shape[1]
        self._write(edit, mark_hits, pixels, camera, surface, self._grid, now, places)
        edit.run()
        return image.counts

    def integrate_points(
        self,
        points: Any,
        origin: Any,
        *,
        spacing: tuple[float, float] | None = None,
        time: float | None = None,
        **options: Any,
    ) -> DepthCounts:
        """Adds a scan of a LiDAR, by the rules of images: rays are its pixels.

        The scan is an image of distances by azimuth and elevation around the scanner, whose pixels
        have a ray somewhere in them. So voxels are free where all rays that they may cover, and
        those within 2.5 of them, see nothing before their farthest point. Directions without a
        point say nothing. Where rows of the image bend, straight above and below the scanner,
        nothing is free.

        Args:
            points: (n, 3) in the world [m], or (rings, steps, 3) with NaN where there is no return.
            origin: where the scanner is: three numbers [m], or its pose x, y, z, qw, qx, qy, qz,
                whose z axis its rays turn about.
            spacing: how far neighbouring rays are apart at most, in azimuth and in elevation [rad];
                by default that of the rings and steps. Of points (n, 3) it must be given. If it is
                too small, less is free.
            time: see `integrate`.
            options: see `DepthOptions`: noise is of distances.

        Returns:
            What became of the points.

        Raises:
            ValueError: shapes, or a spacing of more than 0.2 rad.

        Example:
            >>> import numpy as np
            >>> from warp_collision import OccupancyMap
            >>> azimuth, elevation = np.meshgrid(np.arange(-180, 180), np.arange(-16, 17, 2.0))
            >>> a, e = np.radians(azimuth), np.radians(elevation)
            >>> way = np.stack((np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)), axis=-1)
            >>> seen = OccupancyMap(((-1, -1, -0.2), (1, 1, 0.2)), voxel_size=0.05)
            >>> print(seen.integrate_points(2.0 * way, (0.0, 0.0, 0.0)))  # in a ball of 2 m
            6120 points; no return 0, too far 0, flying 0, of the robot: none
            >>> seen.states[2, 20, 4], seen.states[20, 20, 4]  # the latter is the scanner's own
            (np.uint8(1), np.uint8(0))
        """
        how = DepthOptions(**options)
        if self.evidence == "strict":
            how = replace(how, max_hole=0)
        scan = ScanImage(points, origin, spacing, how)
        hits = self._tensor(scan.hits.astype(np.float32))
        now, edit = self._moment(time), Edit()
        self._carve(edit, scan_view(scan, self.evidence == "strict"), scan.bounds(), now)
        if len(hits):
            self._write(edit, mark_points, (len(hits),), hits, self._grid, now)
        edit.run()
        return scan.counts

    def clear(
        self, robot: Any, joints: Any, *, margin: float = 0.0, time: float | None = None
    ) -> int:
        """Takes for free what nobody has seen where a robot is, or was: it is there, so it fits.

        Voxels that its spheres reach into, which are more than its links; what was hit stays
        occupied. So the robot is not in what no camera sees of itself, at a start, at a goal that
        is known to be free, or along a path that it has gone.

        Args:
            robot: a `RobotSpheres`.
            joints: (..., n_joints) joint values at which it is, or was, at rest.
            margin: what its spheres are grown by [m]: more than what is known.
            time: see `integrate`.

        Returns:
            How many voxels became free by that.

        Example:
            >>> import torch
            >>> from warp_collision import OccupancyMap
            >>> from warp_collision.examples import load_panda
            >>> panda, seen = load_panda(), OccupancyMap(((-1, -1, -1), (1, 1, 1)), 0.02)
            >>> seen.clear(panda, torch.zeros(7)) > 1000
            True
        """
        require_number("margin", margin)
        spheres = robot_spheres(robot, joints).to(self._device, torch.float32).reshape(-1, 4)
        spheres = spheres[spheres[:, 3] >= 0.0]
        spheres[:, 3] += float(margin)
        now, before = self._moment(time), self._count_unseen()
        edit = Edit()
        self._write(edit, clear_spheres, (len(spheres),), spheres, self._grid, now)
        edit.run()
        return before - self._count_unseen()

    def forget(self, seconds: float, time: float | None = None) -> None:
        """Makes voxels unseen that nothing has confirmed for a while.

        Args:
            seconds: how long [s].
            time: from when on [s], as in `integrate`; by default now.
        """
        if not seconds >= 0.0:
            raise ValueError(f"seconds must not be negative, got {seconds}")
        old = self._stamps < self._moment(time) - seconds
        states = torch.where(old, int(UNSEEN), self._states)
        parts = torch.where(old, 0, self._parts)
        edit = Edit()
        edit.then(self._states.copy_, states)
        edit.then(self._parts.copy_, parts)
        edit.run()

    @property
    def states(self) -> np.ndarray:
        """(nx, ny, nz) uint8: 0 unseen, 1 free, 2 occupied; a copy."""
        return self._on_host().copy()

    def _on_host(self) -> np.ndarray:
        """The states, where the map lives on a CPU without a copy."""
        return self._states.cpu().numpy().reshape(self.shape[::-1]).T

    @property
    def unknown_fraction(self) -> float:
        """How much of the box no image has seen, from 0 to 1."""
        return self._count_unseen() / self._states.numel()

    def _count_unseen(self) -> int:
        return int((self._states == int(UNSEEN)).sum())

    def to_voxel_grid(self, unknown: Unknown = "occupied", outside: Outside = "free") -> VoxelGrid:
        """The map as an obstacle, see `VoxelGrid`, whose parts `seen` and `unseen` are two."""
        states = self._on_host()
        return VoxelGrid(
            states == int(OCCUPIED),
            self.voxel_size,
            self.lower,
            states == int(UNSEEN),
            unknown,
            outside,
        )

    def to_esdf(
        self, max_distance: float | None = None, unknown: Unknown = "occupied"
    ) -> np.ndarray:
        """Signed distances at the centers of the voxels, for other planners.

        Exactly those of the union of occupied boxes, `outside="free"`: positive outside, in metres.

        Args:
            max_distance: values are cut off there [m]; by default ten voxels, at most sixty.
            unknown: what unseen voxels count as.

        Returns:
            (nx, ny, nz) float32.

        Raises:
            ValueError: a distance of less than a voxel, or of more than sixty.

        Example:
            >>> from warp_collision import OccupancyMap, VoxelGrid
            >>> seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), voxel_size=0.1)
            >>> distances = seen.to_esdf()
            >>> round(float(distances[0, 4, 4]), 3)  # nothing was seen: half a voxel to the outside
            -0.05
            >>> VoxelGrid.from_esdf(distances, seen.voxel_size, error=0.0, origin=seen.lower)
            EsdfGrid(10 x 10 x 10 voxels of 0.1 m, error 0 m)
        """
        edge = self.voxel_size
        far = 10.0 * edge if max_distance is None else float(max_distance)
        if not edge <= far <= LARGEST_BAND * edge * (1.0 + 1e-9):
            raise ValueError(
                f"max_distance must be from one voxel to {LARGEST_BAND}, {edge:.4g} to "
                f"{LARGEST_BAND * edge:.4g} m, got {far}"
            )
        solid = self._states == int(OCCUPIED)
        if unknown == "occupied":
            solid |= self._states == int(UNSEEN)
        band = math.ceil(far / edge - 1e-9)
        squares = squares_of(solid.view(self.shape[::-1]).to(torch.uint8), False, band)
        found = 0.5 * edge * squares.abs().double().sqrt()
        found = found.clamp(max=far).copysign(squares.double()).float()
        return np.ascontiguousarray(found.cpu().numpy().T)

    def save(self, path: str | os.PathLike[str], *, time: float | None = None) -> None:
        """Writes the map to a file; one that exists is overwritten.

        Args:
            path: ends with .npz, or .bt or .ot for an OctoMap. That has neither ages nor parts of
                voxels, and its voxels begin at multiples of their edge: of one that lies across
                several of the map's all must be free for it to be free, and one occupied for it to
                be occupied.
            time: now [s], as in `integrate`: an .npz file has the ages of what was seen.

        Example:
            >>> import tempfile
            >>> from warp_collision import OccupancyMap
            >>> seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), voxel_size=0.1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     seen.save(f"{folder}/map.npz")
            ...     OccupancyMap.load(f"{folder}/map.npz")
            OccupancyMap(10 x 10 x 10 voxels of 0.1 m, 100.0 % unseen)
        """
        file = Path(path)
        if file.suffix.lower() in octomap_files.ENDINGS:
            states, corner = aligned(self.states, self.lower, self.voxel_size)
            return octomap_files.write_octomap(file, states, corner, self.voxel_size)
        if file.suffix.lower() != ".npz":
            raise ValueError(f"path must end with .npz, .bt or .ot, got {escaped(str(file))}")
        ages = self._moment(time) - self._stamps
        parts = {"states": self._states, "parts": self._parts, "ages": ages}
        np.savez_compressed(
            file,
            allow_pickle=False,
            bounds=np.stack((self.lower, self.lower + self.voxel_size * np.array(self.shape))),
            voxel_size=self.voxel_size,
            evidence=self.evidence,
            **{name: part.cpu().numpy() for name, part in parts.items()},
        )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        time: float | None = None,
        bounds: Any = None,
        device: Any = "cpu",
    ) -> OccupancyMap:
        """Reads a map that `save` or OctoMap wrote, to which images can be added.

        Args:
            path: the file, .npz, .bt or .ot.
            time: now [s], as in `integrate`; what was seen is as old as when it was saved, of an
                OctoMap new.
            bounds: lower and upper corner (2, 3) of the part of an OctoMap that is wanted [m]; by
                default all that it knows.
            device: where the map lives.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a damaged file, or one of something else; bounds for an .npz.

        Example:
            >>> import tempfile
            >>> import numpy as np
            >>> from warp_collision import OccupancyMap
            >>> seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), voxel_size=0.1)
            >>> wall = np.full((120, 160), 0.8)
            >>> _ = seen.integrate(wall, (90.0, 90.0, 79.5, 59.5), (0.5, 0.5, -0.2, 1, 0, 0, 0))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     seen.save(f"{folder}/map.bt")
            ...     again = OccupancyMap.load(f"{folder}/map.bt", bounds=((0, 0, 0), (1, 1, 1)))
            >>> bool((again.states == seen.states).all())
            True
        """
        file = existing_file(path)
        if file.suffix.lower() in octomap_files.ENDINGS:
            return cls._from_octomap(file, bounds, time, device)
        if bounds is not None:
            raise ValueError("bounds must be given for .bt and .ot files alone")
        with any_error_at(escaped(str(file))):
            arrays = read_arrays(file)
            wanted = ("bounds", "voxel_size", "evidence", "states", "parts", "ages")
            if missing := [name for name in wanted if name not in arrays]:
                raise ValueError(f"a map must have the arrays {missing}, got {sorted(arrays)}")
            evidence = cast("Evidence", str(arrays["evidence"]))
            seen = cls(
                arrays["bounds"], arrays["voxel_size"].item(), evidence=evidence, device=device
            )
            tables = {"states": seen._states, "parts": seen._parts, "ages": seen._stamps}
            for name, table in tables.items():
                array = arrays[name]
                kind, number = ("f", "float") if name == "ages" else ("u", "unsigned integer")
                if array.shape != tuple(table.shape) or array.dtype.kind != kind:
                    raise ValueError(
                        f"{name} must have one {number} for each of {table.numel()} voxels, got "
                        f"{array.dtype} {array.shape}"
                    )
                table.copy_(torch.from_numpy(array))
            if (seen._states > int(OCCUPIED)).any() or not (seen._stamps >= 0.0).all():
                raise ValueError("states must be 0, 1 or 2, and ages not negative")
            seen._stamps.copy_(seen._moment(time) - seen._stamps)
        return seen

    @classmethod
    def _from_octomap(cls, file: Path, bounds: Any, time: Any, device: Any) -> OccupancyMap:
        leaves = octomap_files.read_octomap(file)
        corners = None if bounds is None else _corners_of(bounds)
        with any_error_at(escaped(str(file))):
            states, lower = filled(leaves, corners)
        upper = lower + leaves.resolution * np.array(states.shape)
        seen = cls((lower, upper), leaves.resolution, device=device)
        seen._states.copy_(torch.from_numpy(states.T.reshape(-1)))
        seen._parts[seen._states == int(FREE)] = int(ALL_PARTS)
        seen._stamps[seen._states != int(UNSEEN)] = seen._moment(time).item()
        return seen

    def fractions(self, spheres: Any) -> dict[str, float]:
        """How much of the space that spheres sweep is free, occupied, unseen, and beyond the box.

        Args:
            spheres: (..., 4) x, y, z, radius [m], as of the waypoints of a path close together;
                disabled ones are left out.

        Returns:
            "free", "occupied", "unseen" and "beyond", parts of 1 of the voxels whose centers are
            in a sphere; all 0 where there are none.

        Raises:
            TypeError: no spheres.
            ValueError: spheres of another shape, or not finite.

        Example:
            >>> import torch
            >>> from warp_collision import OccupancyMap
            >>> seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), voxel_size=0.1)
            >>> seen.fractions(torch.tensor([[0.5, 0.5, 0.5, 0.2]]))["unseen"]
            1.0
        """
        states = self.states
        known, n_beyond = voxels_in("spheres", spheres, self.lower, self.voxel_size, states.shape)
        names = ("free", FREE), ("occupied", OCCUPIED), ("unseen", UNSEEN)
        counts = {name: int((states[known] == int(state)).sum()) for name, state in names}
        counts["beyond"] = n_beyond
        total = max(sum(counts.values()), 1)
        return {name: count / total for name, count in counts.items()}

    def best_views(
        self, cameras: Sequence[Camera], path: Any, *, max_depth: float | None = None
    ) -> list[tuple[int, float]]:
        """Ranks cameras by how much of what a path needs, and nobody has seen, each would show.

        A voxel counts as shown where its center is in the image and no occupied voxel is before it.
        What is before it and was never seen may hide it, and so may the robot: the next image
        shows.

        Args:
            cameras: with a `size`; of one that can move, `camera.at(pose)` for each pose.
            path: (..., 4) spheres x, y, z, radius [m] as in `fractions`: those of a robot along the
                path that is wanted, with waypoints close together.
            max_depth: how far cameras see [m].

        Returns:
            Index of each camera, and which part, from 0 to 1, of the unseen voxels of the path it
            would show; best first, all 0 where none is unseen.

        Raises:
            TypeError: what is no camera, or no spheres.
            ValueError: no cameras, or one without a size; spheres of another shape, or not finite.

        Example:
            >>> import torch
            >>> from warp_collision import Camera, OccupancyMap
            >>> seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), voxel_size=0.05)
            >>> path = torch.tensor([[0.5, 0.5, 0.5, 0.1], [0.5, 0.6, 0.5, 0.1]])
            >>> lens = (150.0, 150.0, 79.5, 59.5)
            >>> above = Camera(lens, (0.5, 0.5, 2.0, 0, 1, 0, 0), size=(120, 160))
            >>> beside = above.at((3.0, 0.5, 2.0, 0, 1, 0, 0))
            >>> seen.best_views([beside, above], path)
            [(1, 1.0), (0, 0.0)]
        """
        if isinstance(cameras, Camera):
            raise TypeError("cameras must be a sequence of Cameras, got one Camera")
        views = [camera_view(camera) for camera in cameras]
        if not views:
            raise ValueError("cameras must be at least one, got none")
        far = math.inf
        if max_depth is not None:
            require_number("max_depth", max_depth, positive=True)
            far = float(max_depth)
        states = self.states
        known, _ = voxels_in("path", path, self.lower, self.voxel_size, states.shape)
        unseen = np.flatnonzero((known & (states == int(UNSEEN))).T).astype(np.int32)
        shown = torch.zeros((len(views), len(unseen)), dtype=torch.bool, device=self._device)
        table = torch.cat([upload_struct(view, self._device) for view in views])
        launch.launch(
            find_shown,
            shown.shape,
            table,
            torch.tensor([far], device=self._device),
            self._grid,
            self._states,
            self._tensor(unseen),
            shown,
            device=self._device,
        )
        parts = (shown.sum(dim=1) / max(len(unseen), 1)).tolist()
        return sorted(enumerate(parts), key=lambda row: -row[1])

    def _moment(self, time: float | None) -> torch.Tensor:
        """A time (1,) after the first one, so that float32 has its milliseconds."""
        now = clock.monotonic() if time is None else float(time)
        if not math.isfinite(now):
            raise ValueError(f"time must be finite, got {now}")
        if self._began is None:
            self._began = now
        return sent(torch.tensor([now - self._began], dtype=torch.float32), self._device)

    def _write(
        self, edit: Edit, kernel: Any, dim: tuple[int, ...], *operands: Tensor | None
    ) -> None:
        """Stages a kernel that writes the voxels; run twice it writes the same again."""
        tables = self._states, self._parts, self._stamps
        edit.then(partial(launch.launch, kernel, dim, *operands, *tables, device=self._device))

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return sent(torch.from_numpy(np.ascontiguousarray(array)), self._device)

    def _carve(self, edit: Edit, view: Any, bounds: Tensor, now: Tensor) -> Tensor:
        """Stages that what a view sees through is free; the view on the device."""
        bounds = sent(bounds, self._device)
        view.levels = max(min(min(bounds.shape).bit_length(), _LEVELS), 1)
        camera = sent_struct(view, self._device)
        windows = _windows(bounds, view.levels)
        blocks = tuple(-(-count // int(BLOCK)) for count in reversed(self.shape))
        self._write(
            edit, carve, (blocks[0], blocks[1], blocks[2]), camera, self._grid, windows, now
        )
        return camera


def _corners_of(bounds: Any) -> np.ndarray:
    """Lower and upper corner (2, 3) of a box [m]."""
    try:
        corners = np.array(bounds, np.float64)
    except (TypeError, ValueError):
        corners = np.empty(0)
    if corners.shape != (2, 3) or not np.isfinite(corners).all():
        raise ValueError(f"bounds must be two corners of three finite numbers, got {bounds!r}")
    if not (corners[0] < corners[1]).all():
        raise ValueError(f"bounds must be a lower and an upper corner, got {corners.tolist()}")
    return corners


def _windows(bounds: torch.Tensor, levels: int) -> torch.Tensor:
    """Less the nearest, and the farthest (levels x height x width, 2) of windows of an image.

    Those of level k are 2^k pixels wide and high from a pixel on, and end with the image.
    """
    windows = torch.empty((levels, *bounds.shape, 2), device=bounds.device)
    torch.stack((-bounds, bounds), dim=-1, out=windows[0])
    sizes = torch.tensor([(k, *bounds.shape) for k in range(levels)], dtype=torch.int32)
    for size in sent(sizes, bounds.device)[1:]:
        arguments = size, windows.view(-1, 2)
        launch.launch(widen_windows, (len(bounds),), *arguments, device=bounds.device)
    return windows.view(-1, 2)

"""`PathLabeler`: a function of a batch of paths in many worlds to a batch of labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from warp_collision import validate
from warp_collision.labeling.columns import arrow_table, is_arrow, rows_of
from warp_collision.labeling.path_row import (
    PathRow,
    checked_curve,
    checked_path,
    checked_pose,
)
from warp_collision.labeling.robot_paths import JointPaths, Labels, PathChecks
from warp_collision.labeling.sphere_paths import label_sphere_paths
from warp_collision.labeling.world_cache import Pack, WorldCache, WorldKey
from warp_collision.messages import known_names, one_line, short_repr
from warp_collision.robot import JointCurve, RobotSpheres

# Every label, with what a row has that could not be labelled.
_MISSING: dict[str, Any] = {
    "free": False,
    "clearance": np.float32(np.nan),
    "self_clearance": np.float32(np.nan),
    "cost": np.float32(np.nan),
    "first_contact": np.float32(np.nan),
    "depth": np.float32(np.nan),
    "position": np.float32(np.nan),
    "link": None,
    "obstacle": None,
    "with_itself": False,
    "waypoint_clearance": None,
}
OUTPUTS = tuple(name for name in _MISSING if name != "waypoint_clearance")
ALL_OUTPUTS = tuple(_MISSING)
_IDENTITY = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])


class PathLabeler:
    """Labels paths by what is proven of them, a batch at a time, each row in a world of its own.

    A batch is a dict of NumPy arrays or an Arrow table, and so is the result, with the columns

    - `id`, and those of `keep`, as they came;
    - `free`: bool, whether the whole motion is proven free; False where a row has an error;
    - `clearance`: float32 [m], certified lower bound of the clearance to the obstacles on the whole
      motion, +inf without obstacles;
    - `self_clearance`: float32 [m], the same of the robot with itself;
    - `cost`: float32 [m], `joint_path_cost` summed over the waypoints;
    - `first_contact`: float32, up to which position the path is proven free, in waypoints (2.5 is
      in the middle between waypoints 2 and 3); NaN for a path that is free;
    - `depth`: float32 [m], how deep the contact is that the next columns name, 0 for none;
    - `position`: float32, in waypoints, where the robot is nearest to an obstacle;
    - `link`, `obstacle`: the two that are nearest there; two links, with `with_itself`, where the
      robot touches itself and deeper than anything else, or nothing else keeps it from being free;
    - `waypoint_clearance`: on request, a list of the clearances to obstacles at the waypoints [m];
    - `error`: what is wrong with a row, whose labels are missing then, or None.

    A row has the same bits whatever it is batched with, and on any number of threads and processes.
    Worlds are loaded when a row asks for them, packed as envs of one `MeshWorld`, and kept within
    `cache_bytes`. The object can be pickled; in another process it loads them again.

    Args:
        robot: a `RobotSpheres`, the path of a URDF file, or a mapping of names to these, of which
            the rows choose; None where paths are spheres.
        worlds: name to world file or mapping (see `warp_collision.io.load_world_mapping`), or to a
            list of these, of which `env` chooses; or one of them, or a `MeshWorld`, for all rows.
            Rows may also have the path of a file or a mapping, as it is or as JSON.
        columns: which columns hold what, of `id`, `path`, `world`, `base_pose`, `env` and `robot`;
            by default these names, and `joints`, `spheres` or `trajectory` for paths.
        outputs: which labels; without clearances, such as `("free",)`, it takes a small part of the
            time.
        keep: columns of the batch that the result has, too.
        tolerance: [m], a clearance below it may count as a collision; width of the clearance's
            interval.
        min_clearance: [m], paths that may be nearer to an obstacle are not free.
        activation_distance: [m], of the cost.
        self_collision: whether the robot is checked with itself, or its pairs to check.
        ignore: pairs of a link and an obstacle that may touch, where a world has it.
        shapes: of a robot, see `configuration_in_collision`; with "exact" `free` and all but the
            costs and `waypoint_clearance` are by convex pieces where spheres touch.
        swept: of spheres, whether they are checked between waypoints, on straight lines.
        base_pose: (7,) of the robot's root link, for rows that have none.
        folder: what relative paths of world files start from.
        cache_bytes: bound of the worlds that are kept, by an estimate from above.
        since: seconds since the epoch: a world file that was written later is an error in its rows,
            in all processes alike. Without it a file must stay as it was when it was first read.
        strict: see `warp_collision.io.load_world_file`.
        allow_world_outside: whether rows may name world files outside of `folder`.
        package_dirs: where `package://` names are looked for.
        device: by default torch's.
        threads: of the CPU, for torch in this process; as many as it has by default.

    Raises:
        TypeError, ValueError: an option of another type or range, or an unknown label. What is
            wrong with a row is in its `error` instead.

    Example:
        >>> import numpy as np
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.labeling import PathLabeler
        >>> plate = {"cuboid": {"plate": {"dims": [0.5, 0.001, 0.5],
        ...                               "pose": [0.5, 0, 0.5, 1, 0, 0, 0]}}}
        >>> label = PathLabeler(load_panda(), {"lab": plate})
        >>> ends = [[-0.9, 0, 0, -1.6, 0, 1.6, 0.8], [0.9, 0, 0, -1.6, 0, 1.6, 0.8]]
        >>> paths = np.array([[ends[0], ends[0]], ends, [ends[0], [np.nan] * 7]])
        >>> found = label({"path": paths, "world": np.array(["lab", "lab", "lab"])})
        >>> found["free"].tolist(), found["obstacle"][1], found["error"][2]
        ([True, False, False], 'plate', 'path must be finite, got nan at waypoint 1')
    """

    def __init__(
        self,
        robot: Any = None,
        worlds: Any = None,
        *,
        columns: Mapping[str, str] | None = None,
        outputs: Sequence[str] = OUTPUTS,
        keep: Sequence[str] = (),
        tolerance: float = 1e-3,
        min_clearance: float = 0.0,
        activation_distance: float = 0.02,
        self_collision: Any = True,
        ignore: Sequence[tuple[str, str]] = (),
        shapes: Literal["spheres", "exact"] = "spheres",
        swept: bool = True,
        base_pose: Any = None,
        folder: str | os.PathLike[str] = ".",
        cache_bytes: int = 1 << 28,
        since: float | None = None,
        strict: bool = False,
        allow_world_outside: bool = False,
        package_dirs: Sequence[str | os.PathLike[str]] = (),
        device: Any = None,
        threads: int | None = None,
    ):
        unknown = [name for name in outputs if name not in ALL_OUTPUTS]
        if unknown or isinstance(outputs, str):
            raise ValueError(f"outputs must be of {', '.join(ALL_OUTPUTS)}, got {unknown[0]!r}")
        validate.require_number("tolerance", tolerance, positive=True)
        validate.require_number("min_clearance", min_clearance)
        validate.require_number("activation_distance", activation_distance)
        validate.require_count("cache_bytes", cache_bytes)
        if threads is not None:
            validate.require_count("threads", threads)
        self.outputs = tuple(name for name in ALL_OUTPUTS if name in outputs)
        self._columns, self._keep = dict(columns or {}), tuple(keep)
        self._min_clearance = min_clearance
        self._robots: Mapping[str | None, Any] = (
            robot if isinstance(robot, Mapping) else {None: robot}
        )
        pairs = tuple((link, other) for link, other in ignore)
        self._checks = PathChecks(
            tolerance, activation_distance, swept, self_collision, pairs, shapes
        )
        self._base = None if base_pose is None else checked_pose(base_pose)
        self._worlds = worlds
        self._cache_options: dict[str, Any] = {
            "folder": os.path.abspath(folder),
            "max_bytes": cache_bytes,
            "since": since,
            "device": device,
            "strict": strict,
            "allow_outside": allow_world_outside,
            "package_dirs": package_dirs,
        }
        self._threads = threads
        self._cache: WorldCache | None = None
        if robot is None and shapes != "spheres":
            got = short_repr(shapes)
            raise ValueError(f"shapes must be 'spheres' for paths of spheres, got {got}")
        for one in self._robots.values():
            if isinstance(one, RobotSpheres):
                one.layout.is_exact(shapes)

    def __getstate__(self) -> dict[str, Any]:
        """All but the worlds that were loaded, which own device memory."""
        return {**self.__dict__, "_cache": None}

    def __call__(self, batch: Any) -> Any:
        """Labels a batch: a dict of NumPy arrays, or an Arrow table or record batch."""
        rows = rows_of(batch, self._columns)
        labels: dict[str, Any] = {}
        arrow = is_arrow(batch)
        names = batch.column_names if arrow else [*batch]
        id_name = self._columns.get("id", "id")
        if id_name in names:
            labels["id"] = batch[id_name]
        labels |= {name: batch[name] for name in self._keep}
        labels |= self.label(rows)
        return arrow_table(labels) if arrow else labels

    def label(self, rows: Sequence[PathRow]) -> dict[str, Any]:
        """Labels of rows, arrays (n_rows,) by name, and `error`."""
        return self.label_with_files(rows)[0]

    def label_with_files(self, rows: Sequence[PathRow]) -> tuple[dict[str, Any], dict[str, str]]:
        """As `label`, and the files that the worlds of labelled rows have, with digests."""
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        if self._cache is None:
            self._cache = WorldCache(self._worlds, **self._cache_options)
        errors: list[str | None] = [row.error for row in rows]
        columns = {
            name: np.full(
                len(rows),
                missing,
                dtype=object if missing is None else np.asarray(missing).dtype,
            )
            for name, missing in _MISSING.items()
            if name in self.outputs
        }
        ready: dict[WorldKey, list[tuple[int, PathRow]]] = {}
        for index, row in enumerate(rows):
            if errors[index] is None:
                try:
                    key, checked = self._checked(row)
                except (OSError, ValueError, ImportError, TypeError) as error:
                    errors[index] = one_line(error)
                else:
                    ready.setdefault(key, []).append((index, checked))
        files: dict[str, str] = {}
        for pack, bad_worlds in self._cache.pack(ready):
            files |= self._cache.digests(pack.envs)
            for key, error in bad_worlds.items():
                for index, _ in ready[key]:
                    errors[index] = error
            packed = sorted((item for key in pack.envs for item in ready[key]), key=lambda i: i[0])
            envs = {index: env for key, env in pack.envs.items() for index, _ in ready[key]}
            kinds = [(row.robot, _degree(rows[index])) for index, row in packed]
            for kind in dict.fromkeys(kinds):
                chosen = [one for one, own in zip(packed, kinds, strict=True) if own == kind]
                indices = [index for index, _ in chosen]
                found = self._label(
                    [row for _, row in chosen], [envs[index] for index in indices], *kind, pack
                )
                for label, values in columns.items():
                    values[indices] = found[label]
        return {**columns, "error": np.array(errors, dtype=object)}, files

    def _robot(self, name: str | None) -> RobotSpheres | None:
        """A robot by name, read from its file the first time."""
        if name not in self._robots:
            if name is not None and None in self._robots:
                raise ValueError(f"robot must not be given, as there is only one; got {name!r}")
            names = known_names(name, [*map(str, self._robots)])
            raise ValueError(f"robot must be one of {names}, got {name!r}")
        robot = self._robots[name]
        if robot is not None and not isinstance(robot, RobotSpheres):
            robot = RobotSpheres(robot)
            robot.layout.is_exact(self._checks.shapes)  # raises for others
            self._robots = {**self._robots, name: robot}
        return robot

    def _checked(self, row: PathRow) -> tuple[WorldKey, PathRow]:
        """The world of a row, and the row with valid arrays."""
        assert self._cache is not None
        robot = self._robot(row.robot)
        checked = checked_curve if isinstance(row.path, JointCurve) else checked_path
        path = checked(row.path, None if robot is None else robot.n_joints)
        base = self._base if row.base_pose is None else checked_pose(row.base_pose)
        if path is not row.path or base is not row.base_pose:  # copies of most rows take time
            row = row._replace(path=path, base_pose=base)
        return self._cache.key(row.world, row.env), row

    def _label(
        self,
        rows: Sequence[PathRow],
        envs: Sequence[int],
        name: str | None,
        degree: int,
        pack: Pack,
    ) -> Labels:
        """Labels of valid rows of one robot, whose segments have one degree."""
        outputs = (*self.outputs, "clearance") if self._min_clearance > 0.0 else self.outputs
        paths, robot = [row.path for row in rows], self._robot(name)
        if robot is None:
            labels = label_sphere_paths(paths, pack.world, self._checks, outputs, envs)
        else:
            bases = None
            if any(row.base_pose is not None for row in rows):
                bases = [_IDENTITY if row.base_pose is None else row.base_pose for row in rows]
            joint_paths = JointPaths(paths, robot, pack.world, self._checks, envs, bases, degree)
            labels = joint_paths.labels(outputs)
        if self._min_clearance > 0.0:
            labels["free"] &= labels["clearance"] >= self._min_clearance
        return labels


def _degree(row: PathRow) -> int:
    """Of the segments of a path."""
    return row.path.degree if isinstance(row.path, JointCurve) else 1

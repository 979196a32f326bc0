"""Checks of the paths of files: one by its waypoints, many by a table, worst first.

A table takes memory that does not grow with the number of free paths.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warp_collision import MeshWorld
from warp_collision.cli import common
from warp_collision.cli.check_waypoints import (
    always_in_contact,
    beyond_turn,
    check_robot,
    check_spheres,
    contacts_for_json,
    uncovered,
    world_extents,
    world_line,
)
from warp_collision.cli.options import Options, RobotOptions, WorldOptions, list_paths
from warp_collision.cli.seen import load_row
from warp_collision.cli.terminal import (
    Progress,
    align,
    for_json,
    print_json,
    print_stderr,
    print_text,
)
from warp_collision.extras import require_extra
from warp_collision.io import load_spheres
from warp_collision.labeling import PathFiles, PathLabeler, PathRow
from warp_collision.labeling.columns import arrow_table
from warp_collision.labeling.parts import batches
from warp_collision.labeling.path_row import checked_waypoints
from warp_collision.messages import escaped
from warp_collision.robot import CollisionReport
from warp_collision.robot.checks.robot_scene import RobotScene

_BATCH = 256  # paths that are checked at a time
_MOST_FREE = 20  # free paths in the text
_LABELS = (
    "free",
    "clearance",
    "self_clearance",
    "first_contact",
    "depth",
    "position",
    "link",
    "obstacle",
    "with_itself",
)
_HEAD = ("path", "", "clearance [m]", "depth [m]", "link", "obstacle", "at", "first contact")


class PathTable:
    """The labels of paths, as they come in.

    Attributes:
        constant: what touches at all joint values in the world of the command, if that is known;
            the labels of paths there are without it.
        n_paths: how many were looked at.
        n_free: how many are proven free.
        n_bad: how many could not be checked.
        n_constant: how many were checked without what touches at all joint values.
        n_beyond: how many have joint values beyond the limits, and beyond a turn: in degrees?
        rows: what is kept of them.
    """

    def __init__(self, constant: CollisionReport | None) -> None:
        self.constant = constant
        self.n_paths = self.n_free = self.n_bad = self.n_constant = 0
        self.n_beyond = np.zeros(2, dtype=int)
        self.rows: list[dict[str, Any]] = []

    def add(self, rows: Sequence[PathRow], labels: dict[str, Any], *, keeps_free: bool) -> None:
        """Adds rows and their labels."""
        columns = {name: values.tolist() for name, values in labels.items()}
        for index, row in enumerate(rows):
            found = {name: values[index] for name, values in columns.items()}
            self.n_paths += 1
            self.n_free += found["free"]
            self.n_bad += found["error"] is not None
            if self.constant is not None and found["error"] is None:
                self.n_constant += not _has_own_place(row)
            if keeps_free or not found["free"]:
                self.rows.append({"path": str(row.id), **found})

    @property
    def n_colliding(self) -> int:
        """How many were checked and are not proven free."""
        return self.n_paths - self.n_free - self.n_bad

    def sort(self) -> None:
        """Puts the worst first: what is not free, by clearance, what is free, what is bad."""
        self.rows.sort(key=_order)

    @property
    def worst(self) -> dict[str, Any] | None:
        """The first row of a path that was checked, once sorted."""
        return next((row for row in self.rows if row["error"] is None), None)

    @property
    def collides(self) -> bool:
        """Whether a path is not proven free, or something touches at all joint values."""
        return self.n_colliding > 0 or self.n_constant > 0

    @property
    def status(self) -> int:
        """The exit status."""
        return (
            common.BAD_INPUT if self.n_bad else common.COLLISION if self.collides else common.FREE
        )


def _order(row: dict[str, Any]) -> tuple[int, float]:
    if row["error"] is not None:
        return 2, 0.0
    if "clearance" not in row:
        return int(row["free"]), 0.0
    clearance = -row["depth"] if row["depth"] > 0.0 else row["clearance"]
    return int(row["free"]), -math.inf if math.isnan(clearance) else clearance


def _beyond(row: PathRow, scene: RobotScene | None) -> tuple[bool, bool]:
    """Whether joint values of a path are beyond their limits, and beyond a turn."""
    if scene is None or row.error is not None:
        return False, False
    try:
        joints = torch.from_numpy(checked_waypoints(row.path, scene.robot.n_joints))
    except ValueError:  # which the labeler tells
        return False, False
    low, high = scene.robot.joint_limits.unbind(-1)
    is_beyond = bool(((joints < low) | (joints > high)).any())
    return is_beyond, bool(beyond_turn(joints, scene.robot).counts)


@dataclass(frozen=True)
class CheckOptions(Options):
    """The options of `check`.

    Attributes:
        world: the obstacles.
        robot: the robot whose joint values the paths are; None: they are spheres.
        paths: files and folders.
        column: columns of tables, by role.
        activation_distance: of costs [m]; None: the default, where waypoints are reported.
        swept: whether spheres are checked between waypoints.
        tolerance: of motions of the robot [m]; None: the default.
        respect_limits: whether joint values beyond their limits count as a collision.
        min_clearance: that a free path has [m].
        first: whether the first path that is not free ends the check.
        detail: whether waypoints are reported of several paths.
        row: the row of a data set whose waypoints are reported, by its id.
        csv: whether the table is printed as CSV.
        json: whether the report is printed as JSON.
        quiet: whether only errors are printed.
        output: where the table is written.
    """

    world: WorldOptions
    robot: RobotOptions | None
    paths: Sequence[Path]
    column: Sequence[tuple[str, str]]
    activation_distance: float | None
    swept: bool
    tolerance: float | None
    respect_limits: bool
    min_clearance: float
    first: bool
    detail: bool
    row: str | None
    csv: bool
    json: bool
    quiet: bool
    output: Path | None

    @property
    def wants_table(self) -> bool:
        """Whether an option asks for a table of paths, or paths name their worlds."""
        return self.has_table_options or self.world.is_folder

    @property
    def has_table_options(self) -> bool:
        """Whether an option asks for a table of paths."""
        return any((self.csv, self.output, self.quiet, self.min_clearance, self.first))


def check(options: CheckOptions, device: torch.device) -> int:
    """Checks paths, reports, and returns the exit status."""
    files = list_paths(options.paths, options.column, options.robot)
    if options.row is not None:
        if options.detail or options.has_table_options:
            raise ValueError("--row must be given without options of many paths")
    elif options.detail:
        if len(files.files) > 1 or options.wants_table:
            raise ValueError(
                "--detail must be given with one file and one world, and without options of many "
                "paths"
            )
    elif not _is_single(options, files):
        return _check_many(options, files, device)
    return _check_waypoints(options, files, device)


def _is_single(options: CheckOptions, files: PathFiles) -> bool:
    """Whether there is one path, and nothing that asks for a table of paths."""
    if options.wants_table or len(files.files) > 1 or files.files[0][1] != "array":
        return False
    if options.activation_distance is not None:  # costs are those of waypoints
        return True
    # A file that cannot be read has its error from the reader of a single one.
    return files.count() in (None, 1)


def _check_waypoints(options: CheckOptions, files: PathFiles, device: torch.device) -> int:
    """Checks a single file, and reports on its waypoints."""
    path, scene, refused = options.paths[0], None, False
    head = {"world": str(options.world.world)}
    if options.robot is None:
        head["spheres"] = str(path)
        world = options.world.load(device)
        eta = 0.02 if options.activation_distance is None else options.activation_distance
        spheres = _load_spheres(path).to(device)
        result = check_spheres(spheres, world, activation_distance=eta, swept=options.swept)
    else:
        if options.activation_distance is not None:
            raise ValueError("--activation-distance must not be given with --robot: nothing costs")
        head |= {"joints": str(path), "robot": str(options.robot.robot)}
        if options.row is None:
            joints = options.robot.load_joints(path)
            scene = options.robot.load_scene(device, options.world)
        else:
            head["row"] = options.row
            scene, joints = load_row(files, options.row, options.world, options.robot, device)
        world = scene.world
        result = check_robot(scene, joints, _tolerance(options.tolerance))
        refused = options.respect_limits and result.is_beyond_limits
    if options.json:
        head |= {"device": str(device), "world_extents": world_extents(world), **result.summary()}
        constant = _constant(scene, world)
        table, labels = PathTable(constant), _Labels(options, scene, world, constant, device)
        rows = files.rows() if options.row is None else [files.find(options.row)]
        for batch in batches(rows, _BATCH):
            table.add(batch, labels.of(batch), keeps_free=True)
        table.sort()
        print_json({**head, "paths": table.rows})
    else:
        print_text(result.text(world_line(options.world.world.name, world)))
    return common.COLLISION if result.collides or refused else common.FREE


def _load_spheres(path: Path) -> Tensor:
    """Spheres of a file; the error for a file of joint values says how to check these."""
    try:
        return load_spheres(path)
    except ValueError as error:
        if " shape " in str(error) or "'joints'" in str(error) or path.suffix == ".csv":
            raise ValueError(f"{error}; joint values of a robot need --robot URDF") from error
        raise


def _tolerance(given: float | None) -> float:
    return 0.001 if given is None else given


def _check_many(options: CheckOptions, files: PathFiles, device: torch.device) -> int:
    """Checks all paths of files, reports, and returns the exit status."""
    if options.activation_distance is not None:
        raise ValueError("--activation-distance must be given with one path, or --detail")
    if options.output is not None:
        _check_output(options.output)
    scene, world = None, None
    if options.robot is not None:
        scene = options.robot.load_scene(device, options.world)
        world = None if options.world.is_folder else scene.world
    elif not options.world.is_folder:
        world = options.world.load(device)
    # Yes or no takes a small part of the time; what is found first is labelled in full.
    quick = options.quiet or options.first
    constant = _constant(scene, world)
    place = scene, world, constant, device
    labels = _Labels(options, *place, ("free",) if quick else _LABELS)
    table = PathTable(constant)
    with Progress(files.count(), "paths", shown=not options.quiet) as progress:
        for batch in batches(files.rows(), _BATCH):
            found = labels.of(batch)
            beyond = np.array([_beyond(row, scene) for row in batch])
            table.n_beyond += beyond.sum(axis=0)
            if options.respect_limits:
                found["free"] &= ~beyond[:, 0]
            index = _first_hit(found) if options.first else None
            if index is None:
                table.add(batch, found, keeps_free=not quick)
                progress.show(table.n_paths, f"{table.n_colliding} not free")
                continue
            table.add(batch[:index], {k: v[:index] for k, v in found.items()}, keeps_free=False)
            last = batch[index : index + 1]
            found = _Labels(options, *place).of(last)
            table.add(last, {**found, "free": np.zeros(1, dtype=bool)}, keeps_free=False)
            break
    table.sort()
    if options.output is not None:
        _write(options.output, table)
    for row in table.rows:
        if row["error"] is not None:
            print_stderr(f"error: {escaped(row['path'])}: {row['error']}")
    if not options.quiet:
        _report(options, scene, world, table)
    return table.status


def _check_output(output: Path) -> None:
    common.OutputFiles(output=output)
    ending = output.suffix.lower()
    if ending not in (".parquet", ".csv"):
        raise ValueError(f"--output must end in .parquet or .csv, got {str(output)!r}")
    if ending == ".parquet":
        require_extra("pyarrow", "a .parquet file")


def _constant(scene: RobotScene | None, world: MeshWorld | None) -> CollisionReport | None:
    """What touches at all joint values in the world of the command."""
    if scene is None or world is None:
        return None
    found = scene.constant_contacts()
    return found if found.link else None


class _Labels:
    """Labels of paths, those in the world of the command without what touches at all joint values.

    A path with a world, an env or a base pose of its own has all that touches in its labels.

    Args:
        options: of the command.
        scene: the robot among the obstacles, if there is one.
        world: of the command; None where each path names its own.
        constant: what touches at all joint values in it.
        device: where paths are labelled.
        outputs: which labels.
    """

    def __init__(
        self,
        options: CheckOptions,
        scene: RobotScene | None,
        world: MeshWorld | None,
        constant: CollisionReport | None,
        device: torch.device,
        outputs: Sequence[str] = _LABELS,
    ):
        chosen: dict[str, Any] = {
            "columns": dict(options.column),
            "min_clearance": options.min_clearance,
            "tolerance": options.tolerance,
            "device": device,
            "outputs": outputs,
            "swept": options.swept,
            "allow_world_outside": True,  # paths that are checked are one's own
        }
        self._of_own = self._of_common = labeler_in(options.world, scene, world, **chosen)
        if scene is not None and constant is not None:
            others = scene.without_contacts_of(constant)
            self._of_common = labeler_in(options.world, others, world, **chosen)

    def of(self, rows: Sequence[PathRow]) -> dict[str, Any]:
        """Labels of rows, arrays (n_rows,) by name."""
        is_own = np.array([_has_own_place(row) for row in rows], dtype=bool)
        found: dict[str, Any] = {}
        for labeler, chosen in ((self._of_common, ~is_own), (self._of_own, is_own)):
            if chosen.any():
                labels = labeler.label([rows[i] for i in np.flatnonzero(chosen).tolist()])
                for name, values in labels.items():
                    found.setdefault(name, np.empty(len(rows), values.dtype))[chosen] = values
        return found


def _has_own_place(row: PathRow) -> bool:
    """Whether a path says where it is."""
    return row.world is not None or row.base_pose is not None or bool(row.env)


def labeler_in(
    place: WorldOptions,
    scene: RobotScene | None,
    world: MeshWorld | str | None,
    *,
    tolerance: float | None,
    **more: Any,
) -> PathLabeler:
    """A `PathLabeler` by the options of a command.

    Args:
        place: how worlds are read, and where.
        scene: the robot among the obstacles, if there is one.
        world: what all rows without one of their own are in.
        tolerance: of motions of the robot [m]; None: the default.
        **more: other options of the labeler.
    """
    if scene is not None:
        base_pose = scene.base_pose
        more |= {
            "tolerance": _tolerance(tolerance),
            "self_collision": scene.self_collision,
            "ignore": scene.ignore,
            "shapes": scene.shapes,
            "base_pose": None if base_pose is None else torch.as_tensor(base_pose).cpu().numpy(),
        }
    return PathLabeler(
        None if scene is None else scene.robot,
        world,
        folder=place.folder,
        strict=place.strict,
        package_dirs=place.package_dir,
        **more,
    )


def _first_hit(found: dict[str, Any]) -> int | None:
    """The first path that was checked and is not free."""
    is_valid = np.array([error is None for error in found["error"]], dtype=bool)
    hits = np.flatnonzero(is_valid & ~found["free"])
    return int(hits[0]) if len(hits) else None


def _write(path: Path, table: PathTable) -> None:
    """Writes the table, by the ending of a file."""
    if path.suffix.lower() == ".csv":
        path.write_text(_as_csv(table), encoding="utf-8")
        return
    names = table.rows[0] if table.rows else ("path",)
    columns = {name: [row.get(name) for row in table.rows] for name in names}
    import pyarrow.parquet as pq

    pq.write_table(arrow_table(columns), path)


def _as_csv(table: PathTable) -> str:
    text = io.StringIO()
    names = ["path", *_LABELS, "error"]
    rows = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    rows.writeheader()
    rows.writerows(table.rows)
    return text.getvalue()


def _report(
    options: CheckOptions,
    scene: RobotScene | None,
    world: MeshWorld | None,
    table: PathTable,
) -> None:
    """Prints the table, as CSV, JSON or text."""
    constant = table.constant if table.n_constant else None
    always = [] if constant is None else constant.lines_of_constant()
    if options.csv:
        for line in always:
            print_stderr(line)
        print_text(_as_csv(table), end="")
        return
    left_out = None if scene is None else uncovered(scene.robot)
    if options.json:
        head: dict[str, Any] = {"world": str(options.world.world)}
        if options.robot is not None:
            head["robot"] = str(options.robot.robot)
        counts = {
            "collision": table.collides,
            "n_paths": table.n_paths,
            "n_not_free": table.n_colliding,
            "n_bad": table.n_bad,
            "n_beyond_limits": int(table.n_beyond[0]),
            "worst": table.worst,
        }
        told = {} if left_out is None else left_out.summary()
        if scene is not None:
            told["at_all_values"] = [] if constant is None else contacts_for_json(constant)
        text = json.dumps(for_json({**head, **counts, **told}), indent=1, allow_nan=False)
        rows = ",\n".join(f"  {json.dumps(for_json(row), allow_nan=False)}" for row in table.rows)
        print_text(f'{text[:-2]},\n "paths": [\n{rows}\n ]\n}}' if rows else text)
        return
    lines = [*_text(table), *always, ""]
    notes = [] if left_out is None else left_out.lines()
    beyond, turned = table.n_beyond.tolist()
    if beyond:
        notes.append(f"joint values are beyond the limits in {beyond} paths")
    if turned:
        notes.append(f"joint values are beyond 2 pi rad in {turned} paths: in degrees?")
    advice = [] if constant is None else always_in_contact(constant)
    lines += [f"note: {line}" for line in (*notes, *advice)]
    if world is not None:
        lines.append(world_line(options.world.world.name, world))
    print_text("\n".join([*lines, _conclusion(table, first=options.first)]))


def _text(table: PathTable) -> list[str]:
    shown, free = [], 0
    for row in table.rows:
        free += row["free"]
        if row["error"] is None and (not row["free"] or free <= _MOST_FREE):
            shown.append(row)
    if not shown:
        return ["no path was checked" if not table.n_free else "no path is named"]
    lines = align([_HEAD, *map(_cells, shown)], right=(2, 3, 6, 7))
    if free > _MOST_FREE:
        lines.append(f"and {free - _MOST_FREE} free paths with larger clearances")
    return lines


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    obstacle = escaped(row["obstacle"] or "-", 40)
    return (
        escaped(row["path"], 60),
        "free" if row["free"] else "NOT FREE",
        _number(row["clearance"], 4),
        f"{row['depth']:.4f}" if row["depth"] > 0.0 else "-",
        escaped(row["link"] or "-", 40),
        f"{obstacle} (itself)" if row["with_itself"] else obstacle,
        _number(row["position"], 2),
        _number(row["first_contact"], 2),
    )


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def _conclusion(table: PathTable, *, first: bool) -> str:
    worst, count = table.worst, table.n_paths
    bad = f"; {table.n_bad} could not be checked" if table.n_bad else ""
    if table.n_colliding and first:
        return f"collision: path {count} is the first that is not proven free{bad}"
    if table.n_colliding:
        text = f"collision: {table.n_colliding} of {count} paths are not proven free{bad}"
    elif table.collides:
        text = f"collision: by contacts at all joint values alone{bad}"
    else:
        text = f"free: all {table.n_free} paths are proven{bad}"
    if table.n_constant and table.n_free:
        text += f"; {table.n_free} are proven free, contacts at all joint values aside"
    if worst is None or "clearance" not in worst or not math.isfinite(worst["clearance"]):
        return text
    name = escaped(worst["path"], 60)
    if worst["depth"] > 0.0:
        return f"{text}; deepest contact {worst['depth']:.4f} m: {name}"
    return f"{text}; smallest clearance {worst['clearance']:.4f} m: {name}"

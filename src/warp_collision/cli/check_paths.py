"""Checks of many paths, for scripts: a line for each, worst first, at a memory that stays flat."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from warp_collision.cli import common, scene_text
from warp_collision.cli.robot_check import beyond_turn
from warp_collision.cli.terminal import Progress, align, for_json, print_text
from warp_collision.labeling import PathFiles, PathLabeler, PathRow
from warp_collision.labeling.columns import arrow_table
from warp_collision.labeling.parts import batches
from warp_collision.labeling.path_row import checked_waypoints
from warp_collision.messages import escaped
from warp_collision.robot import CollisionReport
from warp_collision.robot.checks.robot_scene import RobotScene

if TYPE_CHECKING:
    from warp_collision import MeshWorld

_BATCH = 256  # paths that are checked at a time
_MOST_FREE = 20  # free paths in the text
_LABELS = (
    *("free", "clearance", "self_clearance", "first_contact", "depth", "position"),
    *("link", "obstacle", "with_itself"),
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


def check_paths(options: argparse.Namespace, files: PathFiles, device: torch.device) -> int:
    """Checks all paths of files, reports, and returns the exit status."""
    scene, world = None, None
    if options.robot is not None:
        scene = common.load_scene(options, device)
        world = None if options.world.is_dir() else scene.world
    elif not options.world.is_dir():
        world = common.load_world(options, device)
    # Yes or no takes a small part of the time; what is found first is labelled in full.
    quick = options.quiet or options.first
    constant = _constant(scene, world)
    labels = _Labels(options, scene, world, constant, ("free",) if quick else _LABELS)
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
            found = _Labels(options, scene, world, constant, _LABELS).of(last)
            table.add(last, {**found, "free": np.zeros(1, dtype=bool)}, keeps_free=False)
            break
    table.sort()
    if options.output is not None:
        _write(options.output, table)
    for row in table.rows:
        if row["error"] is not None:
            text = f"warp-collision: error: {escaped(row['path'])}: {row['error']}"
            print_text(text, sys.stderr)
    if not options.quiet:
        _report(options, scene, world, table)
    return table.status


def paths_of(
    options: argparse.Namespace,
    files: PathFiles,
    scene: RobotScene | None,
    world: MeshWorld,
) -> list[dict[str, Any]]:
    """The rows of the table, for the JSON of a report on waypoints: scripts find them in both."""
    constant = _constant(scene, world)
    table, labels = PathTable(constant), _Labels(options, scene, world, constant, _LABELS)
    for batch in batches(files.rows(), _BATCH):
        table.add(batch, labels.of(batch), keeps_free=True)
    table.sort()
    return table.rows


def _constant(scene: RobotScene | None, world: MeshWorld | None) -> CollisionReport | None:
    """What touches at all joint values in the world of the command."""
    if scene is None or world is None:
        return None
    found = scene_text.constant_contacts(scene)
    return found if found.link else None


class _Labels:
    """Labels of paths, those in the world of the command without what touches at all joint values.

    A path with a world, an env or a base pose of its own has all that touches in its labels.

    Args:
        options: of the command.
        scene: the robot among the obstacles, if there is one.
        world: of the command; None where each path names its own.
        constant: what touches at all joint values in it.
        outputs: which labels.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        scene: RobotScene | None,
        world: MeshWorld | None,
        constant: CollisionReport | None,
        outputs: Sequence[str],
    ):
        place = world if scene is None else scene.world
        device = options.device if place is None else place.device
        chosen: dict[str, Any] = {"outputs": outputs, "swept": options.swept}
        chosen["allow_world_outside"] = True  # paths that are checked are one's own
        self._of_own = self._of_common = labeler_of(options, scene, world, device, **chosen)
        if scene is not None and constant is not None:
            others = scene_text.without_constant_contacts(scene, constant)
            self._of_common = labeler_of(options, others, world, device, **chosen)

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


def labeler_of(
    options: argparse.Namespace, scene: RobotScene | None, world: Any, device: Any, **more: Any
) -> PathLabeler:
    """A `PathLabeler` by the options of a command.

    Args:
        options: of the command.
        scene: the robot among the obstacles, if there is one.
        world: what all rows without one of their own are in.
        device: where paths are labelled.
        **more: other options of the labeler.
    """
    folder = options.world if options.world.is_dir() else options.world.absolute().parent
    if scene is not None:
        base_pose = scene.base_pose
        more |= {
            "tolerance": 0.001 if options.tolerance is None else options.tolerance,
            "self_collision": scene.self_collision,
            "ignore": scene.ignore,
            "shapes": scene.shapes,
            "base_pose": None if base_pose is None else torch.as_tensor(base_pose).cpu().numpy(),
        }
    return PathLabeler(
        None if scene is None else scene.robot,
        world,
        columns=dict(options.column),
        min_clearance=options.min_clearance,
        folder=folder,
        strict=options.strict,
        package_dirs=options.package_dir,
        device=device,
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
    options: argparse.Namespace,
    scene: RobotScene | None,
    world: MeshWorld | None,
    table: PathTable,
) -> None:
    """Prints the table, as CSV, JSON or text."""
    constant = table.constant if table.n_constant else None
    always = [] if constant is None else constant.lines_of_constant()
    if options.csv:
        for line in always:
            print_text(f"warp-collision: {line}", sys.stderr)
        print_text(_as_csv(table), end="")
        return
    left_out = None if scene is None else scene_text.uncovered(scene.robot)
    if options.json:
        head: dict[str, Any] = {"world": str(options.world)}
        if scene is not None:
            head["robot"] = str(options.robot)
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
            told["at_all_values"] = (
                [] if constant is None else scene_text.contacts_for_json(constant)
            )
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
    advice = [] if constant is None else scene_text.always_in_contact(constant)
    lines += [f"note: {line}" for line in (*notes, *advice)]
    if world is not None:
        lines.append(scene_text.world_line(options.world.name, world))
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

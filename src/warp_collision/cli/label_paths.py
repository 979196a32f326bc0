"""Labels of the paths of files, in one process or on a cluster, written in parts."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warp_collision.cli import common
from warp_collision.cli.check_paths import labeler_in
from warp_collision.cli.interrupts import INTERRUPTED, INTERRUPTS
from warp_collision.cli.options import Options, RobotOptions, WorldOptions, list_paths
from warp_collision.cli.terminal import Progress, print_json, print_stderr, print_text
from warp_collision.extras import require_extra
from warp_collision.formats.files import found_files
from warp_collision.labeling import PathFiles, PathLabeler
from warp_collision.labeling.labeler import OUTPUTS
from warp_collision.labeling.on_ray import label_slices
from warp_collision.labeling.parts import PartWriter, batches, labelled
from warp_collision.labeling.world_cache import digest_of, name_from
from warp_collision.messages import escaped

if TYPE_CHECKING:
    import torch

_REASONS = 3  # that are reported
# Options that decide the labels, beside the files.
_DECIDING = (
    "column",
    "outputs",
    "min_clearance",
    "activation_distance",
    "tolerance",
    "allow_world_outside",
)
_DECIDING_OF_ROBOTS = (
    "group",
    "state",
    "lock_joint",
    "shapes",
    "exact",
    "no_self_collision",
    "ignore",
    "base_pose",
)


@dataclass(frozen=True)
class LabelOptions(Options):
    """The options of `label`.

    Attributes:
        world: the obstacles, or the folder of worlds that rows name.
        robot: the robot whose joint values the paths are; None: they are spheres.
        paths: files, folders and patterns.
        column: columns of tables, by role.
        out: the folder of the parts.
        outputs: which labels; None: all.
        min_clearance: that a free path has [m].
        activation_distance: of costs [m].
        tolerance: of motions of the robot [m]; None: the default.
        allow_world_outside: whether rows may name worlds outside of the folder.
        batch_rows: rows that are labelled at a time.
        part_rows: rows of a part.
        cache_mib: of worlds that a process keeps.
        shard: which share of the rows, and how many there are.
        overwrite: whether labels of an earlier run are removed.
        retry_errors: whether rows with an error are labelled again.
        json: whether the summary is printed as JSON.
        quiet: whether only errors are printed.
        ray: the address of a cluster, empty for a local one; None: this process.
        workers: most processes.
        gpus_per_worker: of a GPU.
    """

    world: WorldOptions
    robot: RobotOptions | None
    paths: Sequence[Path | str]
    column: Sequence[tuple[str, str]]
    out: Path | str
    outputs: Sequence[str] | None
    min_clearance: float
    activation_distance: float
    tolerance: float | None
    allow_world_outside: bool
    batch_rows: int
    part_rows: int
    cache_mib: int
    shard: tuple[int, int]
    overwrite: bool
    retry_errors: bool
    json: bool
    quiet: bool
    ray: str | None
    workers: int | None
    gpus_per_worker: float


def label_paths(options: LabelOptions, device: torch.device) -> int:
    """Labels all paths of files, says what was written, and returns the exit status."""
    with INTERRUPTS.taken(signal.SIGINT, signal.SIGTERM):
        return _label_paths(options, device)


def _label_paths(options: LabelOptions, device: torch.device) -> int:
    require_extra("pyarrow", "label")
    with found_files() as of_robot:
        files = list_paths(options.paths, options.column, options.robot)
    files.files = [(file, kind) for file, kind in files.files if not _is_below(file, options.out)]
    manifest = run_manifest(options, files, of_robot)
    labeler = _labeler(options, device)
    writer = PartWriter(
        options.out,
        options.part_rows,
        manifest,
        worlds=options.world.folder,
        shard=options.shard,
        overwrite=options.overwrite,
        retry_errors=options.retry_errors,
    )
    run = _Run(len(writer.written))
    gc.freeze()  # what was imported is not looked through again while rows come and go
    is_whole = False
    try:
        with (
            writer,
            Progress(
                _count(files, options), "paths", shown=not options.quiet, done=run.written_before
            ) as progress,
        ):
            for table in _tables(options, files, labeler, writer, manifest["id_type"]):
                with INTERRUPTS.held():  # all rows that are added are counted
                    writer.add(table)
                    run.add(table)
                told = f"{run.with_errors} with errors"
                progress.show(run.written_before + run.labelled, told)
        is_whole = True
    except KeyboardInterrupt:
        print_text(
            "interrupted: what was labelled is written, the same command goes on", sys.stderr
        )
    run.report(options, writer)
    if not is_whole:
        return INTERRUPTED
    n_wrong = writer.errors.total()
    if not n_wrong:
        return common.FREE
    return common.COLLISION if n_wrong < run.written_before + run.labelled else common.BAD_INPUT


class _Run:
    """What a run labelled."""

    def __init__(self, written_before: int):
        self.written_before = written_before
        self.labelled = self.free = self.with_errors = 0
        self.first_error: str | None = None
        self._begin = time.monotonic()

    def add(self, table: Any) -> None:
        """Counts the rows of a table."""
        wrong = table.filter(table["error"].is_valid())
        self.labelled += table.num_rows
        self.with_errors += len(wrong)
        if self.first_error is None and len(wrong):
            row = wrong.slice(0, 1).to_pylist()[0]
            self.first_error = f"{row['id']}: {row['error']}"
        if "free" in table.column_names:
            self.free += sum(table["free"].to_pylist())

    def report(self, options: LabelOptions, writer: PartWriter) -> None:
        """Prints what was labelled, and the most frequent errors of all rows in the folder."""
        seconds = time.monotonic() - self._begin
        frequent, total = writer.errors.most_common(_REASONS), writer.errors.total()
        rows = "1 row" if total == 1 else f"{total} rows"
        have = f"{rows} of {escaped(str(options.out))} {'has' if total == 1 else 'have'} errors"
        if options.quiet:
            if total:
                print_text(have, sys.stderr)
            return
        if repeated := writer.repeated_ids:
            print_stderr(
                f"note: {repeated} rows have an id that another row has too; source and row tell "
                "them apart"
            )
        if options.json:
            summary = {
                "out": str(options.out),
                "written_before": self.written_before,
                "labelled": self.labelled,
                "free": self.free,
                "with_errors": self.with_errors,
                "first_error": self.first_error,
                "errors": dict(frequent),
                "errors_in_all": total,
                "seconds": seconds,
            }
            print_json(summary)
            return
        known = f", {self.written_before} were there before" if self.written_before else ""
        rate = self.labelled / max(seconds, 1e-9)
        lines = [] if self.first_error is None else [f"note: of path {escaped(self.first_error)}"]
        done = f"{self.labelled} paths labelled{known}"
        if self.labelled:
            done += (
                f": {self.free} proven free, {self.with_errors} with errors; {rate:.0f} a second"
            )
        lines.append(done)
        if frequent:
            lines.append(f"{have}, most often:")
            lines += [f"  {count} x {escaped(text)}" for text, count in frequent]
            lines.append("--retry-errors labels them again")
            if options.world.world == Path() and "no such file" in "".join(dict(frequent)):
                lines.append("--world names the folder that files of worlds are in")
        lines.append(f"written: {escaped(str(options.out))}")
        print_text("\n".join(lines))


def run_manifest(
    options: LabelOptions, files: PathFiles, of_robot: Iterable[Path]
) -> dict[str, Any]:
    """What decides the labels of a run: inputs, the files of the robot, and options.

    Each part names the files of its worlds, as rows name them.
    """
    robot = options.robot
    folder = Path() if robot is None else robot.robot.parent
    return {
        "version": version("warp-collision"),
        "inputs": {name: about for name, *about in files.listing()},
        "robot": {name_from(folder, path): digest_of(path) for path in of_robot},
        "shards": options.shard[1],
        "rows of a slice": options.batch_rows if options.shard[1] > 1 else None,
        "id_type": files.id_type(),
        "strict": options.world.strict,
        **{name: _plain(getattr(options, name)) for name in _DECIDING},
        **{name: _plain(getattr(robot, name, None)) for name in _DECIDING_OF_ROBOTS},
    }


def _plain(value: Any) -> Any:
    """A value of an option as JSON has it."""
    if isinstance(value, Path):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _is_below(file: str, folder: Path | str) -> bool:
    """Whether a file is in the folder of labels, and no path."""
    if isinstance(folder, Path):
        return Path(file).resolve().is_relative_to(folder.resolve())
    return file.startswith(f"{folder.partition('?')[0].rstrip('/')}/")


def _count(files: PathFiles, options: LabelOptions) -> int | None:
    """About how many rows a run has, None where that is not known."""
    count = files.count()
    return None if count is None else -(-count // options.shard[1])


def _labeler(options: LabelOptions, device: torch.device) -> PathLabeler:
    place = options.world
    world = None if place.is_folder else str(place.world.absolute())
    scene = None if options.robot is None else options.robot.load_scene(device, place)
    return labeler_in(
        place,
        scene,
        world,
        columns=dict(options.column),
        min_clearance=options.min_clearance,
        tolerance=options.tolerance,
        device=device,
        outputs=OUTPUTS if options.outputs is None else options.outputs,
        activation_distance=options.activation_distance,
        cache_bytes=options.cache_mib << 20,
        since=time.time(),
        allow_world_outside=options.allow_world_outside,
        threads=1 if options.ray is not None and not options.gpus_per_worker else None,
    )


def _tables(
    options: LabelOptions,
    files: PathFiles,
    labeler: PathLabeler,
    writer: PartWriter,
    id_type: str,
) -> Iterator[Any]:
    """Tables of labels of the rows that were not written."""
    index, shards = options.shard
    slices = [*files.slices(options.batch_rows)][index::shards]
    if options.ray is not None:
        # What Ray says of its workers belongs to standard error.
        with contextlib.redirect_stdout(sys.stderr):
            yield from label_slices(
                slices,
                files,
                labeler,
                writer.written,
                id_type,
                address=options.ray or None,
                workers=options.workers,
                gpus_per_worker=options.gpus_per_worker,
            )
        return
    # Without shards a file is read once, from its beginning to its end.
    rows = files.rows() if shards == 1 else (row for some in slices for row in files.read(some))
    for batch in batches(rows, options.batch_rows):
        if missing := writer.written.missing(batch):
            yield labelled(labeler, missing, id_type)

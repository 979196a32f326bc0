"""Labels of the paths of files, in one process or on a cluster, written in parts."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from warp_collision.cli import common
from warp_collision.cli.check_paths import labeler_of
from warp_collision.cli.terminal import Progress, print_json, print_text
from warp_collision.extras import require_extra
from warp_collision.labeling import PathFiles, PathLabeler
from warp_collision.labeling.labeler import OUTPUTS
from warp_collision.labeling.on_ray import label_slices
from warp_collision.labeling.parts import PartWriter, batches, labelled
from warp_collision.messages import escaped

if TYPE_CHECKING:
    import torch


def label_paths(options: argparse.Namespace, device: torch.device) -> None:
    """Labels all paths of files, and says what was written."""
    require_extra("pyarrow", "label")
    files = common.list_paths(options)
    labeler = _labeler(options, device)
    writer = PartWriter(options.out, options.part_rows)
    before = len(writer.written)
    counts, first_error = {"labelled": 0, "free": 0, "with_errors": 0}, None
    begin = time.monotonic()
    tables = _tables(options, files, labeler, writer)
    with Progress(files.count(), "paths", shown=not options.quiet) as progress:
        for table in tables:
            writer.add(table)
            wrong = table.filter(table["error"].is_valid())
            counts["labelled"] += table.num_rows
            counts["with_errors"] += len(wrong)
            if first_error is None and len(wrong):
                row = wrong.slice(0, 1).to_pylist()[0]
                first_error = f"{row['id']}: {row['error']}"
            if "free" in table.column_names:
                counts["free"] += sum(table["free"].to_pylist())
            progress.show(before + counts["labelled"], f"{counts['with_errors']} with errors")
    writer.flush()
    seconds = time.monotonic() - begin
    if options.quiet:
        return
    if options.json:
        summary = {"out": str(options.out), "written_before": before, **counts}
        print_json({**summary, "first_error": first_error, "seconds": seconds})
        return
    known = f", {before} were there before" if before else ""
    rate = counts["labelled"] / max(seconds, 1e-9)
    note = "" if first_error is None else f"note: of path {escaped(first_error)}\n"
    print_text(
        f"{note}{counts['labelled']} paths labelled{known}: {counts['free']} proven free, "
        f"{counts['with_errors']} with errors; {rate:.0f} a second\n"
        f"written: {escaped(str(options.out))}"
    )


def _labeler(options: argparse.Namespace, device: torch.device) -> PathLabeler:
    world = None if options.world.is_dir() else str(options.world.absolute())
    scene = None if options.robot is None else common.load_scene(options, device)
    return labeler_of(
        options,
        scene,
        world,
        device,
        outputs=OUTPUTS if options.outputs is None else options.outputs,
        activation_distance=options.activation_distance,
        cache_bytes=options.cache_mib << 20,
        since=time.time(),
        threads=1 if options.ray is not None and not options.gpus_per_worker else None,
    )


def _tables(
    options: argparse.Namespace, files: PathFiles, labeler: PathLabeler, writer: PartWriter
) -> Iterator[Any]:
    """Tables of labels of the rows that were not written."""
    if options.ray is not None:
        # What Ray says of its workers belongs to standard error.
        with contextlib.redirect_stdout(sys.stderr):
            yield from label_slices(
                [*files.slices(options.batch_rows)],
                files,
                labeler,
                writer.written,
                address=options.ray or None,
                workers=options.workers,
                gpus_per_worker=options.gpus_per_worker,
            )
        return
    for batch in batches(files.rows(), options.batch_rows):
        if rows := writer.written.missing(batch):
            yield labelled(labeler, rows)

"""Labels on a Ray cluster: an actor pool of `PathLabeler`s over a data set of Ray Data."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warp_collision import devices, validate
from warp_collision.extras import require_extra
from warp_collision.labeling.labeler import PathLabeler
from warp_collision.labeling.parts import WrittenRows, batches, labelled
from warp_collision.labeling.path_files import FileSlice, PathFiles

BATCH_ROWS = 512
_MOST_BLOCKS = 10_000  # of a data set of slices
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def label_dataset(
    dataset: Any,
    robot: Any = None,
    worlds: Any = None,
    *,
    workers: int | None = None,
    gpus_per_worker: float = 0.0,
    batch_size: int = BATCH_ROWS,
    **options: Any,
) -> Any:
    """Labels a data set of Ray Data: `map_batches` of `PathLabeler` on a pool of actors.

    Scheduling, retries and back pressure are Ray's. The result is lazy, as all data sets are; what
    an actor had not handed on when it died is computed again, to the same bits.

    Args:
        dataset: a `ray.data.Dataset` with a row for each path, see `PathLabeler`.
        robot: see `PathLabeler`.
        worlds: see `PathLabeler`.
        workers: most actors of the pool; by default one for each CPU of the cluster, or for each
            share of a GPU.
        gpus_per_worker: how much of a GPU an actor has, such as 1 or 0.25; with 0 it has one CPU
            thread.
        batch_size: rows of a batch.
        options: of `PathLabeler`. A world file that is written after this call is an error in its
            rows, in all actors alike, unless `since` says otherwise.

    Returns:
        A data set with the columns of `PathLabeler`.

    Raises:
        ImportError: Ray Data is not installed.
        ValueError: an option of another range, or no machine of the cluster has so much of a GPU.

    Example:
        >>> from warp_collision.labeling import label_dataset
        >>> label_dataset.__kwdefaults__["gpus_per_worker"]
        0.0
    """
    require_extra("ray.data", "label_dataset")
    validate.require_number("gpus_per_worker", gpus_per_worker)
    pool = _pool(workers, gpus_per_worker)
    options = {"since": time.time(), **options}
    if gpus_per_worker:
        options = {"device": next(iter(devices.GPUS)), **options}
    else:
        options = {"device": "cpu", "threads": 1, **options}
    return dataset.map_batches(
        _TrimmedLabeler,
        fn_constructor_args=(robot, worlds),
        fn_constructor_kwargs=options,
        batch_format="pyarrow",
        batch_size=batch_size,
        **pool,
    )


class _TrimmedLabeler(PathLabeler):
    """Returns memory that is free to the system after each batch.

    Ray keeps the labels of a block until it is whole, as of 10 million rows. These small pieces lie
    between large ones that are freed, which glibc does not use again: 600 bytes a row.
    """

    def __call__(self, batch: Any) -> Any:
        labels = super().__call__(batch)
        if _TRIM is not None:
            _TRIM(0)
        return labels


def _pool(workers: int | None, gpus_per_worker: float) -> dict[str, Any]:
    """A pool of actors; by default one for each CPU of a cluster, or for each share of a GPU."""
    import ray
    from ray.data import ActorPoolStrategy

    if gpus_per_worker:
        require_gpus([node for node in ray.nodes() if node["Alive"]], gpus_per_worker)
    if workers is None:
        all_of = ray.cluster_resources()
        cpus, gpus = all_of.get("CPU", 1.0), all_of.get("GPU", 0.0)
        workers = max(1, int(gpus / gpus_per_worker if gpus_per_worker else cpus))
    validate.require_count("workers", workers)
    compute = ActorPoolStrategy(min_size=1, max_size=workers)
    return {"compute": compute, "num_cpus": 1, "num_gpus": gpus_per_worker or None}


def require_gpus(nodes: Sequence[Mapping[str, Any]], share: float) -> None:
    """Requires a machine with so much of a GPU: without one, Ray waits for it for ever.

    Args:
        nodes: of the cluster, as `ray.nodes` has them.
        share: how much of a GPU an actor needs.
    """
    most = max((node["Resources"].get("GPU", 0.0) for node in nodes), default=0.0)
    if share > most:
        raise ValueError(
            f"gpus_per_worker must be at most {most:g}, as many GPUs as a machine of the cluster "
            f"has, got {share:g}"
        )


class SliceLabeler:
    """Labels slices of files: what the command `label` maps over a cluster.

    Args:
        files: where the slices are read from, at the same paths on every machine.
        labeler: of the rows.
        written: rows that need no labels.
        id_type: see `arrow_table`.
    """

    def __init__(self, files: PathFiles, labeler: PathLabeler, written: WrittenRows, id_type: str):
        self._files, self._labeler, self._written = files, labeler, written
        self._id_type = id_type

    def __call__(self, batch: dict[str, Any]) -> Any:
        """The labels of the rows of some slices, an Arrow table."""
        import pyarrow as pa

        columns = zip(*(batch[name] for name in FileSlice._fields), strict=True)
        slices = [
            FileSlice(str(file), int(begin), None if end < 0 else int(end), str(kind))
            for file, begin, end, kind in columns
        ]
        rows = (row for part in slices for row in self._files.read(part))
        missing = (self._written.missing(some) for some in batches(rows, BATCH_ROWS))
        return pa.concat_tables([labelled(self._labeler, some, self._id_type) for some in missing])


def label_slices(
    slices: Sequence[FileSlice],
    files: PathFiles,
    labeler: PathLabeler,
    written: WrittenRows,
    id_type: str,
    *,
    address: str | None,
    workers: int | None,
    gpus_per_worker: float,
) -> Iterator[Any]:
    """Labels slices of files on a cluster, in their order.

    Args:
        slices: of the files.
        files: see `SliceLabeler`, as the next two.
        labeler: is sent to each worker.
        written: too.
        id_type: too.
        address: of a running cluster, see `ray.init`; a local one is started if None.
        workers: most of them; by default one for each CPU, or for each share of a GPU.
        gpus_per_worker: how much of a GPU each has.

    Yields:
        Arrow tables of labels.
    """
    require_extra("ray.data", "--ray")
    import ray
    from ray.data import DataContext

    # Of a cluster with fewer than four CPUs Ray Data takes all for reading and stalls.
    local: dict[str, Any] = {"num_cpus": max(4, os.cpu_count() or 1), "include_dashboard": False}
    started = not ray.is_initialized()
    if started:
        options: dict[str, Any] = local if address is None else {"address": address}
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        items = [p._replace(end=-1 if p.end is None else p.end)._asdict() for p in slices]
        blocks = min(len(items), _MOST_BLOCKS)
        labels = ray.data.from_items(items, override_num_blocks=blocks).map_batches(
            SliceLabeler,
            fn_constructor_args=(files, labeler, written, id_type),
            batch_size=1,
            **_pool(workers, gpus_per_worker),
        )
        yield from labels.iter_batches(batch_size=None, batch_format="pyarrow")
    finally:
        if started:
            ray.shutdown()

"""Problems side by side, in processes of one thread each."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, Protocol, TypeVar

import torch

from benchmarks.harness import Failed

T = TypeVar("T")
Which = tuple[str, int]
Row = dict[str, Any]


class Judging(Protocol):
    """What looks at problems."""

    def move(self, which: Which) -> Row:
        """What became of a problem."""
        ...


class _Worker:
    """What this process looks at problems with."""

    current: Judging


def _begin(make: Callable[[], Judging], first: Which) -> None:
    torch.set_num_threads(1)
    _Worker.current = make()
    _move(first)  # compiles kernels, or loads them


def _move(which: Which) -> Row:
    return _Worker.current.move(which)


def in_any_order(
    work: Callable[[Which], T], begin: Callable[..., None], asked: Sequence[Which], jobs: int
) -> Iterator[T]:
    """What `work` returns of all problems, as they come.

    Args:
        work: looks at a problem.
        begin: prepares a process.
        asked: scene types and indices.
        jobs: how many processes.

    Raises:
        Failed: a process could not be prepared, or ended. A pool of `multiprocessing` would start
            others without end.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn, begin) as pool:
        try:
            for done in as_completed([pool.submit(work, which) for which in asked]):
                yield done.result()
        except BrokenProcessPool:
            raise Failed("a process could not begin, or ended: its error stands above") from None
        finally:
            pool.shutdown(cancel_futures=True)


def judge_all(
    make: Callable[[], Judging],
    asked: Sequence[Which],
    jobs: int,
    said: Callable[[Row], str],
    kept: Callable[[list[Row]], None] = lambda _: None,
) -> list[Row]:
    """Rows of all problems, in the order in which they come.

    Args:
        make: makes what looks at them, once a process.
        asked: scene types and indices.
        jobs: how many processes.
        said: what to print of a row.
        kept: gets the rows so far, now and then.
    """
    rows: list[Row] = []
    begin = partial(_begin, make, asked[0])
    for done, row in enumerate(in_any_order(_move, begin, asked, jobs), start=1):
        where = f"{row['type']}/{row['index']:04d}"
        print(f"[{done}/{len(asked)}] {where}: {said(row)}", flush=True)
        rows.append(row)
        if done % 25 == 0:
            kept(rows)
    return rows

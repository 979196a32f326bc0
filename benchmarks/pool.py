"""Problems side by side, in processes of one thread each."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

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
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    rows: list[Row] = []
    start = make, asked[0]
    with multiprocessing.get_context("spawn").Pool(jobs, _begin, start) as pool:
        for done, row in enumerate(pool.imap_unordered(_move, asked), start=1):
            where = f"{row['type']}/{row['index']:04d}"
            print(f"[{done}/{len(asked)}] {where}: {said(row)}", flush=True)
            rows.append(row)
            if done % 25 == 0:
                kept(rows)
    return rows

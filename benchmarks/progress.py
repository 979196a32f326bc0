"""Shows how far a run is: a bar where rich is installed and a person looks, else plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]


@contextmanager
def progress(total: int) -> Iterator[tuple[Say, Say]]:
    """Counts steps.

    Args:
        total: how many there will be.

    Yields:
        A function that announces the next step, and one that prints a line of results.
    """
    if sys.stdout.isatty():
        try:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
        except ImportError:
            pass
        else:
            columns = "{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
            with Progress(*columns, transient=True) as bar:
                task = bar.add_task("", total=total)
                announced = 0

                def announce(text: str) -> None:
                    nonlocal announced
                    bar.update(task, description=text, completed=announced)
                    announced += 1

                yield announce, lambda text: bar.console.print(text, highlight=False, markup=False)
                return
    yield _plain_lines(total), lambda text: print(f"  {text}", flush=True)


def _plain_lines(total: int) -> Say:
    begin, step = time.monotonic(), 0

    def announce(text: str) -> None:
        nonlocal step
        step += 1
        print(f"[{step}/{total}, {time.monotonic() - begin:.0f} s] {text}", flush=True)

    return announce

"""What every benchmark shares: its command line, timing in turns, tables, and where results go.

A benchmark is a module with `add_options(parser)` and `run(options)`, which returns Markdown. Most
are a list of workloads, each with contenders that answer the same question: `measure` runs them.

All contenders of a workload run in turns; figures are medians over the rounds, ratios medians of
the ratio within a round. Where one CPU thread does all the work the time of this process's own work
counts, so that others on the machine disturb little; with several threads or a GPU it is the clock.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from warp_collision.devices import synchronize_all
from warp_collision.launching.warp_runtime import quiet_warp

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CPU = torch.device("cpu")
ALL_THREADS = torch.get_num_threads()
# Seconds that one timing takes at least; quicker calls are repeated within it, in warm caches.
SHORTEST = 1e-2


class WrongResultError(Exception):
    """A contender computed something else than the reference."""


class Failed(Exception):
    """A benchmark that ends with another status than 0; its text is still printed."""

    def __init__(self, text: str, status: int = 1):
        super().__init__(text)
        self.status = status


def require(is_right: object, what: str) -> None:
    """Raises where a result is wrong."""
    if not is_right:
        raise WrongResultError(what)


class Call(NamedTuple):
    """A contender.

    Attributes:
        run: what it runs.
        items: how many one run answers.
        threads: of the CPU that it runs on.
        note: what else the tables should say of it.
    """

    run: Callable[[], object]
    items: int = 1
    threads: int = 1
    note: str = ""


class Workload(NamedTuple):
    """A line of a table.

    Attributes:
        name: of which `--only` takes the beginning.
        unit: what an item of its calls is.
        make: its contenders by name, the library first; it raises where a result is wrong.
    """

    name: str
    unit: str
    make: Callable[[], dict[str, Call]]


class Times(NamedTuple):
    """Seconds per item of each contender in each round; `counted` is what its figures are of."""

    clock: dict[str, np.ndarray]
    counted: dict[str, np.ndarray]

    def median(self, name: str) -> float:
        """Median over the rounds."""
        return float(np.median(self.counted[name]))

    def ratio(self, name: str, over: str) -> float:
        """Time of one over that of another; of single threads by their own time."""
        single = all(self.counted[n] is not self.clock[n] for n in (name, over))
        values = self.counted if single else self.clock
        return float(np.median(values[name] / values[over]))


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Limits torch, and with it the library, to a number of CPU threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds_of(call: Call, device: torch.device = CPU, loops: int = 1) -> np.ndarray:
    """Seconds per run on the clock, and of work of this process; the mean of a few in a row."""
    with cpu_threads(call.threads):
        synchronize_all(device)
        begin = np.array((time.perf_counter(), time.process_time()))
        for _ in range(loops):
            call.run()
        synchronize_all(device)
        return (np.array((time.perf_counter(), time.process_time())) - begin) / loops


def interleave(
    calls: Mapping[str, Call],
    rounds: int,
    *,
    seconds: float = float("inf"),
    device: torch.device = CPU,
) -> Times:
    """Times contenders in turns.

    Args:
        calls: by name.
        rounds: how many, unless the time is over; three at least.
        seconds: when no further round begins.
        device: where they run.
    """
    loops = {}
    for name, call in calls.items():
        quick = seconds_of(call, device)[0]  # the first call may compile
        if rounds > 1:  # the first call of two may have waited for others on the machine
            quick = min(seconds_of(call, device)[0] for _ in range(2))
        loops[name] = max(1, int(SHORTEST / quick)) if rounds > 1 else 1
    taken: dict[str, list[np.ndarray]] = {name: [] for name in calls}
    begin = time.perf_counter()
    for index in range(rounds):
        if index >= min(3, rounds) and time.perf_counter() - begin > seconds:
            break
        for name, call in calls.items():
            taken[name].append(seconds_of(call, device, loops[name]) / call.items)
    both = {name: np.array(values).T for name, values in taken.items()}
    clock = {name: values[0] for name, values in both.items()}
    single = {name for name, call in calls.items() if call.threads == 1 and device.type == "cpu"}
    return Times(clock, {n: both[n][1] if n in single else clock[n] for n in calls})


def within(make: Callable[[int], Call], rows: int, seconds: float, device: torch.device) -> Call:
    """The call of as many rows, of a batch of so many, as take about some seconds."""
    some = min(rows, 2)
    while True:
        call = make(some)
        call.run()
        taken = seconds_of(call, device)[0]
        if some == rows or taken > 0.2 * seconds:
            return make(max(1, min(some, int(some * seconds / taken))))
        some = min(rows, int(some * min(10.0, max(2.0, 0.5 * seconds / taken))))


def timing_options(parser: argparse.ArgumentParser, on_gpu: bool = False) -> None:
    """Adds what `measure` asks for, and a scale for how much each workload is."""
    parser.set_defaults(device=CPU)
    if on_gpu:
        parser.add_argument("--device", type=torch.device, help="cpu (default) or cuda")
    parser.add_argument("--rounds", type=int, default=15, help="of all contenders in turns")
    parser.add_argument("--seconds", type=float, default=4.0, help="for a workload (default 4)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of each workload")
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of names of workloads")
    parser.add_argument("--list", action="store_true", help="only name the workloads")


class Row(NamedTuple):
    """A workload that was measured."""

    workload: Workload
    calls: dict[str, Call]
    times: Times

    def cells(self) -> list[str]:
        """µs per item; beside it others, and how many times the first one's time they take."""
        first, *others = self.calls
        beside = [
            f"{name} {micro(self.times.median(name))} ({number(self.times.ratio(name, first))} x)"
            for name in others
        ]
        items, taken = str(self.calls[first].items), micro(self.times.median(first))
        notes = [f"{name}: {call.note}" for name, call in self.calls.items() if call.note]
        cells = [self.workload.name, self.workload.unit, items, taken]
        return [*cells, "; ".join([", ".join(beside), *notes])]


def measure(
    workloads: Iterable[Workload],
    options: Any,
    draw: Callable[[list[Row], Path], None] | None = None,
) -> str:
    """Checks and times workloads in turns; a table with a line for each.

    Args:
        workloads: what to measure.
        options: of the command line, see `timing_options`.
        draw: draws a picture into a file, where results are kept.

    Raises:
        Failed: with the table of all others, where a workload raised, as by a wrong result.

    Where results are kept, those so far are in a file `NAME.partial.md`, which stays if the run is
    cut off or fails.
    """
    chosen = [w for w in workloads if w.name.startswith(tuple(options.only))]
    if options.list:
        return "\n".join(workload.name for workload in chosen)
    if not chosen:
        raise Failed(f"no workload is called {' or '.join(options.only)}; see --list", 2)
    rows, failed = [], []
    head = ["workload", "per", "in a call", "library [µs]", "beside it [µs]"]
    folder = getattr(options, "write", None)
    partial = folder and folder.with_name(f"{folder.name}.partial.md")
    limits = {"seconds": options.seconds, "device": options.device}
    for workload in chosen:
        try:
            calls = workload.make()
            rows.append(Row(workload, calls, interleave(calls, options.rounds, **limits)))
            print(*rows[-1].cells(), sep="  ", flush=True)
        except Exception as error:
            failed.append(f"- {workload.name}: {type(error).__name__}: {error}")
            print(failed[-1], flush=True)
        text = f"{machine(options.device)}\n\n{table(head, [row.cells() for row in rows], 2)}"
        if failed:
            text = "\n".join([text, "Failed:\n", *failed])
        if partial:
            partial.write_text(text)
    if failed:
        raise Failed(text)
    if partial:
        partial.unlink()
    if draw and options.write:
        draw(rows, options.write.with_suffix(".png"))
    return text


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table, its first columns aligned to the left, the others to the right."""
    rule = ["---" if i < left else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows]) + "\n"


def number(value: float) -> str:
    """Three digits, and all of those before the point."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def micro(seconds: float) -> str:
    """Microseconds, three digits."""
    return number(1e6 * seconds)


def machine(device: torch.device, *packages: str) -> str:
    """What ran, and on what, in a line."""
    name = f"CPU, {platform.machine()}, {ALL_THREADS} threads"
    if device.type == "cuda":
        name = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    named = ("torch", "warp-lang", "warp-collision", *packages)
    return f"{name}; Python {platform.python_version()}, {', '.join(map(_version, named))}"


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"  # or a checkout on the path


def run_command(name: str, arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark as the command line asks, prints its tables, and returns the status."""
    module: Any = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--write",
        type=Path,
        nargs="?",
        const=RESULTS,
        metavar="FOLDER",
        help="keep results, in benchmarks/results if no other folder is named",
    )
    module.add_options(parser)
    options = parser.parse_args(arguments)
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        options.write /= f"{name}-{options.device.type}" if "device" in options else name
    status = 0
    with quiet_warp(), cpu_threads(1):
        try:
            text = module.run(options)
        except Failed as failed:
            text, status = str(failed), failed.status
    print(text, file=sys.stderr if status == 2 else sys.stdout)
    if options.write and not status:
        options.write.with_suffix(".md").write_text(text.rstrip("\n") + "\n")
    return status

"""What every benchmark shares: its command line, timing in turns, tables, and where results go.

All contenders of a comparison run in turns; figures are medians over the rounds, ratios medians of
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
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from warp_collision.devices import synchronize_all
from warp_collision.launching.warp_runtime import quiet_warp

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CPU = torch.device("cpu")
MODULES = {"plan": "plan.run"}  # of benchmarks that are not called like their module
# Seconds that one timing takes at least; quicker calls are repeated within it, in warm caches.
SHORTEST = 1e-2


class WrongResultError(Exception):
    """A contender computed something else than the reference."""


class Failed(Exception):
    """A benchmark that ends with another status than 0; its text is still printed."""

    def __init__(self, text: str, status: int = 1):
        super().__init__(text)
        self.status = status


class Call(NamedTuple):
    """A contender: what it runs, how many items one run answers, on how many CPU threads."""

    run: Callable[[], object]
    items: int = 1
    threads: int = 1


class Taken(NamedTuple):
    """Seconds that a call took: on the clock, and of work of this process."""

    clock: float
    work: float


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
        return ratio(*((self.counted if single else self.clock)[n] for n in (name, over)))


def ratio(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    """Median over the rounds of the ratio within a round."""
    return float(np.median(np.asarray(first) / np.asarray(second)))


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Limits torch, and with it the library, to a number of CPU threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seconds_of(run: Callable[[], object], device: torch.device = CPU, loops: int = 1) -> Taken:
    """Seconds that a call takes, the mean of a few in a row."""
    finish(device)
    clock, work = time.perf_counter(), time.process_time()
    for _ in range(loops):
        run()
    finish(device)
    return Taken((time.perf_counter() - clock) / loops, (time.process_time() - work) / loops)


def finish(device: torch.device) -> None:
    """Waits for a GPU."""
    synchronize_all(device)


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
        with cpu_threads(call.threads):
            call.run()
            loops[name] = 1
            if rounds > 1:  # the first call of two may have waited for others on the machine
                quick = min(seconds_of(call.run, device).clock for _ in range(2))
                loops[name] = max(1, int(SHORTEST / quick))
    taken: dict[str, list[list[float]]] = {name: [] for name in calls}
    begin = time.perf_counter()
    for index in range(rounds):
        if index >= min(3, rounds) and time.perf_counter() - begin > seconds:
            break
        for name, call in calls.items():
            with cpu_threads(call.threads):
                found = seconds_of(call.run, device, loops[name])
            taken[name].append([part / call.items for part in found])
    both = {name: np.array(values).T for name, values in taken.items()}
    clock = {name: values[0] for name, values in both.items()}
    single = {name for name, call in calls.items() if call.threads == 1 and device.type == "cpu"}
    return Times(clock, {n: both[n][1] if n in single else clock[n] for n in calls})


def within(make: Callable[[int], Call], rows: int, seconds: float, device: torch.device) -> Call:
    """The call of as many rows, of a batch of so many, as take about some seconds."""
    some = min(rows, 2)
    while True:
        call = make(some)
        with cpu_threads(call.threads):
            call.run()
            taken = seconds_of(call.run, device).clock
        if some == rows or taken > 0.2 * seconds:
            return make(max(1, min(some, int(some * seconds / taken))))
        some = min(rows, int(some * min(10.0, max(2.0, 0.5 * seconds / taken))))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table, its first columns aligned to the left, the others to the right."""
    rule = ["---" if i < left else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows]) + "\n"


def section(heading: str, text: str) -> str:
    """Text under a heading; nothing without text."""
    return f"\n## {heading}\n\n{text}" if text else ""


def number(value: float) -> str:
    """Three digits, and all of those before the point."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def micro(seconds: float) -> str:
    """Microseconds, three digits."""
    return f"{1e6 * seconds:.3g}"


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of packages, those of this library among them."""
    found = {"Python": platform.python_version()}
    for name in ("torch", "warp-lang", "warp-collision", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"  # or a checkout on the path
    return found


def machine(device: torch.device) -> str:
    """What ran, and on what, in a line."""
    name = f"CPU, {platform.machine()}, {torch.get_num_threads()} threads"
    return torch.cuda.get_device_name(device) if device.type == "cuda" else name


def announcer(total: int) -> Callable[[str], None]:
    """A function that says which of so many steps begins, and when."""
    begin, step = time.monotonic(), 0

    def announce(text: str) -> None:
        nonlocal step
        step += 1
        print(f"[{step}/{total}, {time.monotonic() - begin:.0f} s] {text}", flush=True)

    return announce


def run_command(name: str, arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark as the command line asks, prints its tables, and returns the status.

    Its module has `run(options)`, which returns Markdown, and may have `add_options(parser)`.
    """
    module: ModuleType = importlib.import_module(
        f"benchmarks.{MODULES.get(name, name).replace('-', '_')}"
    )
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", type=torch.device, default=CPU, help="cpu (default) or cuda")
    parser.add_argument("--rounds", type=int, default=15, help="of all contenders in turns")
    keeps_tables = getattr(module, "KEEPS_TABLES", True)
    if keeps_tables:
        parser.add_argument("--write", action="store_true", help="keep the tables in results/")
    if hasattr(module, "add_options"):
        module.add_options(parser)
    options: Any = parser.parse_args(arguments)
    threads = getattr(module, "THREADS", 1) or torch.get_num_threads()
    status = 0
    with quiet_warp(), cpu_threads(threads):
        try:
            text = module.run(options)
        except Failed as failed:
            text, status = str(failed), failed.status
    print(text, file=sys.stderr if status == 2 else sys.stdout)
    if keeps_tables and options.write and not status:
        (RESULTS / f"{name}-{options.device.type}.md").write_text(text.rstrip("\n") + "\n")
    return status

"""Runs the benchmarks: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import platform
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks import report
from benchmarks.gpu import STAGES, run_all
from benchmarks.measure import Measurement, compare, measure
from benchmarks.once import once
from benchmarks.peers import compare_peers
from benchmarks.progress import progress
from benchmarks.targets import PAIRS, TARGETS, evaluate
from benchmarks.workloads import WORKLOADS, Problem, build


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; 0 unless something failed, a wrong result say."""
    options = _parser().parse_args(arguments)
    if options.list:
        for workload in WORKLOADS.values():
            print(f"{workload.name:20s} {workload.summary}")
        return 0
    if options.gpu is not None:
        return run_all(options.gpu, stages=options.stages, limit=60.0 * options.minutes)
    results = run(
        torch.device(options.device),
        names=_select(options.only),
        scale=options.scale,
        seconds=options.seconds,
        with_peers=not options.no_peers and not options.only,
        with_once=not options.only,
        prepared=not options.unprepared,
        folder=options.out,
    )
    for file in report.write(results, options.out):
        print(file)
    print(report.markdown({**results, "targets": evaluate(results)}))
    return 1 if results["failed"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures the library against a straightforward baseline and other libraries.",
    )
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        default=[],
        help="workloads by name or beginning of a name; without peers and what is paid once",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the number of spheres")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="time for the rounds of a workload (default 4)"
    )
    parser.add_argument(
        "--unprepared", action="store_true", help="worlds as they are without `world.prepare()`"
    )
    parser.add_argument("--no-peers", action="store_true", help="leave other libraries out")
    parser.add_argument(
        "--out", type=Path, default=report.RESULTS, metavar="FOLDER", help="where results go"
    )
    parser.add_argument(
        "--gpu",
        type=Path,
        metavar="FOLDER",
        help="on a CUDA machine: the test suite and all benchmarks, everything into this folder",
    )
    parser.add_argument(
        "--stages",
        nargs="+",
        choices=STAGES,
        default=STAGES,
        help="what --gpu runs, in this order",
    )
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="when --gpu ends a stage (default 120)"
    )
    parser.add_argument("--list", action="store_true", help="list the workloads")
    return parser


def _select(prefixes: Sequence[str]) -> list[str]:
    if not prefixes:
        return list(WORKLOADS)
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in WORKLOADS):
            sys.exit(f"--only must name workloads, {prefix!r} is none; see --list")
    return [name for name in WORKLOADS if name.startswith(tuple(prefixes))]


def run(
    device: torch.device,
    *,
    names: Sequence[str],
    scale: float = 1.0,
    seconds: float = 4.0,
    with_peers: bool = True,
    with_once: bool = True,
    prepared: bool = True,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Measures workloads, pairs of them, peers, and what is paid once.

    Args:
        device: where the library runs; peers always run on the CPU.
        names: workloads.
        scale: factor of the number of spheres.
        seconds: about how long the rounds of one workload take.
        with_peers: whether to compare with other libraries.
        with_once: whether to measure what is paid once, and memory.
        prepared: whether worlds have their fields of distances built.
        folder: where the figures are kept as they come, so that a run that is ended loses few.

    Returns:
        All results, fit for JSON. What raised, a wrong result say, has no figures and is in
        "failed": what it was, and the message.
    """
    pairs = [pair for pair in PAIRS if set(pair) <= set(names)]
    problems: dict[str, Problem] = {}
    results: dict[str, Any] = {
        **_machine(device),
        "scale": scale,
        "workloads": [],
        "pairs": {},
        "once": {},
        "peers": [],
        "failed": {},
    }

    def problem(name: str) -> Problem:
        if name not in problems:
            problems[name] = build(WORKLOADS[name], device, scale, prepared)
        return problems[name]

    def measure_workload(name: str) -> None:
        found = measure(problem(name), seconds=seconds)
        say(_line(found))
        results["workloads"].append(found.as_dict())

    def measure_pair(first: str, second: str) -> None:
        found = compare(problem(first), problem(second), seconds=0.5 * seconds)
        results["pairs"][f"{first} / {second}"] = found

    def measure_once() -> None:
        problems.clear()
        results["once"] = once(device)

    steps: list[tuple[str, Callable[[], None]]] = [
        (f"{name}: {WORKLOADS[name].summary}", partial(measure_workload, name)) for name in names
    ]
    steps += [(f"{pair[0]} against {pair[1]}", partial(measure_pair, *pair)) for pair in pairs]
    if with_once:
        steps.append(("first calls, adding, moving, memory", measure_once))
    if with_peers:
        peers = partial(compare_peers, scale=scale)
        steps.append(("other libraries", lambda: results.update(peers=peers(say=say))))
    with progress(len(steps)) as (announce, say):
        for what, step in steps:
            announce(what)
            try:
                step()
            except Exception as error:
                results["failed"][what] = f"{type(error).__name__}: {error}"
                say(f"failed: {results['failed'][what]}")
            if folder is not None:
                report.write_figures(results, folder)
    return results


def _line(found: Measurement) -> str:
    library, speed = found.timings["library"], found.speedups["library"]
    text = f"{1e6 * library.median:.3g} µs per sphere, {speed:.3g} times the baseline's speed"
    if found.identical is False:
        text += ", BUT all threads gave other bits than one"
    return text


def _machine(device: torch.device) -> dict[str, Any]:
    versions = {"Python": platform.python_version()}
    for name in ("torch", "warp-lang", "warp-collision"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"  # a checkout on the path
    if device.type == "cuda":
        title = torch.cuda.get_device_name(device)
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        versions["CUDA"] = str(torch.version.cuda)
    else:
        slug, title = "cpu", f"CPU, {platform.machine()}, {torch.get_num_threads()} threads"
    return {"device": slug, "device_type": device.type, "title": title, "versions": versions}


assert all(target.kind != "pair" or target.of in PAIRS for target in TARGETS)

if __name__ == "__main__":
    sys.exit(main())

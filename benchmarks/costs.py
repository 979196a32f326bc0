"""Measures the library's costs against a straightforward baseline and other libraries.

Writes `<device>.json`, the tables `<device>.md` and two pictures. Every contender is compared with
the float64 reference before it is timed; what raises has no figures, and the status is 1.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks import baseline, harness, truth
from benchmarks.floor import Floor
from benchmarks.harness import Call, Failed, WrongResultError, micro, number, section, table
from benchmarks.once import once
from benchmarks.peers import compare_peers
from benchmarks.scenes import ACTIVATION_DISTANCE, RADIUS, WORKLOADS, Problem, build
from warp_collision import sphere_cost, swept_sphere_cost

KEEPS_TABLES = False
THREADS = None  # all of them
# Which workload is compared with which, in turns: time per sphere of the first over the second.
PAIRS = (
    ("deep-link", "near-link"),
    ("deep-torus-16000", "near-torus-16000"),
    ("deep-torus-80000", "near-torus-80000"),
    ("deep-ball-20480", "near-torus-16000"),
    ("middle-ball-20480", "near-torus-16000"),
    ("scene-1000", "scene-10"),
    ("scene-10000", "scene-10"),
    ("panda-swept-1024", "panda-1024"),
)


class Target(NamedTuple):
    """A bound that one measured value has to keep.

    Attributes:
        text: what it is about.
        kind: "speedup" of the library over the baseline of a workload, "all threads" and "floor" of
            the library's time over theirs, "pair" of two workloads, or "once".
        of: the workload, the pair or the name of the value.
        bound: the target.
        at_least: whether the value must not be below it; else it must not be above.
        stretch: a further aim, or None.
        only: the kind of device that it is for, or None for any.
    """

    text: str
    kind: str
    of: Any
    bound: float
    at_least: bool = False
    stretch: float | None = None
    only: str | None = None


def _pair(first: str, second: str, bound: float) -> Target:
    return Target(f"{first}, time over {second}", "pair", (first, second), bound)


def _threads(name: str) -> Target:
    return Target(f"{name}, all threads over one", "all threads", name, 1.8, True)


def _floor(name: str) -> Target:
    return Target(f"{name}, time over two replayed launches", "floor", name, 1.5)


def _speedup(name: str, bound: float, stretch: float | None, over: str = "the baseline") -> Target:
    return Target(f"{name}, speed over {over}", "speedup", name, bound, True, stretch)


def _once(text: str, of: str, bound: float, only: str | None = None) -> Target:
    return Target(text, "once", of, bound, only=only)


TARGETS = (
    _speedup("near-torus-16000", 2, 5),
    _speedup("near-torus-80000", 2, 5),
    _pair("deep-link", "near-link", 4),
    _pair("deep-torus-16000", "near-torus-16000", 4),
    _pair("deep-torus-80000", "near-torus-80000", 4),
    _speedup("scene-1000", 30, 50),
    _pair("scene-1000", "scene-10", 2.5),
    _pair("scene-10000", "scene-10", 3.5),
    _speedup("panda-swept-1024", 10, None, "1 mm samples"),
    _pair("panda-swept-1024", "panda-1024", 4),
    *map(_threads, ("near-torus-16000", "panda-1024", "panda-swept-1024")),
    *map(_floor, ("tiny", "free", "free-swept")),
    _once("bytes per resting sphere", "bytes per resting sphere, beyond outputs", 32),
    _once("bytes per moving sphere", "bytes per moving sphere, beyond outputs", 32),
    _once("first call, cold [s]", "first call, cold kernel cache [s]", 3.0, "cpu"),
    _once("first call, warm [s]", "first call, warm kernel cache [s]", 0.05),
    _once("adding 80000 triangles [s]", "adding 80000 triangles [s]", 0.15),
    _once("pose update of 1000 meshes [s]", "pose update of 1000 meshes [s]", 1e-3),
)


def evaluate(results: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured of every target that results, as in the JSON, allow to judge."""
    rows = []
    for target in TARGETS:
        value = _value(target, results)
        if value is None or target.only not in (None, results["device_type"]):
            continue
        met = value >= target.bound if target.at_least else value <= target.bound
        kept = {key: getattr(target, key) for key in ("bound", "at_least", "stretch")}
        rows.append({"target": target.text, **kept, "value": value, "met": met})
    return rows


def _value(target: Target, results: dict[str, Any]) -> float | None:
    if target.kind == "pair":
        return results["pairs"].get(" / ".join(target.of))
    if target.kind == "once":
        return results["once"].get(target.of)
    for row in results["workloads"]:
        if row["workload"] == target.of:
            speedup = target.kind == "speedup"
            return row["speedups"]["library"] if speedup else row["against"].get(target.kind)
    return None


class Contender(NamedTuple):
    """One way to compute the cost of a problem and its gradient, of as many rows as it gets."""

    cost: Callable[[Tensor], Tensor]
    spheres: Tensor
    threads: int
    is_exact: bool = True  # whether its results have to be right

    def run(self) -> tuple[Tensor, Tensor]:
        """Cost and gradient, forward and backward."""
        leaf = self.spheres.requires_grad_(True)
        cost = self.cost(leaf)
        (gradient,) = torch.autograd.grad(cost, leaf, _ones(cost.shape, cost.device))
        return cost, gradient

    @property
    def call(self) -> Call:
        """For the harness; per sphere."""
        return Call(self.run, self.spheres[..., 0].numel(), self.threads)

    def within(self, seconds: float) -> Contender:
        """The same of as many rows as take about some seconds."""
        spheres = self.spheres.detach()

        def rows(count: int) -> Call:
            return self._replace(spheres=spheres[:count].clone()).call

        count = harness.within(rows, len(spheres), seconds, spheres.device).items
        return self._replace(spheres=spheres[: count // spheres[0, ..., 0].numel()].clone())


@functools.cache
def _ones(shape: torch.Size, device: torch.device) -> Tensor:
    return torch.ones(shape, device=device)


def contenders_of(problem: Problem, seconds: float) -> dict[str, Contender]:
    """Who computes a problem; slow ones get fewer rows, for calls of about some seconds."""
    workload, spheres = problem.workload, problem.spheres.detach()
    threads = torch.get_num_threads() if spheres.device.type == "cpu" else 1

    def of_rows(function: Callable[..., Tensor], **more: Any) -> Callable[[Tensor], Tensor]:
        def cost(rows: Tensor) -> Tensor:
            index = None if problem.env_index is None else problem.env_index[: len(rows)]
            options = {"activation_distance": ACTIVATION_DISTANCE, "env_index": index, **more}
            return function(rows, problem.world, **options)

        return cost

    swept = workload.swept
    slow = of_rows(baseline.swept_sphere_cost if swept else baseline.sphere_cost)
    library = of_rows(swept_sphere_cost if swept else sphere_cost)
    found = {
        "baseline": Contender(slow, spheres, 1).within(seconds),
        "library": Contender(library, spheres, 1),
    }
    if workload.family in ("near", "near-torus"):
        short = of_rows(baseline.sphere_cost, limit=RADIUS + ACTIVATION_DISTANCE)
        found["short search"] = Contender(short, spheres, 1, False).within(seconds)
    if threads > 1:
        found["all threads"] = Contender(library, spheres, threads)
    if workload.family in ("tiny", "free"):
        found["floor"] = Contender(Floor(problem).cost, spheres, 1)
    return found


def check_all(problem: Problem, contenders: dict[str, Contender]) -> dict[str, float | None]:
    """Runs and checks every contender; the largest error [m] of each that has to be exact."""
    errors: dict[str, float | None] = {}
    content, swept = problem.content, problem.workload.swept
    for name, one in contenders.items():
        with harness.cpu_threads(one.threads):
            results = one.run()
        try:
            errors[name] = truth.check(content, *results, swept) if one.is_exact else None
        except WrongResultError as error:
            raise WrongResultError(f"{problem.workload.name}, {name}: {error}") from None
    return errors


def measure(problem: Problem, *, rounds: int = 100, seconds: float = 4.0) -> dict[str, Any]:
    """Checks and times every contender of a problem.

    Args:
        problem: what to compute.
        rounds: of all contenders in turn, at most.
        seconds: about how long all rounds may take together; three rounds are run in any case.

    Returns:
        The workload; "timings" by contender, in seconds per sphere; "speedups" over the baseline;
        "against": time of the library over that of others; "active", the fraction of the spheres
        that cost something; "identical", whether all CPU threads gave the same bits as one.

    Raises:
        WrongResultError: a contender that has to be exact is not.
    """
    contenders = contenders_of(problem, seconds / 10.0)
    errors = check_all(problem, contenders)
    calls = {name: one.call for name, one in contenders.items()}
    times = harness.interleave(calls, rounds, seconds=seconds, device=problem.spheres.device)
    timings = {}
    for name, values in times.counted.items():
        low, median, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        timings[name] = {
            **{"median": median, "low": low, "high": high},
            "clock": float(np.median(times.clock[name])),
            **{"spheres": calls[name].items, "rounds": len(values), "error": errors[name]},
        }
    library, workload = contenders["library"], problem.workload
    results = library.run()
    identical = None
    if "all threads" in contenders:
        with harness.cpu_threads(contenders["all threads"].threads):
            others = contenders["all threads"].run()
        identical = all(torch.equal(a, b) for a, b in zip(results, others, strict=True))
    others = [name for name in contenders if name != "library"]
    counted = times.counted
    return {
        "workload": workload.name,
        **{key: getattr(workload, key) for key in ("family", "size", "summary")},
        "spheres": problem.spheres[..., 0].numel(),
        "active": float((results[0] > 0.0).float().mean()),
        "timings": timings,
        "speedups": {n: harness.ratio(counted["baseline"], counted[n]) for n in contenders},
        "against": {name: times.ratio("library", over=name) for name in others},
        "identical": identical,
    }


def compare(problem: Problem, other: Problem, *, rounds: int = 7, seconds: float = 4.0) -> float:
    """Time per sphere of the library on one problem over that on another, measured in turns."""
    pair = {
        name: contenders_of(each, seconds / 20.0)["library"].within(seconds / 20.0).call
        for name, each in (("first", problem), ("second", other))
    }
    device = problem.spheres.device
    times = harness.interleave(pair, rounds, seconds=seconds, device=device)
    return times.ratio("first", over="second")


def add_options(parser: Any) -> None:
    """Which workloads, how large and how long, and where results go."""
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        default=[],
        help="workloads by name or beginning of a name; without peers and what is paid once",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the number of spheres")
    parser.add_argument("--seconds", type=float, default=4.0, help="for a workload (default 4)")
    parser.add_argument("--no-peers", action="store_true", help="leave other libraries out")
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="folder of the results")
    parser.add_argument("--list", action="store_true", help="list the workloads")


def run(options: Any) -> str:
    """Measures workloads, pairs of them, peers, and what is paid once; keeps figures as they come.

    What raised, a wrong result say, is in "failed" of the results: what it was, and the message.
    """
    if options.list:
        return "\n".join(f"{w.name:20s} {w.summary}" for w in WORKLOADS.values())
    for prefix in options.only:
        if not any(name.startswith(prefix) for name in WORKLOADS):
            raise Failed(f"--only must name workloads, {prefix!r} is none; see --list", 2)
    device, seconds = options.device, options.seconds
    names = [n for n in WORKLOADS if not options.only or n.startswith(tuple(options.only))]
    results = {**_machine(device), "scale": options.scale, "workloads": [], "pairs": {}}
    results |= {"once": {}, "peers": [], "failed": {}}

    @functools.cache
    def problem(name: str) -> Problem:
        return build(WORKLOADS[name], device, options.scale)

    def measure_workload(name: str) -> None:
        found = measure(problem(name), seconds=seconds)
        results["workloads"].append(found)
        library, speed = found["timings"]["library"]["median"], found["speedups"]["library"]
        note = ", BUT all threads gave other bits than one" if found["identical"] is False else ""
        print(f"  {micro(library)} µs per sphere, {speed:.3g} times the baseline's speed{note}")

    def measure_pair(*pair: str) -> None:
        found = compare(*map(problem, pair), seconds=0.5 * seconds)
        results["pairs"][" / ".join(pair)] = found

    def measure_once() -> None:
        problem.cache_clear()
        results["once"] = once(device)

    def measure_peers() -> None:
        results["peers"] = compare_peers(scale=options.scale)

    steps = [(f"{n}: {WORKLOADS[n].summary}", measure_workload, (n,)) for n in names]
    pairs = [pair for pair in PAIRS if set(pair) <= set(names)]
    steps += [(" against ".join(pair), measure_pair, pair) for pair in pairs]
    if not options.only:
        steps.append(("first calls, adding, moving, memory", measure_once, ()))
    if not options.only and not options.no_peers:
        steps.append(("other libraries", measure_peers, ()))
    announce = harness.announcer(len(steps))
    for what, step, arguments in steps:
        announce(what)
        try:
            step(*arguments)
        except Exception as error:
            results["failed"][what] = f"{type(error).__name__}: {error}"
            print(f"  failed: {results['failed'][what]}")
        write_figures(results, options.out)
    for file in write(results, options.out):
        print(file)
    text = markdown(results)
    if results["failed"]:
        raise Failed(text)
    return text


def _machine(device: torch.device) -> dict[str, Any]:
    title, versions = harness.machine(device), harness.versions()
    slug = "cpu"
    if device.type == "cuda":
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        versions["CUDA"] = str(torch.version.cuda)
    return {"device": slug, "device_type": device.type, "title": title, "versions": versions}


def write_figures(results: dict[str, Any], folder: Path) -> Path:
    """Writes `<device>.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{results['device']}.json"
    results = {**results, "targets": evaluate(results)}
    file.write_text(json.dumps(results, indent=1, default=lambda value: value.item()) + "\n")
    return file


def write(results: dict[str, Any], folder: Path) -> list[Path]:
    """Writes `<device>.json`, `<device>.md` and, with matplotlib, two pictures; the files."""
    files = [write_figures(results, folder), folder / f"{results['device']}.md"]
    files[1].write_text(markdown(results))
    try:
        from benchmarks.plots import draw
    except ImportError:
        return files
    return files + draw(results, folder)


def markdown(results: dict[str, Any]) -> str:
    """All tables of a run."""
    facts = ", ".join(f"{key} {value}" for key, value in results["versions"].items())
    text = (
        f"{facts}. Medians of calls in turns, forward and backward. Every result was checked "
        "against the float64 reference before it counted.\n"
    )
    tables = {
        "Targets": _targets(evaluate(results)),
        "Workloads": _workloads(results["workloads"]),
        "Pairs": _values(["time of the library per sphere", "ratio"], results["pairs"]),
        "Paid once, and memory": _values(["what", "measured"], results["once"]),
        "Other libraries": _peers(results["peers"]),
        "Failed": "\n".join(f"- {k}: {v}" for k, v in results["failed"].items()),
    }
    return "\n".join(
        [f"# {results['title']}\n", text, *filter(None, (section(*t) for t in tables.items()))]
    )


def _targets(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        stretch = f" ({number(row['stretch'])})" if row["stretch"] else ""
        bound = f"{'≥' if row['at_least'] else '≤'} {number(row['bound'])}{stretch}"
        verdict = "met" if row["met"] else "**missed**"
        cells.append([row["target"], bound, number(row["value"]), verdict])
    return table(["target", "bound (stretch)", "measured", ""], cells) if cells else ""


def _workloads(rows: list[dict[str, Any]]) -> str:
    others = ("short search", "all threads", "floor")
    shown = [name for name in others if any(name in row["timings"] for row in rows)]
    head = ["workload", "what", "spheres", "active", "baseline [µs]", "library [µs]", "speed"]

    def median(row: dict[str, Any], name: str) -> str:
        return micro(row["timings"][name]["median"]) if name in row["timings"] else ""

    cells = [
        [
            *(f"`{row['workload']}`", row["summary"], str(row["spheres"]), f"{row['active']:.0%}"),
            *(median(row, "baseline"), median(row, "library")),
            f"{number(row['speedups']['library'])}x",
            *(median(row, name) for name in shown),
        ]
        for row in rows
    ]
    return table(head + [f"{name} [µs]" for name in shown], cells, 2) if cells else ""


def _values(head: Sequence[str], values: dict[str, float]) -> str:
    return table(head, ([name, number(value)] for name, value in values.items())) if values else ""


def _peers(rows: list[dict[str, Any]]) -> str:
    head = ["mesh", "library", "points per second, relative", "µs per point", "largest error [mm]"]
    cells = [
        [
            *(row["mesh"], row["peer"], f"{row['speed']:.2f}", f"{row['microseconds']:.2f}"),
            f"{1000 * row['error']:.5f}",
            "none known" if row["wrong_signs"] is None else f"{row['wrong_signs']}/{row['sample']}",
        ]
        for row in rows
    ]
    return table([*head, "wrong signs"], cells, 2) if cells else ""

"""One device: batches of 1 to 65,536, plans, sensing, labels and first calls, with their memory.

Each line has the median and the 99th percentile of the time of one call by the clock, until the
device has done its work, and the memory that the call added at its peak. What a call returns is
compared with the CPU before it is timed. Lines are written as they are measured, so that a run
that is cut off keeps those before.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import warp as wp
from torch import Tensor

import warp_collision as wc
from benchmarks import first_call, harness
from benchmarks.harness import CPU, require
from benchmarks.label import rows_of, worlds_of
from benchmarks.scenes import bent_paths
from benchmarks.sensed import points_of
from warp_collision.devices import GPUS, is_gpu, synchronize_all
from warp_collision.examples import load_panda, load_problem, world_of
from warp_collision.labeling import PathLabeler
from warp_collision.planning import optimize_paths

BATCHES = (1, 8, 64, 1_024, 8_192, 65_536)
COMPARED = 64  # rows of a batch whose answers are computed on the CPU too
PLANNED = (1, 8, 64)
LENS = (520.0, 520.0, 319.5, 239.5)
LOOKS_ALONG_X = (0, 0, 0, 0.5, -0.5, 0.5, -0.5)


class Line(NamedTuple):
    """What is timed: a name, how many a call answers, and how a call is made and checked."""

    name: str
    items: int
    make: Callable[[], Callable[[], object]]


class Among(NamedTuple):
    """The Panda in a cage, on a device and on the CPU, and paths of two waypoints."""

    device: torch.device
    robot: Any
    worlds: tuple[wc.MeshWorld, wc.MeshWorld]
    motions: Tensor  # (n, 2, n_joints), on the CPU

    def of(self, count: int) -> Tensor:
        """So many motions on the device; some occur again."""
        return self.motions[torch.arange(count) % len(self.motions)].to(self.device)


def among(device: torch.device) -> Among:
    """4,096 motions of half a radian or so."""
    robot, problem, joints = bent_paths(133, "cage_2")
    pairs = joints.unfold(1, 2, 1).transpose(2, 3).flatten(0, 1)[:4096].contiguous()
    return Among(device, robot, (world_of(problem, device), world_of(problem, CPU)), pairs)


def same(ask: Callable[[Tensor, wc.MeshWorld], Tensor], given: Among, rows: Tensor) -> None:
    """Raises where the device has another answer than the CPU."""
    some = rows[:COMPARED]
    here, there = ask(some, given.worlds[0]).detach().cpu(), ask(some.cpu(), given.worlds[1])
    right = torch.allclose(here.double(), there.detach().double(), rtol=1e-4, atol=1e-4)
    require(right, "another answer than on the CPU")


def answers(query: Callable[..., Any], given: Among, count: int) -> Callable[[], object]:
    """Queries of configurations, or of motions."""
    rows = given.of(count)
    rows = rows[:, 0] if query is wc.configuration_in_collision else rows

    def ask(joints: Tensor, world: wc.MeshWorld) -> Tensor:
        found = query(joints, given.robot, world)
        return found if isinstance(found, Tensor) else found.lower

    same(ask, given, rows)
    return partial(ask, rows, given.worlds[0])


def gradients(ask: Callable[[Tensor, wc.MeshWorld], Tensor], given: Among, count: int) -> Any:
    """Costs, forward and backward."""
    rows = given.of(count)
    same(ask, given, rows)
    leaf = rows.requires_grad_()
    return lambda: torch.autograd.grad(ask(leaf, given.worlds[0]).sum(), leaf)


def batches(given: Among, most: int) -> Iterator[Line]:
    """Yes or no, bounds and costs of few and of many."""
    robot = given.robot
    asked = {
        "configuration_in_collision": partial(answers, wc.configuration_in_collision),
        "joint_path_in_collision": partial(answers, wc.joint_path_in_collision),
        "joint_path_clearance": partial(answers, wc.joint_path_clearance),
        "sphere_cost and gradient": partial(
            gradients, lambda q, world: wc.sphere_cost(robot(q), world)
        ),
        "joint_path_cost and gradient": partial(
            gradients, lambda q, world: wc.joint_path_cost(q, robot, world)
        ),
    }
    for count in BATCHES:
        for name, make in asked.items() if count <= most else ():
            yield Line(f"{name}, {count:,}", count, partial(make, given, count))


def plan(
    device: torch.device, count: int, until: Literal["first", "converged"]
) -> Callable[[], object]:
    """Problems of one kind among the same obstacles, moved a little; proven by the CPU."""
    problem, robot = load_problem("cage_2"), load_panda()
    moved = np.random.default_rng(5).normal(0.0, 0.01, (2, count, robot.n_joints))
    ends = (
        np.array([problem.start, problem.goal])[:, None] + moved * (np.arange(count) > 0)[:, None]
    )
    start, goal = torch.from_numpy(ends).float().to(device)
    world, known = world_of(problem, device), world_of(problem, CPU)

    def run() -> Any:
        given = {"generator": torch.Generator().manual_seed(0), "on_invalid_endpoints": "mark"}
        return optimize_paths(start, goal, robot, world, until=until, **given)

    found = run()
    free = found.free.cpu()
    require(bool(free[0]), "the first problem has no path")
    paths = found.joints.cpu()[free]
    touches = wc.joint_path_in_collision(paths, robot, known, tolerance=1e-4)
    require(not touches.any(), "a path that the CPU does not prove")
    return run


def image(device: torch.device) -> Tensor:
    """A wall with a box before it, with a millimetre of noise."""
    depth = torch.full((480, 640), 1.5)
    depth[200:300, 250:350] = 0.8
    noise = torch.randn(depth.shape, generator=torch.Generator().manual_seed(0))
    return (depth + 1e-3 * noise).to(device)


def cloud_from_image(device: torch.device) -> Callable[[], object]:
    """A depth image as a cloud."""
    depth = image(device)
    return lambda: wc.PointCloud.from_depth(depth, LENS, LOOKS_ALONG_X, stride=2)


def map_of_image(device: torch.device) -> Callable[[], object]:
    """A depth image into a map at 2 cm."""
    depth, box = image(device), ((0.3, -1.0, -1.0), (2.3, 1.0, 1.0))
    seen = wc.OccupancyMap(box, 0.02)
    return lambda: seen.integrate(depth, LENS, LOOKS_ALONG_X)


def cloud_update(device: torch.device, count: int, captured: bool) -> Callable[[], object]:
    """New points into a cloud with room for them, as a call of Python or as a replayed graph."""
    points = points_of(count)
    world = wc.MeshWorld(device=device)
    world.add("cloud", wc.PointCloud(points, 0.005, capacity=count))
    moved, spheres = torch.from_numpy(points).to(device) + 1e-3, torch.zeros(1, 1, 1, 4)
    wc.sphere_cost(spheres.to(device), world)
    update: Callable[[], object] = partial(world.update, "cloud", moved)
    if captured:
        gpu: Any = GPUS[device.type]
        graph = gpu.CUDAGraph()
        with gpu.graph(graph):
            update()
        update = graph.replay
    update()
    synchronize_all(device)
    known: Any = world.report("cloud").shape
    new = np.unique(moved.cpu().numpy(), axis=0)
    require(np.array_equal(np.unique(known.points, axis=0), new), "other points than were given")
    return update


def labels(device: torch.device, rows: int) -> Callable[[], object]:
    """Yes or no of paths of 32 waypoints in a fifth as many worlds."""
    worlds = worlds_of(max(1, rows // 5))
    asked = rows_of(rows, [*worlds])
    here, there = (PathLabeler(load_panda(), worlds, device=where) for where in (device, CPU))
    right = np.array_equal(here.label(asked)["free"], there.label(asked)["free"])
    require(right, "other labels than on the CPU")
    return lambda: here.label(asked)


def lines(options: Any) -> Iterator[Line]:
    """All but first calls, few before many."""
    device, scale = options.device, options.scale

    def some(count: int) -> int:
        return max(1, round(count * scale))

    for count in PLANNED[: 1 if scale < 0.1 else None]:
        yield Line(f"plan, first, {count}", count, partial(plan, device, count, "first"))
        yield Line(f"plan, converged, {count}", count, partial(plan, device, count, "converged"))
    yield Line("640 x 480 pixels, a cloud", 1, partial(cloud_from_image, device))
    yield Line("640 x 480 pixels, a map", 1, partial(map_of_image, device))
    for captured in (False, True) if is_gpu(device) else (False,):
        how, points = "replayed" if captured else "called", some(100_000)
        name = f"{points:,} points updated, {how}"
        yield Line(name, 1, partial(cloud_update, device, points, captured))
    yield Line("labels", some(1_000), partial(labels, device, some(1_000)))
    yield from batches(among(device), some(BATCHES[-1]))


def peak(device: torch.device, call: Callable[[], object]) -> float:
    """MiB that a call needs on a GPU at its peak, of torch and of Warp together; NaN on a CPU."""
    if device.type != "cuda":
        return float("nan")
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    kept = torch.cuda.memory_allocated(device), wp.get_mempool_used_mem_current(str(device))
    call()
    torch.cuda.synchronize(device)
    most = torch.cuda.max_memory_allocated(device), wp.get_mempool_used_mem_high(str(device))
    return (sum(most) - sum(kept)) / 2**20


def timed(call: Callable[[], object], device: torch.device, options: Any) -> np.ndarray:
    """Seconds of each of as many calls as there is time for; two at least, where they may be."""
    call()
    taken: list[float] = []
    begin = time.perf_counter()
    while len(taken) < options.calls and time.perf_counter() - begin < options.seconds:
        synchronize_all(device)
        started = time.perf_counter()
        call()
        synchronize_all(device)
        taken.append(time.perf_counter() - started)
    return np.array(taken)


def add_options(parser: Any) -> None:
    """The device, and how long."""
    parser.add_argument("--device", type=torch.device, default=CPU, help="cpu (default) or cuda")
    parser.add_argument("--calls", type=int, default=200, help="of a line at most (default 200)")
    parser.add_argument("--seconds", type=float, default=0.5, help="for a line (default 0.5)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the largest batches")
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of names of lines")
    parser.add_argument("--cold", action="store_true", help="first calls alone, in new processes")


def cold(device: torch.device) -> str:
    """Seconds by the clock of the first calls of new processes, with an empty kernel cache."""
    rows = []
    for name, (prepare, call) in first_call.FIRST_CALLS.items():
        with TemporaryDirectory() as cache:
            cells = [name]
            for _ in range(2):
                asked = first_call.on_device(prepare, call, str(device))
                cells.append(
                    f"{float(first_call.process(['-c', asked], cache)[0].split()[-1]):.2f}"
                )
            rows.append(cells)
            print(*cells, sep="  ", flush=True)
    return harness.table(["first call, s", "empty kernel cache", "full"], rows)


def run(options: Any) -> str:
    """The table."""
    if options.cold:
        return f"{harness.machine(options.device)}\n\n{cold(options.device)}"
    chosen = [line for line in lines(options) if line.name.startswith(tuple(options.only))]
    if not chosen:
        raise harness.Failed(f"no line is called {' or '.join(options.only)}", 2)
    head = ["line", "in a call", "p50 [µs]", "p99 [µs]", "µs for one", "peak [MiB]"]
    partial_file: Path | None = options.write and options.write.with_suffix(".partial.md")
    rows: list[list[str]] = []
    failed: list[str] = []
    text = ""
    for line in chosen:
        try:
            call = line.make()
            memory, taken = peak(options.device, call), 1e6 * timed(call, options.device, options)
            middle, late = np.percentile(taken, (50, 99))
            figures = middle, late, middle / line.items, memory
            rows.append([line.name, str(line.items), *map(harness.number, figures)])
            print(*rows[-1], sep="  ", flush=True)
        except Exception as error:
            failed.append(f"- {line.name}: {type(error).__name__}: {error}")
            print(failed[-1], flush=True)
        text = f"{harness.machine(options.device)}\n\n{harness.table(head, rows)}"
        text = "\n".join([text, "Failed:\n", *failed]) if failed else text
        if partial_file:
            partial_file.write_text(text)
    if failed:
        raise harness.Failed(text)
    if partial_file:
        partial_file.unlink()
    return text

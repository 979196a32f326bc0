"""What kernels execute per sphere on a GPU, counted without one, and the least time that takes.

Runs the PTX that NVRTC writes for sm_90 on the simulated GPU of the tests, and counts instructions
and loads of all threads. The estimates per thread, for an H200 that is full of them (132
multiprocessors at 1.98 GHz, 67 TFLOP/s of float32, 4.8 TB/s), are bounds of a model; nothing here
was measured on a GPU.

- *of a warp's*: instructions of threads over those that their warps issue, 1 without divergence
- *warps*: that fit on a multiprocessor, of 64
- *compute*: all warps issue their instructions without a pause, four in a cycle and multiprocessor,
  which is the roof of 67 TFLOP/s: that counts two operations for an instruction of 32 threads
- *memory*: what a sphere has to read and write, 37 bytes, passes once; joint values are fewer
- *roofline*: the larger of both, a bound from below
- *no cache*: if all bytes that are loaded came from memory, a bound from above
- *waits*: if a warp waited 260 cycles for each load, as from the L2 cache, while others went on

A launch that fills the GPU should take between the roofline and the larger of the last two. It
needs a C++ compiler and Warp with NVRTC; compiling takes minutes the first time.

The second table has launches for few and for many motions of 1 rad, and configurations, of a Panda
in a cage: with a thread for each, and shared by several threads of a warp. Of 1 and of 8 at a time
they are means over 64.

- *busiest*: instructions of the busiest thread of a launch
- *of a warp*: what it issues, on average, if its threads stay together wherever they do the same
- *roofline*: the larger one of both, one in a cycle, or what all warps issue, four in a cycle and
  multiprocessor, whichever is more
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch

import simulated_cuda
import warp_collision as wc
from benchmarks import registers
from benchmarks.functions import set_up
from benchmarks.harness import Failed, number, require, table
from benchmarks.scenes import ACTIVATION_DISTANCE, build
from simulated_cuda import ptx_kernels, torch_module
from warp_collision.kernels import joint_path_hit, path_clearance, sphere_cost, swept_cost
from warp_collision.launching.recorded_launch import threads_for_each
from warp_collision.robot.checks import path_operators

# Of an H200 SXM: its data sheet; 4 warp instructions and 128 bytes of L1 in a cycle.
MULTIPROCESSORS = 132
CLOCK = 1.98e9  # [Hz], boost
ISSUED = 4  # warp instructions in a cycle
MEMORY = 4.8e12  # [bytes/s]
L2_LATENCY = 260  # [cycles], as Luo et al. (arXiv:2402.13499) measured of an H100, rounded
OUTER_BYTES = 37  # of a sphere: read and written once, cost, gradient and flag too
# Workloads of `costs`, and how much of each.
SCALES = {
    **dict.fromkeys(("near-torus-16000", "near-link", "near-kitchen"), 0.05),
    **dict.fromkeys(("deep-link", "deep-torus-16000", "scene-10", "scene-1000"), 0.05),
    **{"envs": 0.02, "panda-1": 1.0, "panda-swept-1": 1.0, "free": 1.0, "free-swept": 1.0},
}


CHECKS = {
    "configuration_in_collision": (joint_path_hit.configuration_hit, "configuration"),
    "joint_path_in_collision": (joint_path_hit.joint_path_hit, "segment"),
    "joint_path_clearance": (path_clearance.joint_path_clearance, "segment"),
}
# Motions, or configurations, of a launch: few of them are shared by the threads of a warp.
FEW_AND_MANY = 1, 8, 64, 1024, 65536
SHARED = "configuration_in_collision", "joint_path_in_collision"


class Run(NamedTuple):
    """A workload: its kernel, a call that launches it once, and what a thread of it is for."""

    name: str
    kernel: Any
    call: Callable[[], object]
    thread: str = "sphere"


def workloads(device: torch.device, only: tuple[str, ...]) -> Iterator[Run]:
    """Costs of spheres, and checks of robots' configurations and paths."""
    for name, scale in SCALES.items():
        if name.startswith(only):
            problem = build(name, device, scale)
            kernel = swept_cost.swept_cost if problem.swept else sphere_cost.sphere_cost
            cost = wc.swept_sphere_cost if problem.swept else wc.sphere_cost
            operands = problem.spheres.requires_grad_(True), problem.world
            index, eta = problem.env_index, ACTIVATION_DISTANCE
            yield Run(
                name, kernel, partial(cost, *operands, env_index=index, activation_distance=eta)
            )
    for name, (kernel, thread) in CHECKS.items():
        if name.startswith(only):
            given = set_up(1, device)
            ask = partial(getattr(wc, name), given.joints, given.robot, given.world)
            yield Run(name, kernel, partial(shared_by, 1, ask), thread)


def counted(run: Run, device: torch.device) -> dict[str, int]:
    """What all threads of a call do."""
    run.call()  # what is made at a first query does not count
    torch_module.synchronize(device)
    before = ptx_kernels.use(ptx_kernels.COUNTED)
    try:
        ptx_kernels.take_counts(run.kernel)
        run.call()
        torch_module.synchronize(device)
        return ptx_kernels.take_counts(run.kernel)
    finally:
        ptx_kernels.use(before)


def row_of(run: Run, counts: dict[str, int]) -> list[str]:
    """A row of the table."""
    module = run.kernel.module.name.rpartition(".")[2]
    taken = registers.read_kept()["kernels"][module][run.kernel.key]
    warps = registers.warps_of(taken, run.kernel.module.options["block_dim"])
    n = counts["threads"]
    per_second = MULTIPROCESSORS * CLOCK
    compute = counts["warp_instructions"] / 32 / (per_second * ISSUED) / n
    waits = counts["warp_loads"] / 32 * L2_LATENCY / (per_second * warps) / n
    memory, no_cache = OUTER_BYTES / MEMORY, counts["loaded_bytes"] / MEMORY / n
    seconds = compute, memory, max(compute, memory), no_cache, waits
    return [
        run.name,
        f"{run.kernel.key}, {run.thread}",
        number(counts["instructions"] / n),
        number(counts["loads"] / n),
        number(counts["loaded_bytes"] / n),
        f"{counts['instructions'] / counts['warp_instructions']:.2f}",
        str(warps),
        *(number(1e9 * each) for each in seconds),
    ]


def shared_by(threads: int, call: Callable[[], torch.Tensor]) -> torch.Tensor:
    """A check for which so many threads of a warp share each motion or configuration."""
    with patch.object(path_operators, "threads_for_each", lambda *_: threads):
        return call()


def random_motions(robot: wc.RobotSpheres, count: int, device: torch.device) -> torch.Tensor:
    """Motions (count, 2, n_joints) of 1 rad that begin anywhere within the limits."""
    rng = np.random.default_rng(1)
    begin = rng.uniform(*robot.joint_limits.cpu().double().numpy().T, (count, robot.n_joints))
    way = rng.normal(size=begin.shape)
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    return torch.from_numpy(np.stack((begin, begin + way), axis=1)).float().to(device)


def shared_rows(name: str, device: torch.device, counts: Sequence[int]) -> Iterator[list[str]]:
    """Rows of the second table for one of the checks."""
    kernel, given = CHECKS[name][0], set_up(1, device)
    ask = partial(getattr(wc, name), robot=given.robot, world=given.world)
    for n in counts:
        joints = random_motions(given.robot, max(n, 64), device)
        launches = (joints[:, :1] if name == SHARED[0] else joints).split(n)
        answers: list[torch.Tensor] = []
        for threads in sorted({1, threads_for_each(n, MULTIPROCESSORS)}):
            calls = [partial(shared_by, threads, partial(ask, each)) for each in launches]
            answers.append(torch.cat([call() for call in calls]).cpu())
            found = [counted(Run(name, kernel, call), device) for call in calls]
            require(torch.equal(answers[0], answers[-1]), f"answers of {name} differ")
            mean = {key: sum(each[key] for each in found) / len(found) for key in found[0]}
            n_warps = -(-n * threads // 32)
            of_warp = mean["issued"] / n_warps
            busiest = max(mean["busiest"], of_warp)
            seconds = max(busiest, mean["issued"] / (MULTIPROCESSORS * ISSUED)) / CLOCK
            figures = mean["busiest"], of_warp, mean["instructions"] / n, 1e6 * seconds
            yield [name, str(n), str(threads), *map(number, figures)]


def add_options(parser: Any) -> None:
    """Which workloads."""
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of names of workloads")
    parser.add_argument(
        "--counts", nargs="+", type=int, default=FEW_AND_MANY, help="of motions in the second table"
    )


def run(options: Any) -> str:
    """What the columns are, and the table."""
    for reason in (simulated_cuda.reason_against(), ptx_kernels.reason_against()):
        if reason:
            raise Failed(reason, 2)
    simulated_cuda.install()
    device = torch.device(simulated_cuda.NAME, 0)
    rows = [row_of(run, counted(run, device)) for run in workloads(device, tuple(options.only))]
    head = ["workload", "kernel, a thread for each", "instructions", "loads", "bytes loaded"]
    head += ["of a warp's", "warps", "compute [ns]", "memory [ns]", "roofline [ns]"]
    head += ["no cache [ns]", "waits [ns]"]
    text = f"{__doc__}\n{table(head, rows, 2)}"
    shared = [name for name in SHARED if name.startswith(tuple(options.only))]
    rows = [row for name in shared for row in shared_rows(name, device, options.counts)]
    head = ["check", "at a time", "threads for each", "busiest", "of a warp"]
    head += ["instructions for each"]
    return f"{text}\n{table([*head, 'roofline [µs]'], rows)}" if rows else text

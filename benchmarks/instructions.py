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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

import simulated_cuda
import warp_collision as wc
from benchmarks import registers
from benchmarks.functions import set_up
from benchmarks.harness import Failed, number, table
from benchmarks.scenes import ACTIVATION_DISTANCE, build
from simulated_cuda import ptx_kernels, torch_module
from warp_collision.kernels import joint_path_hit, path_clearance, sphere_cost, swept_cost

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
    checks = {
        "configuration_in_collision": (joint_path_hit.configuration_hit, "configuration"),
        "joint_path_in_collision": (joint_path_hit.joint_path_hit, "segment"),
        "joint_path_clearance": (path_clearance.joint_path_clearance, "segment"),
    }
    for name, (kernel, thread) in checks.items():
        if name.startswith(only):
            given = set_up(1, device)
            call = partial(getattr(wc, name), given.joints, given.robot, given.world)
            yield Run(name, kernel, call, thread)


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


def add_options(parser: Any) -> None:
    """Which workloads."""
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of names of workloads")


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
    return f"{__doc__}\n{table(head, rows, 2)}"

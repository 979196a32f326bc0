"""What is paid once or in bytes: the first call, adding a mesh, moving all meshes, memory."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import cpu_threads, seconds_of
from benchmarks.shapes import random_poses, shape
from benchmarks.workloads import WORKLOADS, build
from warp_collision import MeshWorld, sphere_cost, swept_sphere_cost

ROOT = Path(__file__).resolve().parents[1]
MESHES = 1_000
_SPHERE = (1, 1, 1, 4)

# Runs in a process of its own: imports and the world are not counted, compiling or loading is.
_FIRST_CALL = """
import sys, time
import torch, trimesh
from warp_collision import MeshWorld, sphere_cost
world = MeshWorld(1, 1, sys.argv[1])
world.add("box", trimesh.creation.box((1.0, 1.0, 1.0)))
spheres = torch.full((1, 1, 1, 4), 0.5, device=sys.argv[1], requires_grad=True)
begin = time.perf_counter()
sphere_cost(spheres, world).sum().backward()
spheres.grad.cpu()
print(time.perf_counter() - begin)
"""

# What no library with kernels of its own can be below: Warp compiles a kernel that does nothing.
_FIRST_KERNEL = """
import sys, tempfile, time
import warp as wp
wp.init()
@wp.kernel
def nothing(a: wp.array[float]):
    a[wp.tid()] = 0.0
a = wp.zeros(1, device=sys.argv[1])
begin = time.perf_counter()
wp.launch(nothing, 1, [a], device=sys.argv[1])
wp.synchronize()
print(time.perf_counter() - begin)
"""

# In a process of its own too: one that has freed nothing grows by what a mesh takes.
_MESH = """
import sys
import torch
from benchmarks.once import resident
from benchmarks.shapes import shape
from warp_collision import MeshWorld, sphere_cost
spheres = torch.full((1, 1, 1, 4), 0.1)
small, large = shape("torus-200"), shape("torus-80000")
world = MeshWorld(1, 2, "cpu")
world.add("small", small)
sphere_cost(spheres, world)
before = resident()
world.add("large", large)
sphere_cost(spheres, world)
print((resident() - before) / len(large.faces))
"""


def once(device: torch.device) -> dict[str, float]:
    """All of it: name to seconds, bytes, or a ratio."""
    found = first_calls(device)
    found.update(adding(device))
    found["pose update of 1000 meshes [s]"] = pose_update(device)
    found.update(memory(device))
    if device.type == "cpu":
        found["hashing, all threads over one"] = threads()
    return found


def first_calls(device: torch.device) -> dict[str, float]:
    """Seconds of the first call in a process, with an empty kernel cache and with a full one."""
    with tempfile.TemporaryDirectory() as cache:
        nothing = _in_new_file(_FIRST_KERNEL, str(device), cache)
    with tempfile.TemporaryDirectory() as cache:

        def first() -> float:
            return _in_new_process(_FIRST_CALL, str(device), WARP_CACHE_PATH=cache)

        return {
            "a kernel that does nothing, cold kernel cache [s]": nothing,
            "first call, cold kernel cache [s]": first(),
            "first call, warm kernel cache [s]": min(first() for _ in range(3)),
        }


def _in_new_process(code: str, *arguments: str, **environment: str) -> float:
    """The number that a program prints last."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"a program to be measured failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def _in_new_file(code: str, device: str, folder: str) -> float:
    """The same, where Warp has to find the source of kernels in a file."""
    path = Path(folder) / "measured.py"
    path.write_text(code)
    return _in_new_process(
        f"import runpy; runpy.run_path({str(path)!r})", device, WARP_CACHE_PATH=folder
    )


def adding(device: torch.device) -> dict[str, float]:
    """Seconds to add a mesh of 80,000 triangles, and of the first query that looks at it."""
    mesh = shape("torus-80000")
    spheres = torch.full(_SPHERE, 0.1, device=device)
    MeshWorld(1, 1, device).add("first", shape("torus-200"))  # loads the kernels

    def once_more() -> tuple[float, float]:
        world = MeshWorld(1, 1, device)
        add = seconds_of(lambda: world.add("mesh", mesh), device).clock
        return add, seconds_of(lambda: sphere_cost(spheres, world), device).clock

    add, query = np.median([once_more() for _ in range(5)], axis=0)
    return {
        "adding 80000 triangles [s]": float(add),
        "first query after adding 80000 triangles [s]": float(query),
    }


def pose_update(device: torch.device) -> float:
    """Seconds to move 1,000 meshes from a tensor on the device, the tree over them included.

    On a GPU the call returns before the work is done; here both are counted.
    """
    problem = build(WORKLOADS[f"scene-{MESHES}"], device, 0.01)
    edge = (MESHES / 8.0) ** (1.0 / 3.0)
    poses = torch.from_numpy(random_poses(np.random.default_rng(8), MESHES, edge)).to(device)
    sphere_cost(problem.spheres, problem.world)  # builds the tree
    with cpu_threads(1):
        runs = [seconds_of(lambda: problem.world.set_poses(poses), device) for _ in range(20)]
    return float(np.median([run.clock for run in runs]))


def threads() -> float:
    """How much faster all CPU threads are than one at work that shares nothing: hashing.

    No library can be above that; on a machine that others use it is below the number of threads.
    """
    count, data = torch.get_num_threads(), bytes(4_000_000)

    def work(_: int) -> None:
        hashlib.sha256(data).digest()  # releases the GIL

    cpu = torch.device("cpu")
    with ThreadPoolExecutor(count) as pool:
        ratios = [
            seconds_of(lambda: [work(i) for i in range(count)], cpu).clock
            / seconds_of(lambda: list(pool.map(work, range(count))), cpu).clock
            for _ in range(31)
        ]
    return float(np.median(ratios))


def memory(device: torch.device) -> dict[str, float]:
    """Bytes per sphere beyond cost and gradient, and bytes of a mesh."""
    problem = build(WORKLOADS["panda-16"], device)
    count = problem.spheres[..., 0].numel()
    outputs = 4 + 16

    def of(cost: Callable[..., torch.Tensor]) -> float:
        leaf = problem.spheres.detach().requires_grad_(True)
        cost(leaf, problem.world)
        return allocated(lambda: cost(leaf, problem.world), device) / count - outputs

    found = {
        "bytes per resting sphere, beyond outputs": of(sphere_cost),
        "bytes per moving sphere, beyond outputs": of(swept_sphere_cost),
    }
    if device.type == "cpu" and resident() > 0:
        found["bytes per triangle, mesh of 80000"] = _in_new_process(_MESH)
    return found


def allocated(run: Callable[[], object], device: torch.device) -> float:
    """Bytes that torch allocates during a call."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return float(torch.cuda.max_memory_allocated(device) - before)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it writes to standard error
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        kept = run()  # what is freed again would not be counted
    del kept
    return float(
        sum(max(0, event.self_cpu_memory_usage) for event in profile.function_events or ())
    )


def resident() -> int:
    """Bytes of memory of this process, 0 where the system does not tell."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    line = next(row for row in status.read_text().splitlines() if row.startswith("VmRSS"))
    return 1024 * int(line.split()[1])

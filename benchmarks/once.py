"""What is paid once or in bytes: the first call, adding a mesh, moving all meshes, memory."""

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

from benchmarks.harness import ROOT, Call, WrongResultError, cpu_threads, interleave, seconds_of
from benchmarks.scenes import WORKLOADS, build, random_poses, shape
from warp_collision import MeshWorld, sphere_cost, swept_sphere_cost
from warp_collision.poses import invert_pose, to_rows

MESHES = 1_000

# Runs in a process of its own: imports and the world are not counted, compiling or loading is.
_FIRST_CALL = """
import sys, time
import torch, trimesh
from warp_collision.poses import invert_pose, to_rows
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
import sys, time
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
import torch
from benchmarks.once import resident
from benchmarks.scenes import shape
from warp_collision.poses import invert_pose, to_rows
from warp_collision import MeshWorld, sphere_cost
spheres = torch.full((1, 1, 1, 4), 0.1)
world = MeshWorld(1, 2, "cpu")
for name in ("torus-200", "torus-80000"):
    mesh, before = shape(name), resident()
    world.add(name, mesh)
    sphere_cost(spheres, world)
print((resident() - before) / len(mesh.faces))
"""


def once(device: torch.device) -> dict[str, float]:
    """All of it: name to seconds, bytes, or a ratio."""
    found = {**first_calls(device), **adding(device)}
    found[f"pose update of {MESHES} meshes [s]"] = pose_update(device)
    found |= memory(device)
    if device.type == "cpu":
        found["hashing, all threads over one"] = threads()
    return found


def first_calls(device: torch.device) -> dict[str, float]:
    """Seconds of the first call in a process, with an empty kernel cache and with a full one."""

    def first(code: str, folder: str) -> float:
        return in_new_process(code, str(device), folder=folder)

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        return {
            "a kernel that does nothing, cold kernel cache [s]": first(_FIRST_KERNEL, one),
            "first call, cold kernel cache [s]": first(_FIRST_CALL, other),
            "first call, warm kernel cache [s]": min(first(_FIRST_CALL, other) for _ in range(3)),
        }


def in_new_process(code: str, *arguments: str, folder: str | None = None) -> float:
    """The number that a program prints last; a folder holds its kernel cache and its source."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-W", "ignore"]
    if folder is None:
        command += ["-c", code]
    else:  # Warp has to find the source of kernels in a file
        environment["WARP_CACHE_PATH"] = folder
        command.append(f"{folder}/measured.py")
        Path(command[-1]).write_text(code)
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"a program to be measured failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def adding(device: torch.device) -> dict[str, float]:
    """Seconds to add a mesh of 80,000 triangles, and of the first query that looks at it."""
    mesh, spheres = shape("torus-80000"), torch.full((1, 1, 1, 4), 0.1, device=device)
    MeshWorld(1, 1, device).add("first", shape("torus-200"))  # loads the kernels

    def once_more() -> tuple[float, float]:
        world = MeshWorld(1, 1, device)
        add = seconds_of(lambda: world.add("mesh", mesh), device).clock
        return add, seconds_of(lambda: sphere_cost(spheres, world), device).clock

    add, query = np.median([once_more() for _ in range(5)], axis=0).tolist()
    return {
        "adding 80000 triangles [s]": add,
        "first query after adding 80000 triangles [s]": query,
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
    off = (problem.world.mesh_from_world[0] - to_rows(invert_pose(poses))).abs().max()
    if off > 1e-5:
        raise WrongResultError(f"a pose is off by {off.item():g}")
    return float(np.median([run.clock for run in runs]))


def threads() -> float:
    """How much faster all CPU threads are than one at work that shares nothing: hashing.

    No library can be above that; on a machine that others use it is below the number of threads.
    """
    count, data = torch.get_num_threads(), bytes(4_000_000)

    def work(_: int) -> None:
        hashlib.sha256(data).digest()  # releases the GIL

    with ThreadPoolExecutor(count) as pool:
        calls = {"one": Call(lambda: [*map(work, range(count))], threads=count)}
        calls["all"] = Call(lambda: [*pool.map(work, range(count))], threads=count)
        times = interleave(calls, 31)
    return float(np.median(times.clock["one"] / times.clock["all"]))


def memory(device: torch.device) -> dict[str, float]:
    """Bytes per sphere beyond cost and gradient, and bytes of a mesh."""
    problem = build(WORKLOADS["panda-16"], device)
    leaf, outputs, found = problem.spheres.requires_grad_(True), 4 + 16, {}
    for kind, cost in (("resting", sphere_cost), ("moving", swept_sphere_cost)):
        cost(leaf, problem.world)
        taken = allocated(lambda cost=cost: cost(leaf, problem.world), device)
        found[f"bytes per {kind} sphere, beyond outputs"] = taken / leaf[..., 0].numel() - outputs
    if device.type == "cpu" and resident() > 0:
        found["bytes per triangle, mesh of 80000"] = in_new_process(_MESH)
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
    events = profile.function_events or ()
    return float(sum(max(0, event.self_cpu_memory_usage) for event in events))


def resident() -> int:
    """Bytes of memory of this process, 0 where the system does not tell."""
    status = Path("/proc/self/status")
    rows = status.read_text().splitlines() if status.exists() else []
    return sum(1024 * int(row.split()[1]) for row in rows if row.startswith("VmRSS"))

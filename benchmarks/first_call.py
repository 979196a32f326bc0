"""What a process pays once: the first cost and gradient, with an empty kernel cache and a full one.

Imports and the world are not counted, compiling or loading kernels is.
"""

import os
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.harness import Failed, table

FIRST_CALL = """
import time
import torch, trimesh
from warp_collision import MeshWorld, sphere_cost
world = MeshWorld(1, 1, "cpu")
world.add("box", trimesh.creation.box((1.0, 1.0, 1.0)))
spheres = torch.full((1, 1, 1, 4), 0.5, requires_grad=True)
begin = time.perf_counter()
sphere_cost(spheres, world).sum().backward()
print(time.perf_counter() - begin)
"""


def first_call(folder: str) -> float:
    """Seconds of the first call in a process whose kernel cache is a folder."""
    environment = {**os.environ, "WARP_CACHE_PATH": folder}
    command = [sys.executable, "-W", "ignore", "-c", FIRST_CALL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"the first call failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def add_options(_: Any) -> None:
    """None of its own."""


def run(_: Any) -> str:
    """The table."""
    with tempfile.TemporaryDirectory() as folder:
        empty, *full = (first_call(folder) for _ in range(4))
    rows = [["empty", f"{empty:.3g}"], ["full", f"{min(full):.3g}"]]
    return table(["kernel cache", "first cost and gradient [s]"], rows)

"""First calls with an empty kernel cache, each in a process of its own, as in a new environment.

Old versions of Warp generate code in several threads without a lock, and mixed up what they made in
a third of such starts: `make test-oldest` runs these.
"""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from warp_collision import Cuboid, MeshWorld, sphere_cost
world = MeshWorld(device="cpu")
world.add("box", Cuboid((1.0, 1.0, 1.0)))
spheres = torch.full((1, 1, 1, 4), 0.4, requires_grad=True)
cost = sphere_cost(spheres, world, activation_distance=0.02)
cost.sum().backward()
print(float(cost.detach()), spheres.grad.flatten().tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10))
def test_a_cold_start_compiles(turn: int, tmp_path) -> None:
    environment = {**os.environ, "WARP_CACHE_PATH": str(tmp_path), "WARP_COLLISION_QUIET": "1"}
    command = [sys.executable, "-P", "-c", SCRIPT]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-2000:]
    cost, gradient = found.stdout.splitlines()[-1].split(" ", 1)
    assert float(cost) == pytest.approx(0.51, abs=1e-5)  # radius 0.4 + 0.1 deep + 0.02 - 0.01
    assert gradient.endswith(" 1.0]")
    assert list(tmp_path.rglob("*.o"))

"""What would be a crash rather than an exception, asked in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ENVIRONMENT = """
import gc, sys
import torch
from warp_collision import MeshWorld, checking, sphere_cost
device = sys.argv[1]
spheres = torch.full((1, 1, 1, 4), float("nan"), device=device)
world = MeshWorld(device=device)
try:
    print(sphere_cost(spheres, world).item())
except ValueError as error:
    print(error)
with checking(False):
    print(sphere_cost(spheres, world).item())
"""
DEAD_IDS = """
import trimesh
from warp_collision.warp_primitives import SdfMeshWarpPy, SweptSdfMeshWarpPy
box = trimesh.creation.box((1.0, 1.0, 1.0))
world.add("box", box)
world.mesh_ids[0, 0] = 4096
spheres = torch.zeros((1, 2, 1, 4), device=device)
one = torch.ones(1, device=device)
buffers = (
    torch.empty_like(spheres[..., 0]), torch.empty_like(spheres),
    torch.empty_like(spheres[..., 0], dtype=torch.uint8),
)
tables = world.mesh_ids, world.mesh_from_world, world.enabled, world.n_meshes
with checking():
    for function, options in ((SdfMeshWarpPy, ()), (SweptSdfMeshWarpPy, (one,))):
        try:
            function.apply(spheres, *buffers, one, one, *options, *tables, one)
        except ValueError as error:
            print(error)
"""
OUTLIVED = """
from warp_collision.warp_primitives import SdfMeshWarpPy

def tables_of(how):
    world = MeshWorld(device=device)
    world.add("box", box)
    tables = world.mesh_ids, world.mesh_from_world, world.enabled, world.n_meshes
    if how == "grown":
        world.grow(max_obstacles=40)
        world.remove("box")
        return world, tables
    return None, tables

for how in ("dropped", "grown"):
    world, tables = tables_of(how)
    gc.collect()
    litter = [torch.rand(50) for _ in range(1000)]
    spheres = torch.tensor([[[[0.0, 0.0, 0.0, 0.1]]]], device=device)
    one = torch.ones(1, device=device)
    with checking(False):
        cost = SdfMeshWarpPy.apply(
            spheres, torch.empty_like(spheres[..., 0]), torch.empty_like(spheres),
            torch.empty_like(spheres[..., 0], dtype=torch.uint8), one, one, *tables, one
        )
    print(cost.item())
"""


def lines_of(script: str, device: torch.device, folder: Path, check: str) -> list[str]:
    """What a script prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(device)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "WARP_COLLISION_CHECK": check},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr}"
    return done.stdout.splitlines()


@pytest.mark.slow
def test_dead_ids_are_found_and_tables_keep_meshes_alive(
    real_device: torch.device, tmp_path: Path
) -> None:
    """Ids by the checking mode of the environment; a world owns its meshes as long as a table."""
    lines = lines_of(ENVIRONMENT + DEAD_IDS + OUTLIVED, real_device, tmp_path, "1")
    assert lines[:2] == ["spheres must be finite, got nan at (0, 0, 0, 0)", "nan"]
    dead, (dropped, grown) = lines[2:-2], map(float, lines[-2:])
    assert len(dead) == 2
    assert all("mesh_idx must hold ids of living" in line and "4096" in line for line in dead)
    assert dropped == pytest.approx(1.1)
    # A table of before the growth may show the mesh that was removed after it, or not.
    assert grown == pytest.approx(1.1) or grown == 0.0


@pytest.mark.slow
def test_an_environment_without_checks(real_device: torch.device, tmp_path: Path) -> None:
    assert lines_of(ENVIRONMENT, real_device, tmp_path, "0") == ["nan", "nan"]

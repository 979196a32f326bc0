"""`warp-collision compile`: all kernels, and none is left for later calls."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from warp_collision import kernels
from warp_collision.cli import compile_kernels
from warp_collision.cli.__main__ import main

QUERY = """
import torch
from warp_collision import Cuboid, MeshWorld, in_collision, swept_sphere_cost
world = MeshWorld(device="cpu")
world.add("block", Cuboid((1.0, 1.0, 1.0)))
spheres = torch.rand(1, 2, 8, 4, requires_grad=True)
swept_sphere_cost(spheres, world).sum().backward()
in_collision(spheres.detach(), world)
world.prepare()
"""


def test_every_module_with_kernels_is_compiled():
    (folder,) = kernels.__path__
    files = [f for f in Path(folder).rglob("*.py") if "wp.set_module_options" in f.read_text()]
    found = [kernel.module.name.rpartition(".")[2] for kernel in compile_kernels.kernels()]
    assert sorted(found) == sorted(file.stem for file in files)
    of_cpus = [file.stem for file in files if file.parent.name == "lanes"]
    found = [
        k.module.name.rpartition(".")[2]
        for k in filter(compile_kernels.is_for_cpus, compile_kernels.kernels())
    ]
    assert found
    assert sorted(found) == sorted(of_cpus)


def test_what_is_compiled_is_said(capsys, monkeypatch):
    some = compile_kernels.kernels()[:2]
    monkeypatch.setattr(compile_kernels, "kernels", lambda: some)
    assert main(["compile", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith("2 modules for cpu are in ")
    assert main(["compile", "--device", "nowhere"]) == 2


@pytest.mark.slow
def test_later_calls_compile_nothing(tmp_path):
    """In an empty kernel cache."""
    environment = {**os.environ, "WARP_CACHE_PATH": str(tmp_path)}

    def run(*arguments: str) -> list[Path]:
        command = [sys.executable, *arguments]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=600)
        return sorted(tmp_path.rglob("*.o"))

    compiled = run("-m", "warp_collision.cli", "compile", "--device", "cpu")
    assert len(compiled) == len(compile_kernels.kernels())
    assert run("-c", QUERY) == compiled

"""Names of GPUs, kernels compiled ahead for one, memory around a capture and where it is full."""

import gc
import re
import weakref
from typing import Any

import pytest
import torch
import trimesh
import warp as wp

from warp_collision import MeshWorld, sphere_cost
from warp_collision.cli import compile_kernels
from warp_collision.cli.__main__ import main
from warp_collision.devices import canonical_device
from warp_collision.launching.deferred_free import free_with


class Owner:
    """What a garbage collector frees at any time."""


def test_names_of_gpus(gpu: torch.device, cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert canonical_device(gpu.type) == gpu
    assert canonical_device(gpu) == gpu
    count = cuda.device_count()
    with pytest.raises(ValueError, match=f"device must be below {count}, got {gpu.type}:{count}"):
        canonical_device(f"{gpu.type}:{count}")
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"device must be available, got .* without a CUDA GPU"):
        canonical_device(gpu)


@pytest.mark.parametrize(
    ("toolkit", "driver", "message"),
    [
        ((13, 4), (12, 4), "needs NVIDIA's driver R580 or newer, got one for CUDA 12.4"),
        ((12, 9), None, "driver R525 or newer, got none that it can load"),
        (None, None, "is built without CUDA; install warp-lang from PyPI"),
    ],
)
def test_torch_finds_a_gpu_and_warp_none(
    toolkit: Any, driver: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the driver that its wheels are built for, Warp has no GPU, and says nothing."""
    for name, value in (("is_available", True), ("device_count", 1), ("current_device", 0)):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(wp, "get_cuda_device_count", lambda: 0)
    monkeypatch.setattr(wp, "get_cuda_toolkit_version", lambda: toolkit)
    monkeypatch.setattr(wp, "get_cuda_driver_version", lambda: driver)
    with pytest.raises(ValueError, match=f"^cuda:0 must be known to Warp, .*{re.escape(message)}"):
        MeshWorld(device="cuda")


def test_kernels_are_compiled_ahead(
    gpu: torch.device, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = compile_kernels.kernels()[:2]
    monkeypatch.setattr(compile_kernels, "kernels", lambda: some)
    assert main(["compile", "--device", str(gpu)]) == 0
    assert capsys.readouterr().out.startswith(f"2 modules for {gpu} are in ")


def test_nothing_is_freed_during_a_capture(gpu: torch.device, cuda: Any) -> None:
    """That would wait for the device, which ends the capture."""
    free_with(Owner(), [], gpu)
    owner, held = Owner(), Owner()
    free_with(owner, [held], gpu)
    is_held = weakref.ref(held)
    del owner, held
    gc.collect()
    others = Owner(), Owner()
    with cuda.graph(cuda.CUDAGraph()):
        free_with(others[0], [], gpu)
        assert is_held() is not None
        torch.zeros(1, device=gpu)
    free_with(others[1], [], gpu)
    assert is_held() is None


@pytest.mark.parametrize("made", ["Mesh", "Bvh"])
def test_where_warp_runs_out_torch_gives_back(
    made: str, gpu: torch.device, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warp and torch have a pool each; torch's unused memory is no reason to fail."""
    world, spheres = MeshWorld(device=gpu), torch.full((1, 1, 1, 4), 0.1, device=gpu)
    make, is_full, emptied = getattr(wp, made), [True], []
    monkeypatch.setattr(cuda, "empty_cache", lambda: emptied.append(is_full.clear()))

    def make_where_there_is_room(*arguments: Any, **options: Any) -> Any:
        if is_full:
            raise RuntimeError("Failed to allocate 1024 bytes on device")
        return make(*arguments, **options)

    monkeypatch.setattr(wp, made, make_where_there_is_room)
    world.add("ball", trimesh.creation.icosphere(1, 0.2))
    assert (sphere_cost(spheres, world) > 0.0).all()
    assert len(emptied) == 1
    is_full.append(True)
    monkeypatch.setattr(cuda, "empty_cache", lambda: emptied.append(None))

    def add_another() -> None:
        world.add("other", trimesh.creation.icosphere(1, 0.3))
        sphere_cost(spheres, world)

    with pytest.raises(RuntimeError, match="Failed to allocate"):
        add_another()
    is_full.clear()
    assert (sphere_cost(spheres, world) > 0.0).all()

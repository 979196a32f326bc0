"""Names of GPUs, kernels that are compiled ahead for one, and what is freed around a capture."""

import gc
import re
import weakref
from typing import Any

import pytest
import torch
import warp as wp

from warp_collision import MeshWorld
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

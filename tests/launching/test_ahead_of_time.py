"""Kernels that are compiled where no GPU is, and found where one is."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import warp as wp

import cubin
from warp_collision.cli import compile_kernels
from warp_collision.cli.__main__ import main

needs_nvrtc = pytest.mark.skipif(
    not cubin.can_compile(), reason="this build of Warp has no NVRTC to compile for CUDA with"
)


def name_on_a_gpu(kernel: wp.Kernel, driver: tuple[int, int]) -> str:
    """The file that Warp looks for in its cache on an H100 with a driver for some CUDA."""
    from warp._src.context import Device, runtime

    class H100(Device):
        is_cpu, is_cuda = False, True

        def __init__(self) -> None:
            self.arch, self.alias, self.is_cubin_supported = 90, "cuda:0", True
            known = {"driver_version": driver, "default_ptx_arch": 90}
            self.runtime = SimpleNamespace(**vars(runtime) | known)

    block = kernel.module.options["block_dim"]
    return kernel.module._get_compile_output_name(H100(), 90, block_dim=block)


@needs_nvrtc
def test_compiled_for_a_gpu_without_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = [
        kernel
        for kernel in compile_kernels.kernels()
        if kernel.module.name.endswith("robot_motion")
    ]
    (quick,) = (k for k in compile_kernels.kernels() if k.module.name.endswith("world_boxes"))
    some.append(quick)
    monkeypatch.setattr(compile_kernels, "kernels", lambda: some)
    assert main(["compile", "--device", "cuda", "--arch", "90"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{len(some)} modules for sm_90 are in {wp.config.kernel_cache_dir}, ")
    cached = {path.name for path in Path(wp.config.kernel_cache_dir).rglob("wp_*.sm90.*")}
    if wp.__version__.startswith("1.19."):  # how Warp names its files is its own affair
        toolkit = wp.get_cuda_toolkit_version()
        assert toolkit is not None
        for kernel in some:
            names = {name_on_a_gpu(kernel, driver) for driver in ((13, 0), toolkit)}
            assert {Path(name).suffix for name in names} == {".ptx", ".cubin"}
            assert names <= cached


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cpu", "--arch", "90"], "--arch is for --device cuda, got 'cpu'"),
        (["--arch", "17"], "arch must be one of" if cubin.can_compile() else "arch must be none"),
    ],
)
def test_what_cannot_be_compiled(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", *arguments]) == 2
    assert message in capsys.readouterr().err

"""Every kernel compiles for an sm_90 GPU, without one, and takes of it what it used to."""

import hashlib
import json
import os
import struct
from pathlib import Path

import pytest
import warp as wp
from benchmarks import registers

import cubin
from warp_collision import kernels
from warp_collision.cli import compile_kernels

# Small ones; the others take up to minutes.
QUICK = ("cloud_grid", "mesh_changes", "near_movers", "voxel_transform")

needs_nvrtc = pytest.mark.skipif(
    not cubin.can_compile(), reason="this build of Warp has no NVRTC to compile for CUDA with"
)


def usage_of(module: str) -> dict[str, cubin.Usage]:
    """What a module's kernels take; of sources that were compiled before it is in Warp's cache."""
    (folder,) = kernels.__path__
    sources = [Path(cubin.__file__), *sorted(Path(folder).glob("*.py"))]
    key = hashlib.sha256(wp.__version__.encode())
    for source in sources:
        key.update(source.read_bytes())
    known = Path(wp.config.kernel_cache_dir) / "sm_90_usage" / f"{module}_{key.hexdigest()}.json"
    if not known.exists():
        usage = {name: found._asdict() for name, found in cubin.usage_of(module).items()}
        known.parent.mkdir(exist_ok=True)
        written = known.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(usage))
        written.replace(known)
    return {name: cubin.Usage(**found) for name, found in json.loads(known.read_text()).items()}


@needs_nvrtc
@pytest.mark.parametrize(
    "module",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in registers.MODULES
    ],
)
def test_kernels_take_what_they_took(module: str) -> None:
    file = registers.read_kept()
    kept, found = file["kernels"].get(module, {}), usage_of(module)
    renew = "python -m benchmarks registers --write keeps new figures"
    assert set(found) == set(kept), (
        "python -m benchmarks registers --write --add keeps those of new kernels"
    )
    if wp.__version__ == file["warp"]:  # others write other code
        changed = {name: registers.changed(kept[name], usage) for name, usage in found.items()}
        assert not any(changed.values()), f"{changed}; {renew}"


def test_every_module_with_kernels_is_compiled() -> None:
    found = (
        kernel for kernel in compile_kernels.kernels() if not compile_kernels.is_for_cpus(kernel)
    )
    assert {kernel.module.name.rpartition(".")[2] for kernel in found} == set(registers.MODULES)
    new = set(registers.MODULES) - set(registers.read_kept()["kernels"])
    assert not new, f"python -m benchmarks registers --write --add keeps those of {new}"


def test_kept_figures_state_their_tolerance() -> None:
    kept = registers.read_kept()
    assert kept["arch"] == cubin.ARCH
    assert kept["tolerance"] == registers.TOLERANCE


def test_growth_beyond_the_tolerance_is_found() -> None:
    kept = cubin.Usage(100, 512, 10, 30, 0)._asdict()
    assert registers.changed(kept, cubin.Usage(108, 576, 42, 62, 0)) == []
    grown = cubin.Usage(109, 512, 10, 30, 0)
    assert registers.changed(kept, grown) == ["registers: 109, was 100"]
    assert len(registers.changed(kept, cubin.Usage(255, 1568, 448, 633, 4))) == 5


def test_stale_figures_are_found() -> None:
    """A bound far above what a kernel takes would let it grow again unnoticed."""
    kept = cubin.Usage(100, 784, 10, 30, 0)._asdict()
    assert registers.changed(kept, cubin.Usage(68, 528, 0, 0, 0)) == []
    assert registers.changed(kept, cubin.Usage(100, 144, 10, 30, 0)) == ["stack: 144, was 784"]


def test_warps_that_a_multiprocessor_holds() -> None:
    """By registers, which are given out by 256 to a warp, by shared memory and by blocks."""
    kernel = cubin.Usage(64, 0, 0, 0, 0)._asdict()
    assert registers.warps_of(kernel, 256) == 32
    assert registers.warps_of(kernel | {"registers": 65}, 256) == 24
    assert registers.warps_of(kernel | {"registers": 20}, 32) == 32
    assert registers.warps_of(kernel | {"shared": 34816}, 32) == 6


@pytest.mark.parametrize(
    ("module", "kernel", "least"),
    [
        ("sphere_cost", "sphere_cost", 24),
        ("collision", "in_collision", 24),
        ("swept_cost", "swept_cost", 16),
        ("joint_path_hit", "configuration_hit", 16),
        ("joint_path_hit", "joint_path_hit", 16),
        ("path_clearance", "joint_path_clearance", 16),
        ("moving_cost", "moving_swept_cost", 16),
    ],
)
def test_warps_that_hide_how_long_loads_take(module: str, kernel: str, least: int) -> None:
    usage = registers.read_kept()["kernels"][module][kernel]
    assert registers.warps_of(usage, registers.block_of(module)) >= least


def test_cubin_is_read() -> None:
    kernel = "some_kernel_0123abcd_cuda_kernel_forward"
    names = b"\0" + b"\0".join(
        [b".shstrtab", b".strtab", b".symtab", b".nv.info", f".text.{kernel}".encode(),
         f".nv.shared.{kernel}".encode()]
    ) + b"\0"  # fmt: skip
    symbols = bytes(24) + struct.pack("<I20x", 1)
    info = struct.pack("<BBH", 3, 0x37, 0x7E)  # a record of another form, without data
    info += struct.pack("<BBHII", 4, 0x2F, 8, 1, 96) + struct.pack("<BBHII", 4, 0x11, 8, 1, 512)
    code = b"".join(struct.pack("<H14x", word) for word in (0x7983, 0x7387, 0x7387, 0x7221))
    contents = [b"", names, b"\0" + kernel.encode() + b"\0", symbols, info, code, bytes(4352)]
    labels = [b"", b".shstrtab", b".strtab", b".symtab", b".nv.info", b".text.", b".nv.shared."]
    body, headers = bytearray(64), b""
    for label, content in zip(labels, contents, strict=True):
        at = names.index(label) if label else 0
        headers += struct.pack("<IIQQQQ24x", at, 0, 0, 0, len(body), len(content))
        body += content
    struct.pack_into("<Q", body, 40, len(body))
    struct.pack_into("<HHH", body, 58, 64, len(contents), 1)
    assert cubin.read_cubin(bytes(body) + headers) == {
        "some_kernel": cubin.Usage(96, 512, 1, 2, 4352)
    }

"""The kernels as NVRTC compiles them for a GPU, translated to C: compiled once, and kept."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import warp as wp

from simulated_cuda import building, ptx
from warp_collision import kernels

ARCH = 90
# What a C compiler may do to sums of products: nothing, or fuse them, as a GPU's compiler does too.
CONTRACTIONS = {"exact": "off", "contracted": "fast"}
# As "exact", and what threads do is counted.
COUNTED = "counted"
_FLAGS = (
    *("-O1", "-w", "-shared", "-fPIC", "-march=native", "-fno-strict-aliasing", "-fwrapv"),
    *("-Werror=implicit-function-declaration", "-Wl,--no-undefined"),
)


class _Chosen:
    """How kernels are compiled, None for Warp's own compiler for CPUs."""

    contraction: str | None = None


def use(contraction: str | None) -> str | None:
    """Lets kernels run by their PTX from now on: a contraction, `COUNTED`, or None for not.

    Returns:
        What was chosen before.
    """
    before, _Chosen.contraction = _Chosen.contraction, contraction
    return before


def take_counts(kernel: Any) -> dict[str, int]:
    """What all threads of a kernel's module did on this thread of the host since the last time."""
    counts = (ctypes.c_uint64 * len(ptx.COUNTS))()
    _library(kernel.module.name, COUNTED).take_counts(counts)
    return dict(zip(ptx.COUNTS, counts, strict=True))


def is_used() -> bool:
    """Whether kernels run by their PTX."""
    return _Chosen.contraction is not None


def reason_against() -> str | None:
    """Why there can be no PTX here, if so."""
    if ARCH not in wp.get_cuda_supported_archs():
        return "this build of Warp has no NVRTC to compile for CUDA with"
    return building.reason_against()


def function_of(kernel: Any) -> Callable[[Any, int], None] | None:
    """A kernel's function of its parameters and its number of threads, if it is to run by PTX."""
    name = kernel.module.name
    if _Chosen.contraction is None or not name.startswith(kernels.__name__):
        return None
    library = _library(name, _Chosen.contraction)
    function = getattr(library, f"run_{kernel.key}")
    function.argtypes = ctypes.c_void_p, ctypes.c_uint64
    return function


@functools.cache
def _library(module: str, contraction: str) -> ctypes.CDLL:
    """The kernels of a module; the first time compiling takes up to a minute."""
    folder = building.cache_folder(_key())
    folder.mkdir(parents=True, exist_ok=True)
    translator = hashlib.sha256(Path(ptx.__file__).read_bytes()).hexdigest()[:16]
    path = folder / f"{module}_{contraction}_{translator}.so"
    with (folder / f"{module}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of other processes that test at the same time
        if not path.is_file():
            block = wp.get_module(module).options["block_dim"]
            counted = contraction == COUNTED
            translation = ptx.translate(_ptx_of(module, folder), block, counted)
            _compile(translation.source, contraction, path)
    return ctypes.CDLL(str(path))


@functools.cache
def _key() -> str:
    """What PTX depends on."""
    (folder,) = kernels.__path__
    key = hashlib.sha256(f"{wp.__version__} {ARCH}".encode())
    for source in sorted(Path(folder).glob("*.py")):
        key.update(source.read_bytes())
    return key.hexdigest()[:16]


def _ptx_of(module: str, folder: Path) -> str:
    """What NVRTC makes of a module."""
    kept = folder / f"{module}.ptx"
    if not kept.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as made:
            wp.compile_aot_module(wp.get_module(module), arch=ARCH, module_dir=made, use_ptx=True)
            (source,) = Path(made).glob("*.ptx")
            source.replace(kept)
    return kept.read_text()


def _compile(source: str, contraction: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        code, made = Path(folder) / "kernels.c", Path(folder) / path.name
        code.write_text(source)
        options = *_FLAGS, f"-ffp-contract={CONTRACTIONS.get(contraction, 'off')}"
        command = [os.environ.get("CC", "gcc"), *options, str(code), "-o", str(made), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{path.stem} does not compile:\n{done.stderr[-4000:]}")
        made.replace(path)

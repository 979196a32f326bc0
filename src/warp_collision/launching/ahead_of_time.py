"""Kernels compiled for GPUs that are not here, as where an image of a container is built."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import warp as wp

from warp_collision.launching.launch import n_compilers
from warp_collision.launching.warp_runtime import objects_loaded_in_turn, quiet_warp


def require_arch(arch: int) -> None:
    """Raises unless Warp can compile for GPUs of an architecture.

    Raises:
        ValueError: with the architectures that it can compile for.
    """
    with quiet_warp():
        known = sorted(wp.get_cuda_supported_archs())
    if arch not in known:
        have = f"one of {', '.join(map(str, known))}" if known else "none with this build of Warp"
        raise ValueError(f"arch must be {have}, got {arch}")


def compile_ahead(kernels: Sequence[Any], arch: int) -> None:
    """Compiles the modules of kernels into Warp's kernel cache, in several threads, without a GPU.

    Warp loads machine code or, with a driver as new as its CUDA toolkit, PTX: both are made.

    Args:
        kernels: one of each module.
        arch: the GPUs' architecture, such as 90 for sm_90, an H100.

    Raises:
        ValueError: Warp cannot compile for it.
    """
    require_arch(arch)
    work = itertools.product([kernel.module for kernel in kernels], (False, True))
    with quiet_warp(), objects_loaded_in_turn() as may_use_threads:
        count = n_compilers() if may_use_threads else 1
        with ThreadPoolExecutor(count) as pool:
            tasks = [pool.submit(_compile, module, arch, is_ptx) for module, is_ptx in work]
            for task in tasks:
                task.result()


def _compile(module: Any, arch: int, is_ptx: bool) -> None:
    wp.compile_aot_module(module, arch=arch, use_ptx=is_ptx)

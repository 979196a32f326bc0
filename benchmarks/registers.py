"""Registers, stack and local memory of every kernel on an sm_90 GPU, without a GPU.

Compiles each kernel module with NVRTC and reads the cubin. `--write` keeps the figures in
registers.json too, against which tests/kernels/test_cuda_compile.py holds every change; with
`--add` only those of new kernels change there.
"""

import importlib
import json
from pathlib import Path
from typing import Any

import warp as wp

from benchmarks.harness import Failed, table
from cubin import ARCH, Usage, can_compile, usage_of
from warp_collision import kernels

KEPT = Path(__file__).resolve().parent / "registers.json"
FILES = Path(*kernels.__path__).glob("*.py")
MODULES = sorted(file.stem for file in FILES if "wp.set_module_options" in file.read_text())
# By how much a figure may grow before the check fails.
TOLERANCE = {"registers": 8, "stack": 64, "local_loads": 32, "local_stores": 32, "shared": 0}
# By how many of these it may shrink: what is kept of a kernel that takes far less guards nothing.
STALE = 4

# What a multiprocessor of sm_90 holds.
WARPS = 64
BLOCKS = 32
REGISTERS = 65536
SHARED = 227 * 1024  # [bytes]
SHARED_OF_BLOCK = 1024  # [bytes], which each block takes besides its own


def warps_of(usage: dict[str, int], block: int) -> int:
    """How many warps of a kernel a multiprocessor holds at once, of 64.

    Args:
        usage: what it takes, by the names of `Usage`.
        block: threads of a block.
    """
    n_warps = block // 32
    of_warp = -(-usage["registers"] * 32 // 256) * 256  # registers are given out by 256
    blocks = min(BLOCKS, WARPS // n_warps, REGISTERS // (of_warp * n_warps))
    if usage["shared"]:
        blocks = min(blocks, SHARED // (usage["shared"] + SHARED_OF_BLOCK))
    return blocks * n_warps


def block_of(module: str) -> int:
    """Threads of a block of a module's kernels."""
    name = f"warp_collision.kernels.{module}"
    importlib.import_module(name)
    return wp.get_module(name).options["block_dim"]


def changed(kept: dict[str, int], now: Usage) -> list[str]:
    """What a kernel takes more of than is kept of it, by more than the tolerance, or far less."""
    return [
        f"{key}: {value}, was {kept[key]}"
        for key, value in now._asdict().items()
        if not -STALE * TOLERANCE[key] <= value - kept[key] <= TOLERANCE[key]
    ]


def read_kept() -> dict[str, Any]:
    """What registers.json holds."""
    return json.loads(KEPT.read_text())


def add_options(parser: Any) -> None:
    """Which figures are kept."""
    parser.add_argument("--add", action="store_true", help="with --write: of new kernels alone")


def run(options: Any) -> str:
    """What every kernel takes."""
    if not can_compile():
        raise Failed("this installation of Warp cannot compile for CUDA", 2)
    found = {m: {k: u._asdict() for k, u in sorted(usage_of(m).items())} for m in MODULES}
    rows = [
        [kernel, *map(str, usage.values()), str(warps_of(usage, block_of(module)))]
        for module, names in found.items()
        for kernel, usage in names.items()
    ]
    if options.add:
        known = read_kept()["kernels"]
        for module, names in found.items():
            names.update((k, known[module][k]) for k in names if k in known.get(module, {}))
    if options.write:
        kept = {"arch": ARCH, "warp": wp.__version__, "tolerance": TOLERANCE, "kernels": found}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    return table(["kernel", *Usage._fields, "warps"], rows)

"""Registers, stack and local memory of every kernel on an sm_90 GPU, without a GPU.

Compiles each kernel module with NVRTC and reads the cubin, which is an ELF file. Prints the
figures; `--write` keeps them in registers.json, against which tests/kernels/test_cuda_compile.py
holds every change; `--add` keeps those of new kernels alone.
"""

import importlib
import json
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import warp as wp

from benchmarks.harness import Failed, table
from warp_collision import kernels

KEEPS_TABLES = False
ARCH = 90
KEPT = Path(__file__).resolve().parent / "registers.json"
FILES = Path(*kernels.__path__).glob("*.py")
MODULES = sorted(file.stem for file in FILES if "@wp.kernel" in file.read_text())
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

# What a kernel's record in the section .nv.info is about.
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F
# Low 12 bits of the 16-byte instructions that read and write local memory.
_LOAD_LOCAL, _STORE_LOCAL = 0x983, 0x387


class Usage(NamedTuple):
    """What one kernel takes per thread.

    Local memory is the stack: tree queries keep their path in it, and registers that do not fit
    are spilled to it. The queries' part is constant, so what loads and stores grow by is spilled.
    """

    registers: int
    stack: int  # bytes
    local_loads: int  # instructions
    local_stores: int
    shared: int  # bytes of a block


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


class _Section(NamedTuple):
    name: str
    data: bytes
    size: int  # of memory without data too


def can_compile() -> bool:
    """Whether this installation of Warp can compile for CUDA."""
    return ARCH in wp.get_cuda_supported_archs()


def usage_of(module: str) -> dict[str, Usage]:
    """Compiles a module of kernels; kernel name to what it takes.

    Args:
        module: name within `warp_collision.kernels`.
    """
    name = f"warp_collision.kernels.{module}"
    importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        wp.compile_aot_module(wp.get_module(name), arch=ARCH, module_dir=folder)
        (cubin,) = Path(folder).glob("*.cubin")
        return read_cubin(cubin.read_bytes())


def read_cubin(data: bytes) -> dict[str, Usage]:
    """Kernel name to what it takes, from a compiled CUDA module."""
    sections = list(_sections(data))
    by_name = {section.name: section.data for section in sections}
    symbols = list(_symbols(by_name[".symtab"], by_name[".strtab"]))
    registers, frames = {}, {}
    of_shared = ".nv.shared."
    shared = {s.name.removeprefix(of_shared): s.size for s in sections if of_shared in s.name}
    for attribute, symbol, value in _per_symbol(by_name[".nv.info"]):
        if attribute == _REGISTERS:
            registers[symbols[symbol]] = value
        elif attribute == _FRAME_SIZE:
            frames[symbols[symbol]] = value
    found = {}
    for name, data in by_name.items():
        kernel = name.removeprefix(".text.")
        if kernel != name and kernel in registers:
            code = [word & 0xFFF for (word,) in struct.iter_unpack("<H14x", data)]
            counts = code.count(_LOAD_LOCAL), code.count(_STORE_LOCAL)
            usage = Usage(registers[kernel], frames.get(kernel, 0), *counts, shared.get(kernel, 0))
            found[_plain_name(kernel)] = usage
    return found


def _plain_name(symbol: str) -> str:
    """The kernel's name without what Warp appends."""
    return re.sub(r"_[0-9a-f]{8}_cuda_kernel_forward$", "", symbol)


def _sections(data: bytes) -> Iterator[_Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    names = headers[names_at][4]
    for name, _, _, _, offset, length in headers:
        yield _Section(_text(data, names + name), data[offset : offset + length], length)


def _symbols(table: bytes, names: bytes) -> Iterator[str]:
    for (name,) in struct.iter_unpack("<I20x", table):
        yield _text(names, name)


def _text(data: bytes, begin: int) -> str:
    return data[begin : data.index(b"\0", begin)].decode()


def _per_symbol(info: bytes) -> Iterator[tuple[int, int, int]]:
    """The records (attribute, symbol, value) of a section .nv.info."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != 4:  # the length is the value itself
            continue
        if length == 8:
            yield attribute, *struct.unpack_from("<II", info, at)
        at += length


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
    """Whether the figures are kept."""
    parser.add_argument("--write", action="store_true", help="keep the figures in registers.json")
    parser.add_argument("--add", action="store_true", help="keep those of new kernels alone")


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
    if options.write or options.add:
        kept = {"arch": ARCH, "warp": wp.__version__, "tolerance": TOLERANCE, "kernels": found}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    return table(["kernel", *Usage._fields, "warps"], rows)

"""What kernels take of a GPU, read from a cubin, which is an ELF file, without a CUDA toolkit."""

import importlib
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import warp as wp

ARCH = 90

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

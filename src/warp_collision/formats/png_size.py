"""PNG images, whose sizes are checked against their data before a decoder believes them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type


def check_png(path: Path, max_pixels: int) -> int:
    """The number of pixels of a PNG image, 0 if the file is something else.

    Raises:
        ValueError: more pixels than allowed, or more data than its pixels have.
    """
    with path.open("rb") as file:
        head = file.read(33)
        if head[:8] != _SIGNATURE:
            return 0
        if len(head) < 33 or head[12:16] != b"IHDR":
            raise ValueError("a PNG image must begin with its size")
        width, height, depth, colour = struct.unpack(">IIBB", head[16:26])
        if width * height > max_pixels:
            raise ValueError(
                f"a PNG image must have at most {max_pixels} pixels, got {width} x {height}"
            )
        # Each row has a byte more, and an interlaced image has up to twice as many rows.
        row = (width * _CHANNELS.get(colour, 4) * depth + 7) // 8 + 1
        _check_data(file.read(), 2 * height * (row + 7) + 64)
    return width * height


def _check_data(chunks: bytes, most: int) -> None:
    """Raises if the image data of chunks inflates to more than so many bytes."""
    inflater, start = zlib.decompressobj(), 0
    while start + 12 <= len(chunks) and not inflater.eof:
        length, kind = struct.unpack_from(">I4s", chunks, start)
        if kind == b"IDAT":
            data = chunks[start + 8 : start + 8 + length]
            try:
                most -= len(inflater.decompress(data, most + 1))
            except zlib.error as error:
                raise ValueError(f"the data of a PNG image must be right, got {error}") from error
            if most < 0 or inflater.unconsumed_tail:
                raise ValueError("a PNG image must have as much data as pixels, got more")
        start += 12 + length

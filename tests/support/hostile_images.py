"""PNG images whose sizes may lie."""

import struct
from zlib import compress, crc32

import numpy as np


def png(heights: np.ndarray, width: int | None = None) -> bytes:
    """A grey PNG image of 8 bits, top row first; its width may lie."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(kind + data))

    size = struct.pack(">II5B", width or heights.shape[1], len(heights), 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype("u1").tobytes() for row in heights)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size)
        + chunk(b"IDAT", compress(rows, 9))
        + chunk(b"IEND", b"")
    )

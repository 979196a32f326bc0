"""Snapshots of tables on the CPU, which detect later writes."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor


class Snapshot:
    """The content of some tables on the CPU.

    Versions tell of what torch writes, even if it is the same again, and bytes of what is written
    past torch, as through NumPy or `.data`. Bytes are equal where numbers are NaN, and several
    times faster to compare than arrays.
    """

    def __init__(self, tables: Iterable[Tensor]):
        """Copies the content of the tables."""
        self._known = []
        for table in tables:
            # Of a view that is kept, for making one takes longer than all else here.
            view = table.numpy()
            self._known.append((table, table._version, table.data_ptr(), view, view.tobytes()))

    def is_current(self) -> bool:
        """Whether the tables have not been written or moved since."""
        for table, version, address, view, content in self._known:
            # The place first: the view of a table that has moved must not be read.
            if table._version != version or table.data_ptr() != address:
                return False
            if view.tobytes() != content:
                return False
        return True

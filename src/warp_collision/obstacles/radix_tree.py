"""Trees of parts, built without waiting for the device, also in a captured graph."""

from __future__ import annotations

import torch
from torch import Tensor

from warp_collision.kernels.tree_nodes import (
    LEAF,
    box_blocks,
    box_levels,
    code_parts,
    describe_tree,
    link_nodes,
    take_parts,
)
from warp_collision.launching.launch import launch

_LEVELS = 5  # of boxes that are filled at once, each from those of the level below these
_BOX = 6  # numbers
_HEADER = 256  # bytes


class RadixTree:
    """A tree over parts that are written in place.

    On a GPU, Warp's own trees become a chain where many parts are in one place. Building one in a
    captured graph takes memory that the graph does not own.

    Attributes:
        id: what kernels take for that of a `wp.Bvh`, to walk over.
    """

    def __init__(self, parts: Tensor):
        """Takes room for nodes.

        Args:
            parts: (capacity, stride, 4) float32, see `PartTree`; `build` writes it.
        """
        self._parts = parts
        n_blocks = 1
        while n_blocks * int(LEAF) < len(parts):
            n_blocks *= 2
        self._heap = parts.new_zeros((2 * n_blocks - 1, _BOX))
        self._nodes = parts.new_zeros((2, 2 * len(parts) - 1, 4))  # lower, upper corners
        self._header = torch.zeros(_HEADER, dtype=torch.uint8, device=parts.device)
        launch(describe_tree, (1,), *self._nodes, parts, self._header, device=parts.device)
        self.id = self._header.data_ptr()

    def sorted(self, given: Tensor) -> tuple[Tensor, Tensor]:
        """(capacity,) codes of the places of parts (n, stride, 4), sorted, and where each stood."""
        middles = 0.5 * (given[:, 0, :3] + given[:, -1, :3])
        corners = _corners_of(middles, given[:, 0, 3] >= 0.0)
        codes = torch.empty(len(self._parts), dtype=torch.int64, device=given.device)
        launch(code_parts, (len(codes),), given, middles, corners, codes, device=given.device)
        codes, order = torch.sort(codes, stable=True)
        return codes, order

    def build(self, given: Tensor, codes: Tensor, order: Tensor) -> None:
        """Writes parts and nodes, without an allocation.

        Args:
            given: (n, stride, 4) parts, at most as many as there is room for. Those whose first
                vector has a negative radius have no place: no query finds them.
            codes: see `sorted`.
            order: see `sorted`.
        """
        device, parts = given.device, self._parts
        launch(take_parts, tuple(parts.shape[:2]), given, order, parts, device=device)
        below = len(self._heap) // 2  # where the boxes of a level begin
        launch(box_blocks, (below + 1,), parts, self._heap[below:], device=device)
        while below:
            first = max(1, (below + 1) >> _LEVELS) - 1
            known, above = self._heap[below : 2 * below + 1], self._heap[first:below]
            launch(box_levels, (below - first,), known, above, device=device)
            below = first
        dim = (self._nodes.shape[1],)
        launch(link_nodes, dim, codes, parts, self._heap, *self._nodes, device=device)


def _corners_of(points: Tensor, has_place: Tensor) -> Tensor:
    """(2, 3) corners of the box around those of points (n, 3) that have a place."""
    kept = has_place[:, None]
    lower = torch.where(kept, points, torch.inf).amin(dim=0)
    return torch.stack((lower, torch.where(kept, points, -torch.inf).amax(dim=0)))

"""Trees over the parts of unions on a device: balls or boxes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from warp_collision.kernels.nearest_part import PartTree
from warp_collision.launching.edit import Edit
from warp_collision.launching.structs import offset_in, sent_struct
from warp_collision.obstacles.radix_tree import RadixTree
from warp_collision.obstacles.sensed import Uploaded


class PartBuffers(Uploaded):
    """A tree of parts on a device; what it holds is written in place, also by a captured graph.

    Attributes:
        tree: a `PartTree` for kernels, whose largest radius is 0.
        parts: (capacity, stride, 4) float32, see `PartTree`.
    """

    def __init__(self, given: Tensor, capacity: int):
        """Allocates room for parts, and builds the tree of the first ones.

        Args:
            given: (n, stride, 4) float32 on the device, see `PartTree`.
            capacity: how many parts there may be, at least n.
        """
        device, stride = given.device, given.shape[1]
        self.parts = torch.empty((capacity, stride, 4), dtype=torch.float32, device=device)
        self._built = RadixTree(self.parts)
        self._built.build(given, *self._built.sorted(given))
        self.tree = PartTree()
        self.tree.bvh, self.tree.parts = self._built.id, self.parts.data_ptr()
        self.tree.stride = stride
        struct = sent_struct(self.tree, device)  # has that radius
        place = offset_in(PartTree, "largest") // 4
        self._largest = struct.view(torch.float32)[0, place : place + 1]
        self._largest.copy_(_largest(given))
        super().__init__(struct, [])

    def write(self, edit: Edit, given: Tensor) -> None:
        """Stages other parts (n, stride, 4), at most as many as there is room for.

        Those with a negative radius are left out. Nobody may read parts while they are written,
        which does not wait for the device.
        """
        edit.then(self._built.build, given, *self._built.sorted(given))
        edit.then(self._largest.copy_, _largest(given))

    def read(self) -> np.ndarray:
        """(n, stride, 4) the parts, each once; waits for the device."""
        parts = self.parts.cpu().numpy()
        return np.unique(parts[parts[:, 0, 3] >= 0.0], axis=0)


def _largest(given: Tensor) -> Tensor:
    """The largest radius of parts (n, stride, 4)."""
    return given[:, 0, 3].amax()

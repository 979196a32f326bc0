"""Trees over the parts of unions on a device: balls or boxes."""

from __future__ import annotations

import numpy as np
import torch
import warp as wp
from torch import Tensor

from warp_collision.kernels.part_order import order_parts, spread_corners
from warp_collision.kernels.part_tree import PartTree
from warp_collision.launching import launch
from warp_collision.launching.edit import Edit
from warp_collision.launching.structs import offset_in, upload_struct
from warp_collision.launching.warp_runtime import quiet_warp
from warp_collision.obstacles.sensed import Uploaded

_LEAF = 8  # parts of a leaf


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
        self._corners = torch.empty((stride, capacity, 3), dtype=torch.float32, device=device)
        self.parts = torch.empty((capacity, stride, 4), dtype=torch.float32, device=device)
        self._spread(given)
        with quiet_warp(), launch.warp_stream(device):
            lower, upper = (
                wp.from_torch(self._corners[row], dtype=wp.vec3) for row in (0, stride - 1)
            )
            constructor = "sah" if device.type == "cpu" else None
            self._bvh = wp.Bvh(lower, upper, constructor=constructor, leaf_size=_LEAF)
        self.tree = PartTree()
        self.tree.bvh, self.tree.parts = self._bvh.id, self.parts.data_ptr()
        self.tree.stride = stride
        self._struct = upload_struct(self.tree, device)  # has that radius
        place = offset_in(PartTree, "largest") // 4
        self._largest = self._struct.view(torch.float32)[0, place : place + 1]
        super().__init__(self._struct, [])
        self._order(given, _largest(given))

    def write(self, edit: Edit, given: Tensor) -> None:
        """Stages other parts (n, stride, 4), at most as many as there is room for.

        Nobody may read them while they are written, which does not wait for the device.
        """
        edit.then(self._spread, given)
        edit.then(self._rebuild)
        edit.then(self._order, given, _largest(given))

    def _rebuild(self) -> None:
        with quiet_warp(), launch.warp_stream(self.parts.device):
            self._bvh.rebuild()

    def read(self) -> np.ndarray:
        """(n, stride, 4) the parts, each once; waits for the device."""
        return np.unique(self.parts.cpu().numpy(), axis=0)

    def _spread(self, given: Tensor) -> None:
        dim = self._corners.shape[:2]
        launch.launch(spread_corners, dim, given, self._corners, device=given.device)

    def _order(self, given: Tensor, largest: Tensor) -> None:
        dim = self.parts.shape[:2]
        launch.launch(order_parts, dim, self._struct, given, self.parts, device=given.device)
        self._largest.copy_(largest)


def _largest(given: Tensor) -> Tensor:
    """The largest radius of parts (n, stride, 4)."""
    return given[:, 0, 3].amax()

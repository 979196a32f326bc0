"""Trees over the parts of unions on a device: balls or boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import warp as wp

from warp_collision.kernels.part_order import order_parts
from warp_collision.kernels.part_tree import PartTree
from warp_collision.launching import launch
from warp_collision.launching.structs import upload_struct
from warp_collision.launching.warp_runtime import quiet_warp

_LEAF = 8  # parts of a leaf


def build_tree(parts: np.ndarray, device: torch.device) -> tuple[Any, list[Any]]:
    """A `PartTree` for kernels, and what is to be kept as long as they read it.

    Args:
        parts: (n, stride, 4) float32, see `PartTree`.
        device: where to.
    """
    target = str(device)
    given = torch.from_numpy(parts).to(device)
    ordered = torch.empty_like(given)
    with quiet_warp(), launch.warp_stream(device):
        lower = wp.array(np.ascontiguousarray(parts[:, 0, :3]), dtype=wp.vec3, device=target)
        upper = lower
        if parts.shape[1] == 2:
            upper = wp.array(np.ascontiguousarray(parts[:, 1, :3]), dtype=wp.vec3, device=target)
        constructor = "sah" if device.type == "cpu" else None
        bvh = wp.Bvh(lower, upper, constructor=constructor, leaf_size=_LEAF)
    tree = PartTree()
    tree.bvh, tree.parts, tree.stride = bvh.id, ordered.data_ptr(), parts.shape[1]
    tree.largest = float(parts[:, 0, 3].max())
    struct = upload_struct(tree, PartTree, device)
    launch.launch(order_parts, parts.shape[:2], struct, given, ordered, device=device)
    return tree, [lower, upper, bvh, ordered, struct]

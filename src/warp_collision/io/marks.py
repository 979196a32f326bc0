"""Metadata of the nodes of a written scene: names, slots and exact shapes.

A mark is a mapping under the key `warp_collision` in the metadata of a node, which glTF keeps as
extras. What it says of a shape is believed only if the mesh is the one that contains that shape.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import trimesh

from warp_collision.messages import errors_at
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Shape, Sphere
from warp_collision.validate import check_padding

KEY = "warp_collision"
_KINDS: dict[str, Any] = {
    kind.__name__.lower(): kind for kind in (Cuboid, Sphere, Capsule, Cylinder)
}
_ROUNDING = 1e-6  # of vertices in float32, in units of the largest


def kind_of(shape: Shape) -> str:
    """The name of a kind of shape in files: "cuboid", "sphere", "capsule", "cylinder"."""
    return type(shape).__name__.lower()


def mark(
    name: str, slot: int, shape: Shape | None, padding: float, enabled: bool
) -> dict[str, dict[str, Any]]:
    """The metadata of a node."""
    values: dict[str, Any] = {"name": name, "slot": slot, "padding": padding, "enabled": enabled}
    if shape is not None:
        values["shape"] = {"kind": kind_of(shape), **asdict(shape)}
    return {KEY: values}


class Marked:
    """The mark of a node as far as it is valid, else that of a node without one."""

    def __init__(self, scene: trimesh.Scene, node: str, where: str) -> None:
        transforms = scene.graph.transforms
        edge = transforms.edge_data.get((transforms.parents.get(node), node), {})
        metadata = edge.get("metadata")
        found = metadata.get(KEY) if isinstance(metadata, dict) else None
        values: dict[str, Any] = found if isinstance(found, dict) else {}
        name, slot = values.get("name"), values.get("slot")
        self.name = name if isinstance(name, str) and name else None
        self.slot = slot if isinstance(slot, int) else None
        with errors_at(where, (TypeError, ValueError)):
            self.padding = check_padding("padding", values.get("padding", 0.0))
        self.enabled = values.get("enabled", True) is not False
        self._shape: Any = values.get("shape")

    def shape_of(self, mesh: trimesh.Trimesh) -> Shape | None:
        """The exact shape that the mark names, if the mesh is the one that contains it."""
        if not isinstance(self._shape, dict):
            return None
        values = dict(self._shape)
        try:
            shape = _KINDS[values.pop("kind")](**values)
        except (TypeError, ValueError, KeyError):
            return None
        expected = shape.tessellate()
        if expected.vertices[expected.faces].shape != mesh.triangles.shape:
            return None
        corners = expected.vertices[expected.faces]
        off = np.abs(corners - mesh.triangles).max()
        return shape if off <= _ROUNDING * np.abs(corners).max() else None

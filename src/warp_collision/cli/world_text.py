"""How large a world is: a scene in millimetres shows."""

from __future__ import annotations

from warp_collision import MeshWorld
from warp_collision.messages import escaped


def world_extents(world: MeshWorld) -> list[list[float]] | None:
    """Lower and upper corner of the box around all obstacles [m]; None without obstacles."""
    bounds = world.to_scene().bounds
    return None if bounds is None else bounds.tolist()


def world_line(file: str, world: MeshWorld, extents: list[list[float]] | None) -> str:
    """One line: how many obstacles there are, and the box around them."""
    count = len(world.names())
    line = f"{escaped(file)}: {count} obstacle{'s' if count != 1 else ''}"
    if extents is None:
        return line
    lower, upper = extents
    sides = " x ".join(f"{high - low:.4g}" for low, high in zip(lower, upper, strict=True))
    corners = (" ".join(f"{value:.4g}" for value in corner) for corner in extents)
    return f"{line} in {sides} m, from {' to '.join(corners)}"

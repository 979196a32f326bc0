"""Units of length that meshes and scenes declare."""

from __future__ import annotations

from warp_collision.messages import shown


def metres_per_unit(units: str | None, where: str) -> float:
    """Length of the unit that a scene or mesh declares, 1 if none [m].

    Raises:
        ValueError: there is no such unit.
    """
    if units is None:
        return 1.0
    import trimesh

    try:
        return float(trimesh.units.unit_conversion(units, "meters"))
    except (KeyError, ValueError) as error:
        raise ValueError(f"{where}: units must be a unit of length, got {shown(units)}") from error

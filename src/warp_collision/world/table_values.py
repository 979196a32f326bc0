"""The values of a scene's tables, checked in the mode `checking`."""

from __future__ import annotations

import gc

import torch
import warp as wp

from warp_collision.launching.recorded_launch import SceneTables
from warp_collision.world.external_meshes import MeshTables


def check_values(tables: SceneTables | MeshTables, *, poses: str, counts: str) -> None:
    """Checks the values of the tables; waits for the device.

    Args:
        tables: of a world, or of a caller of the drop-in Functions.
        poses: what messages call the inverse poses.
        counts: what they call the numbers of filled slots.
    """
    is_of_caller = isinstance(tables, MeshTables)
    present = (tables.mesh_ids if is_of_caller else tables.records) != 0
    slots = present.shape[1]
    bad = (tables.n_meshes < 0) | (tables.n_meshes > slots)
    if bad.any():
        raise ValueError(f"{counts} must be in [0, {slots}], got {tables.n_meshes[bad][0].item()}")
    filled = torch.arange(slots, device=bad.device) < tables.n_meshes[:, None]
    checked = filled & (tables.enabled != 0) & present
    for env, slot in torch.nonzero(checked).tolist():
        row = tables.mesh_from_world[env, ..., slot, :7].detach()
        bad = row[~torch.isfinite(row)]
        if len(bad):
            raise ValueError(
                f"{poses} must be finite, got {bad[0].item()} in env {env}, slot {slot}"
            )
        if (row[..., 3:].norm(dim=-1) < 1e-6).any():
            raise ValueError(
                f"{poses} must have quaternions other than 0, got 0 in env {env}, slot {slot}"
            )
    if not is_of_caller:
        return
    # By type: `isinstance` reads `__class__`, at which some objects emit warnings.
    living = {thing.id for thing in gc.get_objects() if issubclass(type(thing), wp.Mesh)}
    for mesh_id in tables.mesh_ids[checked].tolist():
        if mesh_id not in living:
            raise ValueError(f"mesh_idx must hold ids of living wp.Mesh objects, got {mesh_id}")

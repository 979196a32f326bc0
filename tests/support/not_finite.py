"""Numbers that are not finite, on their way into a world or a call."""

from collections.abc import Callable
from typing import Any

import torch

from warp_collision import MeshWorld, sphere_cost, swept_sphere_cost
from worlds import SHIFT

Function = Callable[..., Any]
NAN, INF = float("nan"), float("inf")
BAD_NUMBERS = (NAN, INF, -INF)
COSTS: tuple[Function, ...] = (sphere_cost, swept_sphere_cost)


def some_spheres(device: torch.device) -> torch.Tensor:
    """Spheres (2, 3, 4) around the origin, each of which costs something in env 0."""
    spheres = torch.full((2, 3, 4, 4), 0.2, device=device)
    spheres[..., :3] = torch.linspace(-0.02, 0.02, 72, device=device).reshape(2, 3, 4, 3)
    return spheres


def env(device: torch.device, *rows: int) -> torch.Tensor:
    """An index of envs, as int64 where int32 does not hold it."""
    narrow = max(abs(row) for row in rows) <= 2**31 - 1 or min(rows) == -(2**31)
    return torch.tensor(rows, dtype=torch.int32 if narrow else torch.int64, device=device)


BAD_POSES = {
    "nan": (NAN, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
    "inf": (0.0, INF, 0.0, 1.0, 0.0, 0.0, 0.0),
    "nan quaternion": (0.0, 0.0, 0.0, 1.0, NAN, 0.0, 0.0),
    "zero quaternion": (0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 0.0),
}


def write_through(world: MeshWorld, pose: tuple[float, ...]) -> dict[str, Any]:
    """Into the table itself."""
    world.mesh_from_world[0, 1] = torch.tensor((*pose, 0.0), device=world.device)
    return {}


def move_all(world: MeshWorld, pose: tuple[float, ...]) -> dict[str, Any]:
    """From a device tensor."""
    world.set_poses(torch.tensor([SHIFT, pose], device=world.device))
    return {}


def pass_on(world: MeshWorld, pose: tuple[float, ...]) -> dict[str, Any]:
    """As an operand."""
    poses = torch.zeros((3, 4, 7), device=world.device)
    poses[..., 3] = 1.0
    poses[0, 1] = torch.tensor(pose, device=world.device)
    return {"poses": poses}


WAYS = (write_through, move_all, pass_on)

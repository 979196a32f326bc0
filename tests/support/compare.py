"""Worlds of the library built from the reference's scenes, and comparisons of the two."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

import simulated_cuda
from reference import Array, Obstacle, rotation_matrix, winding_number
from warp_collision import MeshWorld

RELATIVE, ABSOLUTE = 1e-5, 1e-6  # of a cost; the latter in metres, for a weight of 1
SLOPE = 1e-3  # of a gradient
TILT = 0.02  # of a few gradients, see assert_gradients
STEP = 2e-6  # [m] of finite differences; well above the rounding of float32 positions
KINK = 2 * SLOPE  # one-sided differences that differ by more leave the central one in doubt

Cost = Callable[[torch.Tensor], torch.Tensor]


def build_world(
    scenes: Sequence[Sequence[Obstacle]],
    device: torch.device,
    max_obstacles: int = 4,
    *,
    repair: bool = False,
) -> MeshWorld:
    """A world with one env per scene, slot i of an env being mesh i of the scene.

    Sound meshes need no repair, and without it boxes stay polyhedra.
    """
    world = MeshWorld(n_envs=len(scenes), max_obstacles=max_obstacles, device=device)
    for env, scene in enumerate(scenes):
        for slot, obstacle in enumerate(scene):
            world.add(
                f"mesh_{slot}",
                (obstacle.vertices, obstacle.faces),
                pose=obstacle.pose,
                env=env,
                enabled=obstacle.enabled,
                repair=repair,
            )
    return world


def to_device(values: Array, device: torch.device) -> torch.Tensor:
    """A float32 tensor."""
    return torch.tensor(values, dtype=torch.float32, device=device)


def seeded(device: torch.device, seed: int) -> torch.Generator | None:
    """A generator on a device; torch's own for the simulated GPU, which has no others."""
    if device.type == simulated_cuda.NAME:
        torch.manual_seed(seed)
        return None
    return torch.Generator(device).manual_seed(seed)


def to_array(values: torch.Tensor) -> Array:
    """A float64 array."""
    return values.detach().cpu().numpy().astype(np.float64)


def cost_and_gradient(
    cost: Cost, spheres: Array, incoming: Array, device: torch.device
) -> tuple[Array, Array]:
    """Costs, and their vector-Jacobian product with incoming gradients of the same shape."""
    leaf = to_device(spheres, device).requires_grad_(True)
    result = cost(leaf)
    assert result.shape == spheres.shape[:3]
    assert result.dtype == torch.float32
    result.backward(to_device(incoming, device))
    assert leaf.grad is not None
    return to_array(result), to_array(leaf.grad)


def assert_costs(actual: torch.Tensor | Array, expected: Array, tolerance: float = 0.0) -> None:
    """Equal to 1e-5 relative plus 1e-6 plus the tolerance [m] of a sweep."""
    if isinstance(actual, torch.Tensor):
        actual = to_array(actual)
    np.testing.assert_allclose(actual, expected, rtol=RELATIVE, atol=ABSOLUTE + tolerance)


def assert_gradients(actual: Array, expected: Array, kink: Array, share: float = 0.9) -> None:
    """Equal to 1e-3 where the reference has no kink nearby, which must be nearly everywhere.

    At a distance d a point of the surface that lies aside by sqrt(2 d rounding) can pass for the
    closest one in float32, which tilts the direction by sqrt(2 rounding / d): of 1,000 points
    near meshes about one is off by more than 1e-3. Such rows may be one, or one in 200.

    Args:
        actual: (..., 4) or (..., 3).
        expected: same shape, finite differences of the reference.
        kink: (...), by how much the one-sided differences disagree.
        share: fraction of the configurations that must be away from kinks.
    """
    smooth = kink < KINK
    assert smooth.mean() > share
    assert np.isfinite(actual).all()
    actual, expected = actual[smooth], expected[smooth]
    np.testing.assert_allclose(actual, expected, rtol=TILT, atol=TILT)
    off = np.abs(actual - expected) > SLOPE * (1.0 + np.abs(expected))
    assert off.any(axis=-1).sum() <= max(1, len(actual) // 200)


def clear_of_openings(points: Array, obstacle: Obstacle, margin: float = 1e-3) -> NDArray[np.bool_]:
    """Whether points (n, 3) are where the winding number of an open mesh is not nearly 0.5.

    There float32 cannot tell inside from outside, and the sign jumps.
    """
    offset = points - np.asarray(obstacle.pose[:3])
    local = offset @ rotation_matrix(obstacle.pose[3:])
    winding = winding_number(local, obstacle.vertices, obstacle.faces)
    return np.abs(winding - 0.5) > margin

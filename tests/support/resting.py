"""What all queries of resting spheres answer near one obstacle, against its float64 reference."""

from typing import Any

import numpy as np
import torch

import reference
from compare import to_array, to_device
from warp_collision import MeshWorld, clearance, in_collision, signed_distance, sphere_cost


def assert_resting_queries(
    body: Any,
    world: MeshWorld,
    spheres: np.ndarray,
    *,
    activation_distance: float,
    step: float,
    most_at_kinks: float,
    device: torch.device,
) -> None:
    """Compares distances, gradients, contacts, clearances and costs.

    Args:
        body: the reference of the obstacle that stands alone in the world.
        world: what is asked.
        spheres: (1, 1, n, 4).
        activation_distance: [m].
        step: of the finite differences [m].
        most_at_kinks: share of gradients that may differ, as the reference has a kink nearby.
        device: of the world.
    """
    truth = body.distance(spheres[..., :3])
    assert (truth < 0.0).any()
    found = signed_distance(to_device(spheres[:, 0, :, :3], device), world)
    np.testing.assert_allclose(to_array(found.distance), truth[:, 0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(to_array(found.gradient), axis=-1), 1.0, atol=1e-4)
    for axis in range(3):
        moved = step * np.eye(3)[axis]
        ahead = body.distance(spheres[..., :3] + moved)
        slope = (ahead - body.distance(spheres[..., :3] - moved))[0, 0] / (2.0 * step)
        off = np.abs(slope - to_array(found.gradient)[0, :, axis])
        assert (off > 0.02).mean() < most_at_kinks
    free = truth - spheres[..., 3]
    hit = in_collision(to_device(spheres, device), world).cpu().numpy()
    sure = np.abs(free) > 2e-6
    np.testing.assert_array_equal(hit[sure], (free < 0.0)[sure])
    nearest = clearance(to_device(spheres, device), world, max_distance=0.02)
    near = free < 0.02
    np.testing.assert_allclose(to_array(nearest.clearance)[near], free[near], rtol=0, atol=1e-6)
    cost = sphere_cost(to_device(spheres, device), world, activation_distance=activation_distance)
    expected = reference.sphere_cost(spheres, [[body]], activation_distance=activation_distance)
    np.testing.assert_allclose(to_array(cost), expected, rtol=1e-5, atol=2e-6)

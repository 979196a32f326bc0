"""The way from a point to a face whose corners are far away, on both devices."""

import numpy as np
import pytest
import torch
import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.forward_kinematics import vec1i
from warp_collision.kernels.mesh_distance import offset_to_barycentric
from warp_collision.launching.launch import launch

wp.set_module_options(OPTIONS)


@wp.kernel
def offsets(
    points: wp.array2d[wp.vec3],  # (n, 4) point and corners
    weights: wp.array[wp.vec2],  # (n,) of the first two corners
    launch_offset: vec1i,
    found: wp.array[wp.vec3],  # (n,)
):
    """One thread per face."""
    i = wp.tid() + launch_offset[0]
    p, w = points[i, 0], weights[i]
    found[i] = offset_to_barycentric(p, points[i, 1], points[i, 2], points[i, 3], w[0], w[1])


@pytest.mark.parametrize("size", [1.0, 100.0, 1e4])
def test_offsets_are_rounded_once(size: float, device: torch.device) -> None:
    """Where the corners cancel, to points within a centimetre of faces of any size."""
    rng = np.random.default_rng(5)
    count = 4096
    corners = rng.uniform(-size, size, (count, 3, 3)).astype(np.float32)
    weights = rng.dirichlet((1.0, 1.0, 1.0), count)[:, :2].astype(np.float32)
    u, v = weights.astype(np.float64).T[..., None]
    a, b, c = corners.astype(np.float64).transpose(1, 0, 2)
    foot = u * a + v * b + (1.0 - u - v) * c
    points = (foot + rng.uniform(-0.01, 0.01, foot.shape)).astype(np.float32)
    expected = (c - points) + u * (a - c) + v * (b - c)
    rows = torch.from_numpy(np.concatenate((points[:, None], corners), axis=1)).to(device)
    found = torch.empty((count, 3), device=device)
    launch(offsets, (count,), rows, torch.from_numpy(weights).to(device), found, device=device)
    off = np.abs(found.cpu().double().numpy() - expected)
    # Half a unit in the last place, and a few of what pairs leave of the corners.
    assert (off <= 0.51 * 2.0**-23 * np.abs(expected) + 8 * 2.0**-48 * size).all()

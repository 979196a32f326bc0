"""The walk over Warp's tree that CPUs take, against Warp's own query."""

import numpy as np
import pytest
import trimesh
import warp as wp

from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.nearest_face import closest_of_mesh
from warp_collision.launching.warp_runtime import quiet_warp

wp.set_module_options(OPTIONS)

N_POINTS = 3_000
ROUNDING = 2e-7  # of the coordinates


@wp.kernel
def closest_points(
    mesh_id: wp.uint64,
    points: wp.array[wp.vec3],
    limits: wp.array[wp.float32],
    ours: wp.array[wp.vec3],  # NaN: none
    theirs: wp.array[wp.vec3],
):
    index = wp.tid()
    nowhere = wp.vec3(wp.nan, wp.nan, wp.nan)
    ours[index] = nowhere
    theirs[index] = nowhere
    closest = closest_of_mesh(mesh_id, points[index], limits[index])
    if closest.face >= 0:
        ours[index] = wp.mesh_eval_position(mesh_id, closest.face, closest.u, closest.v)
    query = wp.mesh_query_point_no_sign(mesh_id, points[index], limits[index])
    if query.result:
        theirs[index] = wp.mesh_eval_position(mesh_id, query.face, query.u, query.v)


def soup(count: int, size: float, at: float) -> np.ndarray:
    """Triangles of all lengths and widths."""
    rng = np.random.default_rng(count)
    corners = rng.normal(size=(count, 3, 3)) * size * 10.0 ** rng.uniform(-3, 0, (count, 1, 1))
    corners[::3, 2] = corners[::3, 0] + 1e-3 * (corners[::3, 1] - corners[::3, 0])
    return corners + rng.uniform(-size, size, (count, 1, 3)) + at


MESHES = {
    "curved": trimesh.creation.icosphere(3, 0.1).triangles,
    "cube": trimesh.creation.box((0.1, 0.2, 3.0)).triangles,
    "one face": soup(1, 0.3, 0.0),
    "soup": soup(700, 1.0, 0.0),
    "far soup": soup(50, 1.0, 300.0),
    "tiny": soup(50, 1e-6, 0.0),
    "large": soup(50, 1e6, 0.0),
}


@pytest.mark.parametrize("leaf_size", [1, 4, 7])
@pytest.mark.parametrize("name", MESHES)
def test_the_closest_points_are_as_near_as_those_of_warp(name: str, leaf_size: int) -> None:
    corners = np.asarray(MESHES[name], dtype=np.float32).reshape(-1, 3)
    rng = np.random.default_rng(0)
    center, size = corners.mean(axis=0), np.ptp(corners, axis=0).max()
    points = (center + rng.uniform(-1.0, 1.0, (N_POINTS, 3)) * size).astype(np.float32)
    points[:100] = corners[rng.integers(len(corners), size=100)]
    limits = (size * 10.0 ** rng.uniform(-3, 3, N_POINTS)).astype(np.float32)
    limits[-1] = np.inf
    points[-2] = np.nan
    with quiet_warp():
        faces = wp.array(np.arange(len(corners), dtype=np.int32), dtype=wp.int32, device="cpu")
        vertices = wp.array(corners, dtype=wp.vec3, device="cpu")
        mesh = wp.Mesh(vertices, faces, bvh_leaf_size=leaf_size)
        found = [wp.zeros(N_POINTS, dtype=wp.vec3, device="cpu") for _ in range(2)]
        given = [wp.array(points, dtype=wp.vec3), wp.array(limits, dtype=wp.float32)]
        wp.launch(closest_points, N_POINTS, [mesh.id, *given, *found], device="cpu")
    ours, theirs = (np.linalg.norm(f.numpy().astype(float) - points, axis=1) for f in found)
    rounding = ROUNDING * (np.abs(corners).max() + size)
    differ = np.isnan(ours) != np.isnan(theirs)
    assert (np.fmin(ours, theirs) > limits - rounding)[differ].all()
    both = ~np.isnan(ours) & ~np.isnan(theirs)
    assert both.sum() > 0.3 * N_POINTS
    assert np.abs(ours - theirs)[both].max() <= rounding


def test_lines_are_passed_over_and_the_limit_is_not_reached() -> None:
    line = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 1e-7, 0.0]]
    face = [[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]
    corners = np.array([*line, *face], dtype=np.float32)
    points = np.array([[0.25, 0.25, 0.0]] * 2, dtype=np.float32)
    limits = np.array([1.0, 1.0 + 1e-6], dtype=np.float32)
    with quiet_warp():
        faces = wp.array(np.arange(6, dtype=np.int32), dtype=wp.int32, device="cpu")
        mesh = wp.Mesh(wp.array(corners, dtype=wp.vec3, device="cpu"), faces)
        found = [wp.zeros(2, dtype=wp.vec3, device="cpu") for _ in range(2)]
        given = [wp.array(points, dtype=wp.vec3), wp.array(limits, dtype=wp.float32)]
        wp.launch(closest_points, 2, [mesh.id, *given, *found], device="cpu")
    for closest in found:
        assert np.isnan(closest.numpy()[0]).all()
        assert np.allclose(closest.numpy()[1], [0.25, 0.25, 1.0])

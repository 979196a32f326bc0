"""Any numbers as vertices and faces: a mesh with right distances, or an error, never a crash.

``pytest -s -m slow tests/obstacles/test_fuzz_meshes.py`` prints what was tried.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import compare
import reference
import shapes
from reference import Array
from warp_collision import MeshWorld, signed_distance, sphere_cost
from warp_collision.obstacles.geometry import prepare
from warp_collision.obstacles.topology import degenerate_faces

CPU = torch.device("cpu")


def probes(vertices: Array) -> Array:
    """Points in, on and around a mesh (n, 3)."""
    rng = np.random.default_rng(141)
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    size = (high - low).max() + 1e-3
    around = 0.5 * (low + high) + rng.uniform(-1.0, 1.0, (40, 3)) * size
    return shapes.rounded(np.concatenate([around, vertices[:10], rng.normal(size=(5, 3))]))


def check_mesh(vertices: Any, faces: Any) -> bool:
    """Adds a mesh: refused with a reason, or right at the probes. Whether it was taken."""
    world = MeshWorld(device=CPU)
    try:
        world.add("fuzz", (vertices, faces))
    except (ValueError, TypeError):
        assert world.names() == []
        assert (world.mesh_ids == 0).all()
        return False
    vertices = np.asarray(vertices, dtype=np.float32).astype(np.float64)
    faces = np.asarray(faces).astype(np.int64).reshape(-1, 3)
    seen = faces[~degenerate_faces(vertices, faces)]
    points = probes(vertices[np.unique(faces)])
    found = signed_distance(compare.to_device(points[None], CPU), world)
    distance = compare.to_array(found.distance)[0]
    assert np.isfinite(distance).all()
    np.testing.assert_allclose(found.gradient.norm(dim=-1), 1.0, atol=1e-3)
    closest, _ = reference.closest_points(points, vertices, seen)
    scale = np.abs(vertices[np.unique(faces)]).max() + np.abs(points).max(axis=1)
    expected = np.linalg.norm(closest - points, axis=1)
    assert (np.abs(np.abs(distance) - expected) <= 4e-6 * scale).all()
    spheres = np.concatenate([points, np.full((len(points), 1), 0.1)], axis=1)[None, None]
    cost = compare.to_array(sphere_cost(compare.to_device(spheres, CPU), world))[0, 0]
    np.testing.assert_allclose(
        cost, reference.hinge(0.12 - distance, 0.02), rtol=1e-5, atol=1e-6 + 1e-6 * scale.max()
    )
    return True


# -- bytes ----------------------------------------------------------------------------------------

NUMBERS = (np.float32, np.float64, np.float16, np.int8, np.uint8, np.int16, np.int32)
INDICES = (np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64, np.float32)


def random_arrays(rng: np.random.Generator) -> tuple[Array, Array]:
    """Random bytes read as some dtype; often brought to where they can be a mesh."""
    number = rng.choice(NUMBERS)
    n_vertices = int(rng.integers(0, 24))
    values = np.frombuffer(rng.bytes(3 * n_vertices * np.dtype(number).itemsize), number)
    with np.errstate(all="ignore"):
        if rng.random() < 0.7:  # no NaN, and no more than a few decades between the largest
            values = np.frexp(np.nan_to_num(values.astype(np.float64), posinf=1.0, neginf=-1.0))[0]
            values = (
                values * 10.0 ** rng.uniform(-3.0, 3.0) * 2.0 ** rng.integers(0, 4, values.shape)
            )
    if rng.random() < 0.95:
        values = values.reshape(-1, 3)
    index = rng.choice(INDICES)
    n_indices = int(rng.integers(0, 90))
    indices = np.frombuffer(rng.bytes(n_indices * np.dtype(index).itemsize), index)
    if rng.random() < 0.8 and n_vertices:
        with np.errstate(all="ignore"):
            indices = np.nan_to_num(indices).astype(np.int64) % n_vertices
    if rng.random() < 0.9:
        indices = indices[: len(indices) // 3 * 3].reshape(-1, 3)
    return values, indices


def try_many(count: int) -> Counter[bool]:
    """How many were taken and how many refused."""
    rng = np.random.default_rng(143)
    return Counter(check_mesh(*random_arrays(rng)) for _ in range(count))


def test_random_bytes() -> None:
    tried = try_many(200)
    assert tried[True] > 60
    assert tried[False] > 60


@pytest.mark.slow
def test_many_random_bytes() -> None:
    tried = try_many(20_000)
    print(f"fuzz: random bytes as meshes, {tried[True]} taken and right, {tried[False]} refused")
    assert tried[True] > 6000


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    vertices=st.binary(max_size=400),
    faces=st.binary(max_size=200),
    number=st.sampled_from(NUMBERS),
    index=st.sampled_from(INDICES),
)
def test_any_bytes(vertices: bytes, faces: bytes, number: Any, index: Any) -> None:
    """What hypothesis thinks of: empty, all zeros, all ones, the same over and over."""
    size = 3 * np.dtype(number).itemsize
    values = np.frombuffer(vertices[: len(vertices) // size * size], number).reshape(-1, 3)
    indices = np.frombuffer(faces[: len(faces) // index().itemsize * index().itemsize], index)
    with np.errstate(all="ignore"):
        check_mesh(values, indices)


# -- meshes that are mostly flaws -----------------------------------------------------------------


def check_lattice(data: st.DataObject, n_vertices: int, n_faces: int) -> None:
    corner = st.tuples(*[st.integers(-4, 4)] * 3)
    corners = data.draw(st.lists(corner, min_size=n_vertices, max_size=n_vertices))
    face = st.tuples(*[st.integers(0, n_vertices - 1)] * 3)
    faces = np.array(data.draw(st.lists(face, min_size=n_faces, max_size=n_faces)))
    vertices = np.array(corners) / 8.0
    if not check_mesh(vertices, faces):
        assert degenerate_faces(vertices, faces).all()
        return
    # The side is that of the winding number, wherever it is clear.
    geometry = prepare("fuzz", vertices, faces)
    points = probes(vertices)
    winding = reference.winding_number(points, geometry.vertices.astype(np.float64), geometry.faces)
    world = MeshWorld(device=CPU)
    world.add("fuzz", (vertices, faces))
    found = signed_distance(compare.to_device(points[None], CPU), world)
    distance = compare.to_array(found.distance)[0]
    clear = (np.abs(winding - 0.5) > 1e-4) & (np.abs(distance) > 1e-5)
    np.testing.assert_array_equal(distance[clear] < 0.0, winding[clear] > 0.5)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), n_vertices=st.integers(1, 10), n_faces=st.integers(1, 24))
def test_random_meshes_on_a_lattice(data: st.DataObject, n_vertices: int, n_faces: int) -> None:
    """Repeated vertices, faces without area, faces twice, through each other and inside out."""
    check_lattice(data, n_vertices, n_faces)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None, derandomize=True)
@given(data=st.data(), n_vertices=st.integers(1, 16), n_faces=st.integers(1, 60))
def test_many_meshes_on_a_lattice(data: st.DataObject, n_vertices: int, n_faces: int) -> None:
    check_lattice(data, n_vertices, n_faces)

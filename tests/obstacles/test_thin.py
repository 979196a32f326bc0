"""Long thin bodies: right, or refused, and never free where they are solid."""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
import trimesh

import compare
import reference
import shapes
from cases import mostly_slow
from mesh_defects import Mesh, area, arrays, prepared, together, volume
from reference import Array
from thin_bodies import KINDS, Body, circle, points_beside, prism, random_body
from warp_collision import MeshWorld, signed_distance

TOLERANCE = 5e-7  # of the largest coordinates of the mesh and the points, added up
DOUBT = 1e-5  # winding numbers nearer to 0.5 than this are left out
REFUSALS = "must have faces that float32 can tell|must have a face with area|must be resolved by"
CPU = torch.device("cpu")


def cylinder(radius: float, length: float, sides: int) -> Mesh:
    return arrays(trimesh.creation.cylinder(radius=radius, height=length, sections=sides))


# Radius of what surely fits inside of each, around the origin [m].
LONG: dict[str, tuple[Callable[[], Mesh], float]] = {
    "pipe": (lambda: cylinder(0.005, 15.0, 1024), 0.0049),
    "cable": (lambda: cylinder(0.001, 24.0, 128), 0.00099),
    "rail": (lambda: cylinder(0.01, 8.0, 4096), 0.0099),
    "wire": (lambda: arrays(trimesh.creation.box((1e-4, 1e-4, 50.0))), 4.9e-5),
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_thin_body_is_solid(name: str) -> None:
    make, radius = LONG[name]
    world = MeshWorld(device=CPU, grid_cells=0)
    world.add(name, make(), sign="winding")  # a box as a polyhedron
    distance = signed_distance(torch.zeros(1, 1, 3), world).distance.item()
    assert -1.05 * radius < distance < -radius
    report = world.report(name)
    assert report.closed
    assert report.degenerate_faces == 0
    assert f"sliced {report.sliced_faces} long thin faces into " in str(report)


def test_a_needle_that_nothing_covers_is_refused() -> None:
    """A tip of 0.1 mm at 100 m is no rounding; on the seam of two walls it is."""
    needle = np.array([[0.0, 0.0, 0.0], [100.0, 0.0, 0.0], [100.0, 1e-4, 0.0]])
    with pytest.raises(ValueError, match=r"mesh 'mesh' must have faces that .*, 1 are below"):
        prepared((needle, np.array([[0, 1, 2]])))
    wall = np.array([[0.0, 0.0, -9.0], [100.0, 0.0, -9.0], [0.0, 0.0, 9.0], [100.0, 1e-5, 9.0]])
    vertices = np.concatenate([wall, needle * (1.0, 0.1, 1.0)])
    faces = np.array([[0, 1, 5], [0, 5, 4], [2, 4, 6], [2, 6, 3]])
    geometry = prepared((vertices, np.concatenate([faces, [[4, 5, 6]]])))
    assert geometry.report.degenerate_faces == 1
    assert len(geometry.faces) == 4
    # The same with walls that share no vertices with the needle, and with a gap between them.
    middle = np.array([0.0, 0.0, 9.0])
    apart = np.concatenate([wall, wall[:2] + middle, wall[2:] - middle])
    sheets = np.array([[0, 1, 5], [0, 5, 4], [2, 6, 7], [2, 7, 3]])
    for needle_face in ([8, 9, 10], [9, 10, 8], [10, 9, 8]):
        mesh = np.concatenate([apart, needle * (1.0, 0.1, 1.0)]), [*sheets, needle_face]
        assert len(prepared((mesh[0], np.array(mesh[1]))).faces) == 4
    short = apart * (0.3, 1.0, 1.0)
    mesh = np.concatenate([short, needle * (1.0, 0.1, 1.0)]), np.array([*sheets, [8, 9, 10]])
    with pytest.raises(ValueError, match="no others cover them"):
        prepared(mesh)


# -- adversarial meshes ---------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What the library makes of a mesh."""

    refused: bool
    worst: float  # distance off, in parts of the coordinates
    wrong: int  # signs


def outcome(body: Body, seed: int = 0, count: int = 0, points: Array | None = None) -> Outcome:
    """Adds a mesh and compares distances and signs with the float64 reference."""
    world = MeshWorld(device=CPU)
    try:
        world.add(body.name, (body.vertices, body.faces))
    except ValueError as error:
        if not re.search(REFUSALS, str(error)):
            raise
        return Outcome(True, 0.0, 0)
    if points is None:
        points = points_beside(body, seed, count)
    found = signed_distance(compare.to_device(points[None], CPU), world)
    distance = compare.to_array(found.distance)[0]
    assert np.isfinite(distance).all(), body.name
    closest, _ = reference.closest_points(points, body.vertices, body.faces)
    expected = np.linalg.norm(closest - points, axis=1)
    scale = np.abs(body.vertices).max() + np.abs(points).max(axis=1)
    winding = reference.winding_number(points, body.vertices, body.faces)
    clear = (expected > TOLERANCE * scale) & (np.abs(winding - 0.5) > DOUBT)
    wrong = clear & ((distance < 0.0) != (winding > 0.5))
    return Outcome(
        False, float((np.abs(np.abs(distance) - expected) / scale).max()), int(wrong.sum())
    )


# Needles that are in no pair, as those of a tip, are rounded more.
WORST = dict.fromkeys(KINDS, 3e-7) | dict.fromkeys(["cone", "needle", "spike", "strip"], 5e-6)


@pytest.mark.parametrize(
    "kind", mostly_slow(KINDS, [kind for kind in KINDS if kind not in ("rod", "spike")][::2])
)
def test_adversarial_meshes(kind: str) -> None:
    taken = 0
    for seed in range(5):
        found = outcome(body := random_body(kind, seed), seed, 200)
        assert found.worst < WORST[kind], body.name
        assert found.wrong == 0, body.name
        taken += not found.refused
    assert taken > 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_adversarial_meshes(kind: str) -> None:
    found = [outcome(random_body(kind, seed), seed, 500) for seed in range(1000, 1200)]
    refused = sum(one.refused for one in found)
    worst, wrong = max(one.worst for one in found), sum(one.wrong for one in found)
    print(
        f"thin: {kind}, {len(found)} meshes, {refused} refused, distance off by at most "
        f"{worst:.1e} of the coordinates, {wrong} wrong signs"
    )
    assert worst < WORST[kind]
    assert wrong == 0


# -- beside rods ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["closed", "open"])
@pytest.mark.parametrize("sides", mostly_slow((8, 32), (8,)))
@pytest.mark.parametrize(
    ("radius", "length"), [(0.001, 5.0), (0.001, 24.0), (0.002, 20.0), (0.005, 15.0), (0.005, 60.0)]
)
def test_signs_beside_rods(radius: float, length: float, sides: int, ends: str) -> None:
    """Within a few radii, where an edge is seen from end to end."""
    rng = np.random.default_rng(181)
    vertices, faces = prism(circle(sides, radius), length)
    if ends == "open":
        faces = faces[np.ptp(vertices[faces][:, :, 2], axis=1) > 0.0]
    share = np.column_stack([rng.uniform(0.0, 2.6, 1000), rng.uniform(0.0, 2.0 * np.pi, 1000)])
    across = radius * share[:, :1] * np.stack([np.cos(share[:, 1]), np.sin(share[:, 1])], axis=1)
    points = np.column_stack([across, rng.uniform(-0.5, 0.5, 1000) * length])
    for turn in (np.eye(3), reference.rotation_matrix(rng.normal(size=4))):
        body = Body("rod", shapes.rounded(vertices @ turn.T), faces)
        found = outcome(body, points=shapes.rounded(points @ turn.T))
        assert found == Outcome(False, found.worst, 0)
        assert found.worst < 3e-7


def test_what_is_sliced() -> None:
    """No more than is needed, and all of one side alike; a neighbour is fanned out to the cuts."""
    wire = arrays(trimesh.creation.box((1e-4, 1e-4, 50.0)))
    geometry = prepared(wire)
    assert geometry.report.sliced_faces == 8
    assert len(geometry.faces) == 4 + 8 * 3
    np.testing.assert_allclose(geometry.area, area(*wire), rtol=1e-6)
    panel = arrays(trimesh.creation.box((1e-4, 10.0, 50.0)))
    geometry = prepared(panel)
    assert geometry.report.sliced_faces == 4
    assert geometry.report.closed
    np.testing.assert_allclose(geometry.area, area(*panel), rtol=1e-6)
    np.testing.assert_allclose(volume(geometry), 0.05, rtol=1e-4)


@pytest.mark.parametrize("seed", mostly_slow((1024, 1035, 1042), (1035,)))
def test_what_slices_would_spoil_is_taken_whole(seed: int) -> None:
    """Bodies that taper or twist, whose slices would be thinner than float32 resolves."""
    body = random_body("spike", seed)
    found = outcome(body, seed, 300)
    assert found == Outcome(False, found.worst, 0)
    assert found.worst < WORST["spike"]


def test_more_slices_than_there_may_be() -> None:
    vertices, faces = together(*(cylinder(1e-3, 100.0, 64) for _ in range(200)))
    turn = reference.rotation_matrix([0.9, 0.3, -0.2, 0.5])
    shift = np.repeat(np.arange(200.0), len(vertices) // 200)[:, None] * (0.01, 0.0, 0.0)
    with pytest.raises(ValueError, match=r"must be resolved by at most 1,000,000 faces, got 3,"):
        prepared(((vertices + shift) @ turn.T, faces))

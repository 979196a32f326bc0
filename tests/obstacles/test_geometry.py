"""What is found in a mesh when it is loaded, and what is repaired."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import trimesh

from mesh_defects import (
    AWAY,
    BALL,
    CUBE,
    OPEN,
    REVERSED,
    SMALL,
    Mesh,
    Numbers,
    area,
    arrays,
    box,
    inverted,
    numbers,
    prepared,
    together,
    volume,
    windings,
    with_faces,
)
from reference import closest_points
from warp_collision import MeshWorld, signed_distance

# -- clean meshes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mesh", [CUBE, BALL, together(CUBE, AWAY)], ids=["cube", "ball", "two"])
def test_a_clean_mesh_is_left_as_it_is(mesh: Mesh) -> None:
    geometry = prepared(mesh)
    assert numbers(geometry) == Numbers(bodies=len(mesh[1]) // 12 if len(mesh[1]) < 30 else 1)
    assert geometry.report.repairs == []
    assert geometry.report.sliver_faces == 0
    np.testing.assert_array_equal(geometry.vertices, mesh[0].astype(np.float32))
    np.testing.assert_array_equal(geometry.faces, mesh[1])
    np.testing.assert_allclose(geometry.area, area(*mesh), rtol=1e-6)


def test_split_vertices_are_merged() -> None:
    """A soup of triangles, as STL files are, is one closed body; so is -0.0 next to 0.0."""
    vertices, faces = BALL
    soup = vertices[faces].reshape(-1, 3), np.arange(3 * len(faces)).reshape(-1, 3)
    soup[0][::2] = np.where(soup[0][::2] == 0.0, -0.0, soup[0][::2])
    geometry = prepared(soup)
    assert numbers(geometry) == Numbers()
    assert len(geometry.vertices) == len(vertices)
    assert geometry.report.repairs == []
    np.testing.assert_array_equal(
        geometry.vertices[geometry.faces], vertices[faces].astype(np.float32)
    )


# -- faces ----------------------------------------------------------------------------------------


def test_degenerate_faces_are_dropped() -> None:
    vertices = np.concatenate([CUBE[0], [[-0.5, -0.5, 0.0]]])  # the middle of an edge
    mesh = with_faces((vertices, CUBE[1]), [[0, 0, 3], [1, 2, 1], [0, 8, 1], [5, 5, 5]])
    geometry = prepared(mesh)
    assert numbers(geometry) == Numbers(degenerate=4)
    assert geometry.report.repairs == ["dropped 4 degenerate faces"]
    np.testing.assert_array_equal(geometry.faces, CUBE[1])
    # Queries do not see them, so they go without repair as well.
    np.testing.assert_array_equal(prepared(mesh, repair=False).faces, CUBE[1])


def test_small_and_thin_faces_are_not_degenerate() -> None:
    for scale in (1e-4, 1.0, 1e6):
        speck = prepared((CUBE[0] * scale, CUBE[1]))
        assert numbers(speck) == Numbers()
        needle = prepared(box(scale, 1e-4 * scale, 1e-4 * scale))
        assert numbers(needle) == Numbers()
        np.testing.assert_allclose(volume(needle), 1e-8 * scale**3, rtol=1e-3)


def test_duplicate_faces_are_dropped() -> None:
    """However their indices are rolled."""
    copies = np.roll(CUBE[1][2:5], 1, axis=1)
    mesh = with_faces(CUBE, CUBE[1][:2], copies, copies[:1])
    geometry = prepared(mesh)
    assert numbers(geometry) == Numbers(duplicate=6, consistent=True)
    assert geometry.report.repairs == ["dropped 6 duplicate faces"]
    np.testing.assert_array_equal(geometry.faces, CUBE[1])
    kept = prepared(mesh, repair=False)
    assert kept.report.duplicate_faces == 6
    assert kept.report.repairs == []
    np.testing.assert_array_equal(kept.faces, mesh[1])


@pytest.mark.parametrize("mesh", [CUBE, BALL, together(CUBE, AWAY), OPEN])
@pytest.mark.parametrize("reversed_first", [False, True])
def test_double_sided_exports_keep_one_side(mesh: Mesh, reversed_first: bool) -> None:
    """Every face comes with its reversed copy: a closed mesh is solid again, not a foil."""
    both = (mesh[1], mesh[1][:, ::-1])
    count = len(mesh[1])
    double = (mesh[0], np.concatenate(both[::-1] if reversed_first else both))
    geometry = prepared(double)
    assert geometry.report.reversed_faces == count
    assert geometry.report.closed == (mesh is not OPEN)
    assert f"dropped {count} reversed copies of faces" in geometry.report.repairs
    assert len(geometry.faces) == count
    if mesh is not OPEN:
        np.testing.assert_allclose(volume(geometry), volume(prepared(mesh)), rtol=1e-6)


def test_some_faces_with_reversed_copies() -> None:
    """A wall of a closed box that was exported for both sides."""
    geometry = prepared(with_faces(CUBE, REVERSED[2:6]))
    assert numbers(geometry)._replace(bodies=1, consistent=True) == Numbers(reversed=4)
    assert windings(geometry, (0.1, 0.2, 0.3), (2.0, 0.1, 0.0)) == [1.0, 0.0]
    assert len(geometry.faces) == 12


def test_abutting_boxes_keep_their_wall() -> None:
    """The wall between them is no double-sided export: inside both, and on no side free."""
    geometry = prepared(together(box(1.0, 1.0, 1.0), box(1.0, 1.0, 1.0, at=(1.0, 0.0, 0.0))))
    assert geometry.report.reversed_faces == 2
    assert geometry.report.closed
    assert geometry.report.repairs == []
    assert windings(geometry, (0.1, 0.2, 0.3), (0.9, 0.2, 0.3), (1.6, 0.0, 0.1)) == [1.0, 1.0, 0.0]


def test_stacked_boxes_that_share_part_of_a_wall() -> None:
    geometry = prepared(together(CUBE, box(0.5, 0.5, 0.5, at=(0.1, 0.0, 0.75))))
    assert numbers(geometry) == Numbers(bodies=2, overlapping=1)
    assert windings(geometry, (0.1, 0.0, 0.7), (0.1, 0.0, 0.4), (0.5, 0.5, 0.7)) == [1.0, 1.0, 0.0]


# -- slivers --------------------------------------------------------------------------------------


SLIVERS = {
    "plate": (box(1.0, 1.0, 0.0005), 0),
    "rod": (box(1.0, 0.01, 0.01, at=(0.3, 0.1, 0.2)), 0),
    "needle": (arrays(trimesh.creation.cone(radius=0.001, height=1.0, sections=16)), 0),
    "roof": (
        (
            np.array([[0.0, 0, 0], [1.0, 0, 0], [0.4, 0.01, 0], [0.5, 0.005, 0.01]]),
            np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]]),
        ),
        4,
    ),
}


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize("case", SLIVERS)
def test_slivers_have_a_right_angle_where_they_begin(case: str, repair: bool) -> None:
    """There float32 solves for the closest point; obtuse ones are split at the foot of a height."""
    mesh, split = SLIVERS[case]
    geometry = prepared(mesh, repair=repair)
    assert geometry.report.sliver_faces == split
    told = [f"split {split} sliver faces in place"] if split else []
    assert geometry.report.repairs == told
    assert numbers(geometry) == Numbers()
    assert len(geometry.faces) == len(mesh[1]) + split
    np.testing.assert_allclose(geometry.area, area(*mesh), rtol=1e-5)
    np.testing.assert_allclose(volume(geometry), trimesh.Trimesh(*mesh).volume, rtol=1e-4)
    points = geometry.vertices.astype(np.float64)
    on_surface = closest_points(points, *mesh)[0]
    assert np.linalg.norm(points - on_surface, axis=1).max() < 1e-7
    corners = points[geometry.faces]
    sides = corners[:, 1:] - corners[:, :1]
    lengths = np.linalg.norm(sides, axis=2)
    cosine = np.abs(np.einsum("fi,fi->f", sides[:, 0], sides[:, 1])) / lengths.prod(axis=1)
    assert (cosine * lengths.max(axis=1) / lengths.min(axis=1)).max() < 10.0
    assert cosine[lengths.max(axis=1) > 20.0 * lengths.min(axis=1)].max(initial=0.0) < 0.1


def test_faces_on_a_line_still_join_their_neighbours() -> None:
    """A long edge that meets two short ones, with a face without area between them."""
    vertices = np.concatenate([CUBE[0], [[-0.5, -0.5, 0.0]]])  # the middle of the edge 0-1
    holder = int(np.flatnonzero([{0, 1} <= set(face) for face in CUBE[1]])[0])
    face = np.roll(CUBE[1][holder], -int(np.flatnonzero(CUBE[1][holder] == 0)[0]))
    if face[1] != 1:
        face = np.roll(face, 1)
    first, second, apex = face
    halves = [[first, 8, apex], [8, second, apex], [first, second, 8]]
    mesh = (vertices, np.concatenate([np.delete(CUBE[1], holder, axis=0), halves]))
    for given, inverted_components in ((mesh, 0), (inverted(mesh), 1)):
        geometry = prepared(given)
        assert numbers(geometry) == Numbers(degenerate=1, inverted=inverted_components)
        assert len(geometry.faces) == 13
        assert windings(geometry, (0.1, 0.2, 0.3), (0.0, 0.7, 0.0)) == [1.0, 0.0]


# -- signs, size, report --------------------------------------------------------------------------


def test_sign_methods() -> None:
    for mesh, method in (
        (CUBE, "convex"),
        (OPEN, "exact_winding"),
        (together(CUBE, inverted(SMALL)), "winding"),
    ):
        report = prepared(mesh).report
        assert report.sign_method == method
        assert ("open" if method == "exact_winding" else "closed") in report.reason
    for chosen in ("winding", "exact_winding"):
        for mesh in (CUBE, OPEN):
            report = prepared(mesh, sign=chosen).report
            assert (report.sign_method, report.reason) == (chosen, "chosen by the user")
    with pytest.raises(ValueError, match=r"sign must be one of .*'exact_winding'.* got 'parity'"):
        prepared(CUBE, sign="parity")


CONVEX: dict[str, Callable[[], Mesh]] = {
    "cube": lambda: CUBE,
    "inverted cube": lambda: inverted(CUBE),
    "ball": lambda: arrays(trimesh.creation.icosphere(subdivisions=3)),
    "cylinder": lambda: arrays(trimesh.creation.cylinder(0.01, 1.0)),
    "plate": lambda: arrays(trimesh.creation.box((1.0, 1.0, 5e-4))),
    "cube far away": lambda: (CUBE[0] + 1000.0, CUBE[1]),
}


def dented(depth: float) -> Mesh:
    """A cube with the middle of one side pushed in."""
    vertices, faces = arrays(trimesh.creation.box((1.0, 1.0, 1.0)).subdivide())
    middle = int(np.argmin(np.linalg.norm(vertices - (0.5, 0.0, 0.0), axis=1)))
    return vertices - depth * np.eye(len(vertices))[middle, :, None] * (1.0, 0.0, 0.0), faces


NOT_CONVEX: dict[str, Callable[[], Mesh]] = {
    "dent": lambda: dented(1e-4),
    "torus": lambda: arrays(trimesh.creation.torus(0.3, 0.1)),
    "two cubes": lambda: together(CUBE, (CUBE[0] + (0.3, 0.0, 0.0), CUBE[1])),
    "nested cubes": lambda: together(CUBE, SMALL),
    "abutting cubes": lambda: together(CUBE, (CUBE[0] + (1.0, 0.0, 0.0), CUBE[1])),
    "sheet with two sides": lambda: (CUBE[0][:3], np.array([[0, 1, 2], [2, 1, 0]])),
    "open cube": lambda: OPEN,
}


def test_what_is_convex() -> None:
    assert prepared(dented(0.0)).report.sign_method == "convex"
    for name, make in CONVEX.items():
        assert prepared(make()).report.sign_method == "convex", name
    for name, make in NOT_CONVEX.items():
        assert prepared(make(), repair=False).report.sign_method != "convex", name
    # What is not outward is not told from inside by the face that is closest.
    assert prepared(inverted(CUBE), repair=False).report.sign_method == "winding"


def ribbon(n: int) -> Mesh:
    """A strip of 2 n faces in a row, every seventh of them turned."""
    x = np.arange(n + 1.0)
    vertices = np.stack([np.tile(x, 2), np.repeat([0.0, 1.0], n + 1), 0.0 * np.tile(x, 2)], axis=1)
    i = np.arange(n)
    faces = np.concatenate(
        [np.stack([i, i + 1, i + n + 1], axis=1), np.stack([i + 1, i + n + 2, i + n + 1], axis=1)]
    )
    faces[::7] = faces[::7, ::-1]
    return vertices, faces


def test_a_strip_of_faces_in_a_row() -> None:
    """The farthest neighbours that a mesh of this size can have."""
    geometry = prepared(ribbon(2_000))
    assert numbers(geometry) == Numbers(closed=False, consistent=False)
    assert geometry.report.repairs == []


LARGE: dict[str, Callable[[], tuple[Mesh, Numbers]]] = {
    "ball": lambda: (arrays(trimesh.creation.icosphere(subdivisions=6)), Numbers()),
    "inverted": lambda: (
        inverted(arrays(trimesh.creation.icosphere(subdivisions=6))),
        Numbers(inverted=1),
    ),
}


@pytest.mark.parametrize("case", LARGE)
def test_80_000_faces(case: str) -> None:
    """A mesh of this size is no work, however its faces hang together."""
    mesh, expected = LARGE[case]()
    assert 80_000 <= len(mesh[1]) < 82_000
    geometry = prepared(mesh)
    assert numbers(geometry) == expected
    np.testing.assert_allclose(geometry.area, area(*mesh), rtol=1e-4)


def test_a_report_can_be_read() -> None:
    world = MeshWorld()
    flawed = with_faces(inverted(CUBE), CUBE[1][:1, ::-1], [[0, 0, 1]])
    world.add("flawed", flawed)
    report = world.report("flawed")
    text = str(report)
    for part in (
        "14 faces, 1 components, closed, consistently oriented",
        "degenerate 1, duplicate 1, reversed duplicate 0, sliver 0 faces",
        "inverted components 1",
        "dropped 1 degenerate faces; dropped 1 duplicate faces; oriented 1 components outward",
        "sign: convex (closed",
    ):
        assert part in text
    world.add("open", OPEN)
    assert "open, consistently oriented" in str(world.report("open"))
    assert "repaired: nothing" in str(world.report("open"))
    assert "sign: exact_winding" in str(world.report(1))


@pytest.mark.parametrize(("units", "metre"), [("mm", 1000.0), ("inches", 1.0 / 0.0254), ("m", 1.0)])
def test_units_that_a_mesh_declares(units: str, metre: float) -> None:
    """A mesh and a scene of it are of one size."""
    mesh = trimesh.creation.box((metre, metre, metre))
    mesh.units = units
    added, loaded = MeshWorld(device="cpu"), MeshWorld(device="cpu")
    added.add("box", mesh)
    loaded.load(trimesh.Scene(mesh))
    for world in (added, loaded):
        distance = signed_distance(torch.zeros(1, 3), world).distance
        assert distance.item() == pytest.approx(-0.5, rel=1e-6)
    mesh.units = "furlongs per fortnight"
    with pytest.raises(ValueError, match="mesh 'box': units must be a unit of length, got 'furl"):
        added.add("box", mesh, replace=True)

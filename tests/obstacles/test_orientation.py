"""Which way the bodies of a mesh look when it is loaded, and which of them are turned."""

from typing import Any

import numpy as np
import pytest

from mesh_defects import (
    AWAY,
    BALL,
    CUBE,
    OPEN,
    SMALL,
    Mesh,
    Numbers,
    box,
    inverted,
    moebius_strip,
    numbers,
    prepared,
    together,
    volume,
    windings,
)
from reference import closest_points, winding_number
from warp_collision.obstacles.orientation import component_windings


@pytest.mark.parametrize("mesh", [CUBE, BALL])
def test_an_inverted_mesh_is_turned(mesh: Mesh) -> None:
    geometry = prepared(inverted(mesh))
    assert numbers(geometry) == Numbers(inverted=1)
    assert geometry.report.repairs == ["oriented 1 components outward"]
    assert volume(geometry) == pytest.approx(volume(prepared(mesh)))
    kept = prepared(inverted(mesh), repair=False)
    assert numbers(kept) == Numbers(inverted=1)
    assert volume(kept) == pytest.approx(-volume(geometry))


def test_flipped_faces_are_turned_back() -> None:
    vertices, faces = BALL
    flipped = faces.copy()
    flipped[3::7] = flipped[3::7, ::-1]
    geometry = prepared((vertices, flipped))
    assert numbers(geometry) == Numbers(consistent=False)
    assert "flipped faces to agree with their neighbours" in geometry.report.repairs
    assert volume(geometry) == pytest.approx(volume(prepared(BALL)))
    kept = prepared((vertices, flipped), repair=False)
    assert numbers(kept)._replace(inverted=0) == Numbers(consistent=False, closed=False)
    np.testing.assert_array_equal(kept.faces, flipped)


CAVITY, CAVITY_POINTS = together(CUBE, inverted(SMALL)), ((0.3, 0.3, 0.3), (0.1, 0.0, 0.1))
ORIENTED: dict[str, tuple[Mesh, int, tuple[Any, ...], list[float]]] = {
    "a solid with a cavity": (CAVITY, 0, CAVITY_POINTS, [1.0, 0.0]),
    "a cavity first": (together(inverted(SMALL), CUBE), 0, CAVITY_POINTS, [1.0, 0.0]),
    "an inverted solid with a cavity": (inverted(CAVITY), 2, CAVITY_POINTS, [1.0, 0.0]),
    "nested bodies": (together(CUBE, SMALL), 0, CAVITY_POINTS, [1.0, 2.0]),
    "inverted nested bodies": (inverted(together(CUBE, SMALL)), 2, CAVITY_POINTS, [1.0, 2.0]),
    "one of two inverted": (
        together(CUBE, inverted(AWAY)),
        1,
        ((0.1, 0.0, 0.2), (3.1, 0.2, 0.0), (1.5, 0.1, 0.2)),
        [1.0, 1.0, 0.0],
    ),
    "the bigger of two inverted": (
        together(inverted(CUBE), box(0.5, 0.5, 0.5, at=(3.0, 0.0, 0.0))),
        1,
        ((0.1, 0.0, 0.2), (3.1, 0.2, 0.0), (1.5, 0.1, 0.2)),
        [1.0, 1.0, 0.0],
    ),
    "a core in a cavity": (
        together(CUBE, inverted(box(0.8, 0.8, 0.8)), SMALL),
        0,
        ((0.45, 0.0, 0.1), (0.3, 0.3, 0.1), (0.1, 0.1, 0.0)),
        [1.0, 0.0, 1.0],
    ),
    "an inverted core in a cavity": (
        together(CUBE, inverted(box(0.8, 0.8, 0.8)), inverted(SMALL)),
        1,
        ((0.45, 0.0, 0.1), (0.3, 0.3, 0.1), (0.1, 0.1, 0.0)),
        [1.0, 0.0, 1.0],
    ),
    "a closed body next to an open one": (
        together(inverted(CUBE), (OPEN[0] + 3.0, OPEN[1])),
        1,
        ((0.1, 0.0, 0.2),),
        [1.0],
    ),
}


@pytest.mark.parametrize("case", ORIENTED)
def test_bodies_look_outward(case: str) -> None:
    """A cavity looks inward rightly; what is inside counts as such, and nothing else."""
    mesh, turned, points, expected = ORIENTED[case]
    geometry = prepared(mesh)
    assert geometry.report.inverted_components == turned
    found = windings(geometry, *points)
    np.testing.assert_allclose(found, expected, atol=0.1 if "open" in case else 1e-6)
    assert bool(geometry.report.repairs) == (turned > 0)


def test_an_open_mesh_is_not_turned() -> None:
    """It has no outside that its faces ought to look at, and the report does not claim a repair."""
    flipped = OPEN[1].copy()
    flipped[0] = flipped[0, ::-1]
    for faces in (OPEN[1], OPEN[1][:, ::-1], flipped):
        geometry = prepared((OPEN[0], faces))
        assert numbers(geometry) == Numbers(closed=False, consistent=faces is not flipped)
        assert geometry.report.repairs == []
        np.testing.assert_array_equal(geometry.faces, faces)


def test_a_moebius_strip() -> None:
    geometry = prepared(moebius_strip())
    assert numbers(geometry) == Numbers(closed=False, consistent=False)
    assert geometry.report.repairs == []
    assert geometry.report.sign_method == "exact_winding"
    np.testing.assert_array_equal(geometry.faces, moebius_strip()[1])


def test_a_moebius_strip_does_not_keep_other_bodies_from_repair() -> None:
    flipped = CUBE[1].copy()
    flipped[3:5] = flipped[3:5, ::-1]
    strip = moebius_strip()
    geometry = prepared(together((CUBE[0], flipped), (strip[0] + 4.0, strip[1])))
    assert "flipped faces to agree with their neighbours" in geometry.report.repairs
    assert windings(geometry, (0.1, 0.2, 0.3)) == pytest.approx([1.0], abs=0.05)
    np.testing.assert_array_equal(geometry.faces[12:], strip[1] + 8)


def test_closed_bodies_beside_a_fin() -> None:
    """A face that leans on an edge of one of them; all else is examined as usual."""
    fin = np.array([[0.5, 0.5, 0.5], [0.5, 0.5, -0.5], [1.0, 1.0, 0.0]])
    geometry = prepared(together(CUBE, (fin, np.array([[0, 1, 2]])), inverted(AWAY)))
    assert not geometry.report.closed
    assert geometry.report.inverted_components == 1
    assert geometry.report.sign_method == "exact_winding"
    assert windings(geometry, (3.1, 0.2, 0.0)) == pytest.approx([1.0], abs=0.1)


# -- bodies ---------------------------------------------------------------------------------------


def test_overlapping_bodies_are_counted() -> None:
    geometry = prepared(together(CUBE, box(1.0, 1.0, 1.0, at=(0.5, 0.3, 0.2)), AWAY, SMALL))
    # Pairs of bounding boxes: the first with the second, and both with the small one.
    assert numbers(geometry) == Numbers(bodies=4, overlapping=3)


def test_many_bodies_apart() -> None:
    """More bodies than are compared pair by pair, listed in no order."""
    places = np.stack(np.meshgrid(*[np.arange(11.0)] * 3), axis=-1).reshape(-1, 3) * 2.0
    rng = np.random.default_rng(71)
    mesh = together(*((CUBE[0] + place, CUBE[1]) for place in rng.permutation(places)))
    assert numbers(prepared(mesh)) == Numbers(bodies=11**3)
    third = mesh[1].reshape(-1, 12, 3).copy()
    third[::3] = third[::3, :, ::-1]
    geometry = prepared((mesh[0], third.reshape(-1, 3)))
    assert geometry.report.inverted_components == len(third[::3])
    assert volume(geometry) == pytest.approx(11**3)


def test_windings_by_rays_are_those_of_sums() -> None:
    """Also of points on vertices, edges and faces of other bodies."""
    rng = np.random.default_rng(72)
    small = [
        (CUBE[0] * scale + place, CUBE[1])
        for scale, place in zip(
            rng.uniform(0.1, 0.6, 40), rng.uniform(-2.0, 2.0, (40, 3)), strict=True
        )
    ]
    bodies = [box(5.0, 5.0, 5.0), inverted(box(4.5, 4.5, 4.5)), CUBE, BALL, *small]
    vertices, faces = together(*bodies)
    body = np.repeat(np.arange(len(bodies)), [len(mesh[1]) for mesh in bodies])
    on_faces = vertices[faces[rng.integers(len(faces), size=100)]].mean(axis=1)
    points = np.concatenate([rng.uniform(-3.0, 3.0, (200, 3)), vertices, on_faces])
    before = rng.integers(len(bodies), size=len(points))
    found = np.zeros((len(points), len(bodies)))
    index, other, number = component_windings(points, before, vertices, faces, body)
    found[index, other] = number
    for k in range(len(bodies)):
        own = faces[body == k]
        asked = before > k
        touching = np.linalg.norm(closest_points(points, vertices, own)[0] - points, axis=1) < 1e-9
        off = asked & ~touching
        np.testing.assert_allclose(
            found[off, k], winding_number(points[off], vertices, own), atol=1e-6
        )
        share = found[asked & touching, k] * (-1.0 if k == 1 else 1.0)
        assert ((share > 0.1) & (share < 0.6)).all()
        assert not found[~asked, k].any()


def test_many_cavities() -> None:
    """Of which some, and what is beside them, look the wrong way."""
    rng = np.random.default_rng(73)
    places = np.stack(np.meshgrid(*[np.arange(10.0)] * 3), axis=-1).reshape(-1, 3) - 4.5
    holes = [inverted((SMALL[0] + place, SMALL[1])) for place in places]
    within = [(0.5 * SMALL[0] + place, SMALL[1]) for place in places[::3]]
    wrong = [
        inverted((CUBE[0] + (place + (20.0, 0.0, 0.0)), CUBE[1])) for place in 2.0 * places[::7]
    ]
    bodies = [box(12.0, 12.0, 12.0), *holes, *within, *wrong]
    geometry = prepared(together(*(bodies[k] for k in rng.permutation(len(bodies)))))
    assert geometry.report.inverted_components == len(wrong)
    solid = 12.0**3 - 1000 * 0.4**3 + len(within) * 0.2**3 + len(wrong)
    assert volume(geometry) == pytest.approx(solid, rel=1e-5)

"""Which way the bodies of a mesh look when it is loaded, and which of them are turned."""

from typing import Any

import numpy as np
import pytest

from flawed import (
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


@pytest.mark.parametrize("mesh", [CUBE, BALL])
def test_an_inverted_mesh_is_turned(mesh: Mesh) -> None:
    geometry = prepared(inverted(mesh))
    assert numbers(geometry) == Numbers(inverted=1)
    assert geometry.report.repairs == ["turned 1 bodies outward"]
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
    assert "turned faces to agree with their neighbours" in geometry.report.repairs
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
    assert geometry.report.inverted_bodies == turned
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
    assert "turned faces to agree with their neighbours" in geometry.report.repairs
    assert windings(geometry, (0.1, 0.2, 0.3)) == pytest.approx([1.0], abs=0.05)
    np.testing.assert_array_equal(geometry.faces[12:], strip[1] + 8)


def test_closed_bodies_beside_a_fin() -> None:
    """A face that leans on an edge of one of them; all else is examined as usual."""
    fin = np.array([[0.5, 0.5, 0.5], [0.5, 0.5, -0.5], [1.0, 1.0, 0.0]])
    geometry = prepared(together(CUBE, (fin, np.array([[0, 1, 2]])), inverted(AWAY)))
    assert not geometry.report.closed
    assert geometry.report.inverted_bodies == 1
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
    assert geometry.report.inverted_bodies == len(third[::3])
    assert volume(geometry) == pytest.approx(11**3)

"""Exact shapes as values, and the meshes that contain them."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import trimesh

from exact_shapes import capsule, cone, cuboid, cylinder, scattered, sphere
from warp_collision import Capsule, Cone, Cuboid, Cylinder, Sphere
from warp_collision.obstacles.shapes import PlacedShape, Shape

PAIRS = (
    (Cuboid((0.4, 0.3, 0.2)), cuboid(0.4, 0.3, 0.2), 0.0),
    (Cuboid((5.0, 0.002, 1.0)), cuboid(5.0, 0.002, 1.0), 0.0),
    (Sphere(0.3), sphere(0.3), 0.0012),
    (Capsule(0.1, 0.5), capsule(0.1, 0.5), 0.0025),
    (Capsule(0.02, 6.0), capsule(0.02, 6.0), 0.0025),
    (Capsule(0.4, 0.0), capsule(0.4, 0.0), 0.0025),
    (Capsule(0.001, 24.0), capsule(0.001, 24.0), 0.0025),
    (Cylinder(0.001, 24.0), cylinder(0.001, 24.0), 0.00031),
    (Cylinder(0.1, 0.5), cylinder(0.1, 0.5), 0.00031),
    (Cylinder(0.5, 0.001), cylinder(0.5, 0.001), 0.00031),
    (Cone(0.1, 0.5), cone(0.1, 0.5), 0.00031),
    (Cone(0.5, 0.001), cone(0.5, 0.001), 0.00031),
)


@pytest.mark.parametrize(("shape", "exact", "excess"), PAIRS, ids=lambda v: str(v)[:40])
def test_tessellation_contains_the_shape(shape: Shape, exact: Any, excess: float) -> None:
    mesh = trimesh.Trimesh(*shape.tessellate(), process=False)
    assert mesh.is_watertight
    assert mesh.is_winding_consistent
    assert mesh.is_convex
    # Convex, so that it contains what lies behind the planes of all its faces.
    rng = np.random.default_rng(5)
    points = scattered(exact, 2000, rng)
    points = points[exact.distance(points) <= 0.0]
    assert len(points) > 200
    planes = np.einsum("ij,ij->i", mesh.face_normals, mesh.triangles[:, 0])
    size = float(shape.half_extents.max())
    assert (points @ mesh.face_normals.T <= planes + 1e-9 * size).all()
    assert exact.distance(np.asarray(mesh.vertices)).max() <= excess * shape.half_extents[0] + 1e-12
    on_box = np.abs(mesh.vertices).max(axis=0)
    assert (on_box >= shape.half_extents * (1.0 - 1e-12)).all()


def test_shapes_are_values() -> None:
    assert Cuboid([1, 2, 3]) == Cuboid((1.0, 2.0, 3.0)) == Cuboid(np.array([1, 2, 3]))  # pyright: ignore[reportArgumentType]
    assert Cuboid(torch.tensor([1.0, 2.0, 4.0])) == Cuboid((1.0, 2.0, 4.0))  # pyright: ignore[reportArgumentType]
    assert len({Sphere(1), Sphere(1.0), Sphere(np.float32(1)), Capsule(1.0, 0), Sphere(2.0)}) == 3
    assert Capsule(0.1, 0.0).length == 0.0
    assert repr(Cylinder(radius=0.1, height=np.float64(2))) == "Cylinder(radius=0.1, height=2.0)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sphere(1.0).radius = 2.0  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Cuboid((1.0, 2.0)), TypeError, "dims must be three numbers"),
        (lambda: Cuboid(1.0), TypeError, "dims must be three numbers"),
        (lambda: Cuboid(1, 1, 1), TypeError, "dims must be one sequence of three numbers"),
        (lambda: Cuboid(((1.0,), (2.0, 3.0))), TypeError, "dims must be three numbers"),
        (lambda: Cuboid("abc"), TypeError, "dims must be three numbers"),
        (lambda: Cuboid((1.0, 0.0, 2.0)), ValueError, "dims must be positive.*got 0.0"),
        (lambda: Cuboid((1.0, -1.0, 2.0)), ValueError, "dims must be positive.*got -1.0"),
        (lambda: Cuboid((1.0, np.nan, 2.0)), ValueError, "dims must be positive.*got nan"),
        (lambda: Sphere(np.inf), ValueError, "radius must be .*got inf"),
        (lambda: Sphere(True), TypeError, "radius must be a number, got True"),
        (lambda: Sphere(None), TypeError, "radius must be a number, got None"),
        (lambda: Sphere(1e9), ValueError, "radius must be .*below 1e\\+09"),
        (lambda: Capsule(0.0, 1.0), ValueError, "radius must be positive"),
        (lambda: Capsule(1.0, -1.0), ValueError, "length must be positive.*or 0, got -1.0"),
        (lambda: Capsule(1.0, "1"), TypeError, "length must be a number, got '1'"),
        (lambda: Cylinder(1.0, 0.0), ValueError, "height must be positive"),
        (lambda: Cylinder((1.0, 2.0), 1.0), TypeError, "radius must be a number"),
    ],
)
def test_bad_shapes(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_turns_along_axes_are_none() -> None:
    half = np.sqrt(0.5)
    turned = PlacedShape(Cuboid((1.0, 2.0, 3.0)), np.ones(3), np.array([half, 0.0, 0.0, -half]))
    straight = turned.axis_aligned()
    assert straight.is_axis_aligned
    assert straight.shape == Cuboid((2.0, 1.0, 3.0))
    assert (straight.center == 1.0).all()
    about_z = np.array([np.cos(0.4), 0.0, 0.0, np.sin(0.4)])
    assert PlacedShape(Cylinder(1.0, 2.0), rotation=about_z).axis_aligned().is_axis_aligned
    assert (
        PlacedShape(Capsule(1.0, 2.0), rotation=np.array([0.0, 1.0, 0.0, 0.0]))
        .axis_aligned()
        .is_axis_aligned
    )
    assert not PlacedShape(Cuboid((1.0, 2.0, 3.0)), rotation=about_z).axis_aligned().is_axis_aligned
    about_x = np.array([np.cos(0.4), np.sin(0.4), 0.0, 0.0])
    assert PlacedShape(Sphere(1.0), rotation=about_x).axis_aligned().is_axis_aligned
    assert not PlacedShape(Capsule(1.0, 2.0), rotation=about_x).axis_aligned().is_axis_aligned

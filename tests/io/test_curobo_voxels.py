"""Grids of distances in cuRobo's worlds: both conventions, and bounds of what they are of."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from warp_collision import MeshWorld, signed_distance
from warp_collision.io import LeftOutWarning
from warp_collision.obstacles.voxel_grid import EsdfGrid

REST = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
EDGE = 0.05
CENTER, RADIUS = np.array([0.1, -0.2, 0.15]), 0.25
Array = np.ndarray


def ball(points: Array) -> Array:
    return np.linalg.norm(points - CENTER, axis=-1) - RADIUS


def entry_of(version: str, dims: tuple[float, ...], *, dtype: Any = torch.float32) -> dict:
    """What a version has of a ball, at the centers that its `create_xyzr_tensor` lists."""
    counts = np.array(dims) / EDGE
    shape = (np.floor(counts + 1e-4) + 1 if version == "0.7" else np.round(counts)).astype(int)
    first = -EDGE * np.round(0.5 * counts) + 0.5 * EDGE
    values = ball(first + EDGE * np.moveaxis(np.indices(shape), 0, -1))
    values = torch.tensor(-values if version == "0.7" else values).to(dtype)
    return {"dims": list(dims), "voxel_size": EDGE, "pose": REST, "feature_tensor": values.ravel()}


def grid_of(world: MeshWorld) -> EsdfGrid:
    shape = world.report("map").shape
    assert isinstance(shape, EsdfGrid)
    return shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("dims", "shift"), [((1.0, 1.2, 0.8), 0.0), ((1.05, 1.2, 0.85), 0.5 * 2.0**0.5 * EDGE)]
)
@pytest.mark.parametrize("version", ["0.7", "0.8"])
def test_no_value_is_above_the_distance(
    version: str, dims: tuple[float, ...], shift: float, dtype: torch.dtype
) -> None:
    """Also where a side is an odd number of voxels, whose centers cuRobo lists and reads apart."""
    entry = entry_of(version, dims, dtype=dtype) | {"error": 1e-6}
    world = MeshWorld.from_mapping({"voxel": {"map": entry}}, "cpu")
    grid = grid_of(world)
    assert grid.error == pytest.approx(1e-6 + shift, rel=1e-6)
    assert (grid.values.dtype == np.float16) == (dtype == torch.float16)
    rng = np.random.default_rng(1)
    points = rng.uniform(-0.8, 0.8, (100_000, 3)).astype(np.float32)
    found = signed_distance(torch.from_numpy(points), world).distance.numpy()
    truth = ball(points.astype(np.float64))
    assert (found <= truth + 1e-6).all()
    near = (np.abs(points) < 0.35).all(axis=1)
    rounding = 2.0**-7 if dtype == torch.bfloat16 else 2.0**-10
    assert (found >= truth - 2.0 * (shift + 0.87 * EDGE) - 1.5 * EDGE - rounding)[near].all()


def test_without_an_error_half_a_diagonal_is_taken(tmp_path: Path) -> None:
    entry = entry_of("0.8", (1.0, 1.0, 1.0))
    values = entry.pop("feature_tensor").numpy().reshape(20, 20, 20)
    np.savez(tmp_path / "map.npz", values)
    text = "voxel: {map: {dims: [1, 1, 1], voxel_size: 0.05, file_path: map.npz, pose: %s}}"
    (tmp_path / "world.yaml").write_text(text % REST)
    grid = grid_of(MeshWorld.from_file(tmp_path / "world.yaml", "cpu"))
    assert grid.error == pytest.approx(0.5 * 3.0**0.5 * EDGE)
    np.testing.assert_array_equal(grid.values, values)
    np.testing.assert_allclose(grid.origin, -0.5)


def test_what_the_number_of_values_does_not_tell_has_to_be_said() -> None:
    """Of sides of 3.6 voxels both versions make four; the old one keeps its first corner."""
    dims = (3.6 * EDGE,) * 3
    entry = {"dims": dims, "voxel_size": EDGE, "pose": REST, "feature_tensor": torch.zeros(64)}
    with pytest.raises(ValueError, match=r"voxel.map must say whether values inside of obstacles"):
        MeshWorld.from_mapping({"voxel": {"map": entry}}, "cpu")
    entry["feature_tensor"] = torch.full((4, 4, 4), 0.1)
    for inside, sign, corner in (("positive", -1.0, -0.09), ("negative", 1.0, -0.1)):
        given = entry | {"inside": inside}
        grid = grid_of(MeshWorld.from_mapping({"voxel": {"map": given}}, "cpu"))
        assert (grid.values == np.float32(0.1 * sign)).all()
        np.testing.assert_allclose(grid.origin, corner)
    # What is said goes before the version that the number tells.
    given = entry_of("0.8", (1.0, 1.0, 1.0)) | {"inside": "positive"}
    grid = grid_of(MeshWorld.from_mapping({"voxel": {"map": given}}, "cpu"))
    assert (grid.values.ravel() == -given["feature_tensor"].numpy()).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature_tensor": torch.zeros(7)}, "must have values for 20 x 20 x 20 voxels, or up to"),
        ({"feature_tensor": torch.zeros(20, 40, 10)}, "for 21 x 21 x 21, got (20, 40, 10)"),
        ({"inside": "out"}, "voxel.map.inside must be 'positive' or 'negative'"),
        ({"dims": [1, 1]}, "voxel.map.dims must be 3 positive numbers"),
        ({"voxel_size": 0}, "voxel.map.voxel_size must be a positive number"),
        ({"error": -1.0}, "error must be positive and below 1e9 or 0"),
        ({"feature_tensor": torch.zeros(8000).to(torch.float8_e4m3fn)}, "16 bits at least"),
        ({"feature_tensor": torch.full((8000,), torch.nan)}, "got 8000 that are NaN"),
        ({"file_path": "a.npz"}, "either 'feature_tensor' or 'file_path'"),
        ({"depth": 3}, "keys"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    entry = entry_of("0.8", (1.0, 1.0, 1.0)) | change
    with pytest.raises(ValueError, match=re.escape(message)):
        MeshWorld.from_mapping({"voxel": {"map": entry}}, "cpu")


def test_unseen_voxels_at_the_largest_distance_are_refused() -> None:
    entry = entry_of("0.7", (1.0, 1.0, 1.0))
    entry["feature_tensor"][::7] = -1000.0
    with pytest.raises(ValueError, match="values must be distances: neighbours"):
        MeshWorld.from_mapping({"voxel": {"map": entry}}, "cpu")


def test_room_for_values_is_no_obstacle() -> None:
    room = {"dims": [1, 1, 1], "voxel_size": 0.02, "pose": REST}
    ball = {"radius": 0.1, "pose": REST}
    with pytest.warns(LeftOutWarning, match="a grid of voxels without values"):
        world = MeshWorld.from_mapping({"sphere": {"ball": ball}, "voxel": {"room": room}}, "cpu")
    assert world.names() == ["ball"]

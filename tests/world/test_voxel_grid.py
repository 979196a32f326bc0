"""Voxel grids: the union of their boxes in every query, against float64 box by box."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
from scipy import ndimage

from cases import mostly_slow
from compare import to_array, to_device
from reference import Array, Body
from reference_sweep import path_minimum
from reference_sweep import swept_sphere_cost as exact_swept_cost
from resting import assert_resting_queries
from sensed_shapes import random_voxels, voxels_distance
from warp_collision import (
    Cuboid,
    MeshWorld,
    VoxelGrid,
    in_collision,
    signed_distance,
    swept_in_collision,
    swept_sphere_cost,
)
from warp_collision.kernels.voxel_transform import BAND_SQUARE
from warp_collision.obstacles import voxel_tables
from warp_collision.obstacles.voxel_grid import VoxelTables
from warp_collision.obstacles.voxel_tables import squares_of

POSE = (0.1, -0.2, 0.3, 0.5, -0.4, 0.6, 0.2)
ETA = 0.05
KINDS = ("boxes", "dust", "plate", "full")
CPU = torch.device("cpu")


def rounded(values: Any) -> Array:
    return np.asarray(values, np.float32).astype(np.float64)


def case(
    kind: str, edge: float, outside: Any, device: torch.device, pose: Any = POSE
) -> tuple[Body, MeshWorld, VoxelGrid]:
    rng = np.random.default_rng(len(kind))
    occupied = random_voxels(rng, (13, 9, 11), kind)
    origin = rounded([-5.0 * edge, 0.3, -2.0 * edge])
    grid = VoxelGrid(occupied, edge, origin, outside=outside)
    world = MeshWorld(device=device)
    world.add("map", grid, pose)
    edge = float(np.float32(edge))
    return Body(voxels_distance(occupied, edge, origin, outside), rounded(pose)), world, grid


def spheres_in(body: Body, grid: VoxelGrid, *shape: int) -> Array:
    """Spheres (*shape, 4) in the grid and around it."""
    rng = np.random.default_rng(7)
    size = grid.voxel_size * np.array(grid.occupied.shape)
    local = grid.origin + rng.uniform(-0.3, 1.3, (*shape, 3)) * size
    frame = trimesh.transformations.quaternion_matrix(np.asarray(body.pose)[3:])
    centers = local @ frame[:3, :3].T + np.asarray(body.pose)[:3]
    radii = rng.uniform(0.0, 2.0 * grid.voxel_size, (*shape, 1))
    return rounded(np.concatenate((centers, radii), axis=-1))


@pytest.mark.parametrize("outside", ["free", "occupied"])
@pytest.mark.parametrize("edge", [0.001, 0.05])
@pytest.mark.parametrize("kind", KINDS)
def test_resting_queries(kind: str, edge: float, outside: str, device: torch.device) -> None:
    body, world, grid = case(kind, edge, outside, device)
    spheres = spheres_in(body, grid, 1, 1, 700)
    assert (body.distance(spheres[..., :3]) > 0.0).any()
    assert_resting_queries(
        body,
        world,
        spheres,
        activation_distance=ETA,
        step=1e-3 * edge,
        most_at_kinks=0.05,
        device=device,
    )


@pytest.mark.parametrize("outside", mostly_slow(("free", "occupied"), ("occupied",)))
@pytest.mark.parametrize("kind", mostly_slow(KINDS, [*KINDS][:1]))
def test_sweeps(kind: str, outside: str, device: torch.device) -> None:
    body, world, grid = case(kind, 0.05, outside, device)
    ends = spheres_in(body, grid, 150, 2, 1)
    ends[:, 1, :, :3] = ends[:, 0, :, :3] + 0.4 * (ends[:, 1, :, :3] - ends[:, 0, :, :3])
    ends[:, 1, :, 3] = ends[:, 0, :, 3]
    spheres = rounded(ends)
    fine = {"samples": 129, "levels": 5, "split": 8, "kept": 16}
    expected = exact_swept_cost(spheres, [[body]], activation_distance=ETA, **fine)
    given = to_device(spheres, device)
    for tolerance in (1e-5, 1e-2):
        cost = swept_sphere_cost(given, world, activation_distance=ETA, tolerance=tolerance)
        np.testing.assert_allclose(to_array(cost), expected, rtol=1e-4, atol=max(tolerance, 3e-5))
    lowest = path_minimum(spheres[:, 0, 0, :3], spheres[:, 1, 0, :3], body.distance, **fine)
    free = lowest.distance - spheres[:, 0, 0, 3]
    hit = swept_in_collision(given, world, tolerance=1e-4).cpu().numpy().any(axis=(1, 2))
    assert hit[free < -1e-5].all()
    assert not hit[free > 1.2e-4].any()


def test_transform_is_exact() -> None:
    """Squares of half cells against those of SciPy, whose distances are between centers."""
    rng = np.random.default_rng(3)
    for kind in KINDS:
        occupied = random_voxels(rng, (40, 31, 23), kind)
        found = (
            squares_of(torch.tensor(occupied.T, dtype=torch.uint8).contiguous(), False)
            .numpy()
            .T.astype(int)
        )
        assert ((found < 0) == occupied).all()
        solid = np.pad(occupied, 12)
        for own in (False, True):
            offsets = ndimage.distance_transform_edt(
                solid == own, return_distances=False, return_indices=True
            )
            # Not the nearest by its box, but the same square where the nearest center is known.
            steps = np.abs(offsets - np.indices(solid.shape))
            squares = (np.maximum(2 * steps - 1, 0) ** 2).sum(axis=0)[12:-12, 12:-12, 12:-12]
            mine = np.abs(found)[occupied == own]
            bound = np.minimum(squares[occupied == own], BAND_SQUARE)
            assert (mine <= bound).all()
        places = np.argwhere(np.abs(found) < BAND_SQUARE)
        places = places[rng.integers(len(places), size=300)]
        distance = voxels_distance(occupied, 1.0, np.zeros(3))(places + 0.5)
        exact = np.sign(distance) * np.round((2.0 * distance) ** 2)
        np.testing.assert_array_equal(found[tuple(places.T)], exact)
        far = np.argwhere(np.abs(found) == BAND_SQUARE)[:300]
        if len(far):
            distance = voxels_distance(occupied, 1.0, np.zeros(3))(far + 0.5)
            assert (np.round((2.0 * np.abs(distance)) ** 2) >= BAND_SQUARE).all()


def test_no_bound_is_violated() -> None:
    """200,000 points: never farther than the truth, by any grid."""
    rng = np.random.default_rng(11)
    for edge in (0.001, 0.01, 0.05):
        occupied = ndimage.binary_dilation(rng.random((60, 50, 40)) < 0.001, iterations=2)
        world = MeshWorld(device="cpu")
        origin = rounded([-0.2, 0.1, 0.3])
        world.add("map", VoxelGrid(occupied, edge, origin))
        size = edge * np.array(occupied.shape)
        points = (origin + rng.uniform(-0.2, 1.2, (70_000, 3)) * size).astype(np.float32)
        found = signed_distance(torch.from_numpy(points), world).distance.numpy()
        cells = np.floor((points - origin) / edge).astype(int)
        inside = ((cells >= 0) & (cells < occupied.shape)).all(axis=1)
        cells = np.clip(cells, 0, np.array(occupied.shape) - 1)
        solid = inside & occupied[tuple(cells.T)]
        sure = np.abs(found) > 1e-6
        np.testing.assert_array_equal((found < 0.0)[sure], solid[sure])
        # By its nearest box that is known from the center of its cell.
        far = ndimage.distance_transform_edt(~occupied) + 0.0
        centers = origin + (cells + 0.5) * edge
        way = np.linalg.norm(points - centers, axis=1)
        upper = far[tuple(cells.T)] * edge + way
        lower = (far[tuple(cells.T)] - 0.5 * np.sqrt(3.0)) * edge - way
        assert (found <= upper + 2e-6).all()
        assert (found[~solid] >= lower[~solid] - 2e-6).all()
        subset = rng.integers(len(points), size=4000)
        exact = voxels_distance(occupied, float(np.float32(edge)), origin)(
            points[subset].astype(np.float64)
        )
        np.testing.assert_allclose(found[subset], exact, rtol=0, atol=2e-6)


def test_unknown_voxels() -> None:
    occupied = np.zeros((4, 4, 4), bool)
    unknown = np.zeros_like(occupied)
    occupied[0], unknown[3] = True, True
    spheres = torch.tensor([[[[0.5, 2.0, 2.0, 0.1], [2.0, 2.0, 2.0, 0.1], [3.5, 2.0, 2.0, 0.1]]]])

    def hits(grid: VoxelGrid) -> list[bool]:
        world = MeshWorld(device="cpu")
        world.add("map", grid)
        return in_collision(spheres, world).flatten().tolist()

    grid = VoxelGrid(occupied, 1.0, unknown_mask=unknown)
    assert hits(grid) == [True, False, True]
    assert hits(grid.seen) == [True, False, False]
    assert hits(grid.unseen) == [False, False, True]
    assert hits(VoxelGrid(occupied, 1.0, unknown_mask=unknown, unknown="free")) == [
        True,
        False,
        False,
    ]
    assert hits(VoxelGrid(np.zeros_like(occupied), 1.0)) == [False] * 3
    assert hits(VoxelGrid(np.zeros_like(occupied), 1.0, outside="occupied")) == [False] * 3
    assert hits(VoxelGrid(np.ones_like(occupied), 1.0, outside="occupied")) == [True] * 3
    beyond = VoxelGrid(occupied, 1.0, unknown_mask=unknown, outside="unknown")
    for found, voxels, outside in (
        (beyond, [True, False, True], True),
        (beyond.seen, [True, False, False], False),
        (beyond.unseen, [False, False, True], True),
        (beyond.taken("free"), [True, False, False], False),
    ):
        assert hits(found) == voxels
        world = MeshWorld(device="cpu")
        world.add("map", found)
        assert in_collision(spheres - torch.tensor([9.0, 0, 0, 0]), world).all() == outside
    assert [grid.is_unseen for grid in (beyond, beyond.seen, beyond.unseen)] == [False, False, True]
    assert repr(grid) == (
        "VoxelGrid(4 x 4 x 4 voxels of 1 m, 32 occupied, 16 of them unknown, free outside)"
    )


def test_a_solid_block_is_a_cuboid(device: torch.device) -> None:
    """The same distances, inside and outside, moving and at rest, as the exact shape."""
    rng = np.random.default_rng(4)
    block, world, other = (
        np.ones((4, 6, 2), bool),
        MeshWorld(device=device),
        MeshWorld(device=device),
    )
    world.add("map", VoxelGrid(block, 0.1, (-0.2, -0.3, -0.1)), POSE, padding=0.01)
    other.add("box", Cuboid((0.4, 0.6, 0.2)), POSE, padding=0.01)
    spheres = to_device(
        rounded(
            np.concatenate(
                (rng.uniform(-0.8, 0.8, (2, 5, 40, 3)), np.full((2, 5, 40, 1), 0.05)), -1
            )
        ),
        device,
    )
    poses = torch.tensor(rounded(POSE), dtype=torch.float32, device=device).repeat(5, 1, 1)
    poses[..., :3] += torch.linspace(0, 0.3, 5, device=device)[:, None, None]
    for options in ({}, {"poses": poses}):
        costs = [
            swept_sphere_cost(spheres, w, activation_distance=ETA, tolerance=1e-5, **options)
            for w in (world, other)
        ]
        np.testing.assert_allclose(to_array(costs[0]), to_array(costs[1]), rtol=0, atol=2e-5)


def test_files_keep_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    grid = VoxelGrid(
        rng.random((5, 6, 7)) < 0.2,
        0.05,
        (1, 2, 3),
        rng.random((5, 6, 7)) < 0.5,
        outside="occupied",
    )
    world = MeshWorld(device="cpu")
    world.add("map", grid, POSE, padding=0.02)
    world.save(tmp_path / "scene.yaml")
    read = MeshWorld.from_file(tmp_path / "scene.yaml", "cpu").report("map").shape
    assert isinstance(read, VoxelGrid)
    assert read.key == grid.key
    assert read.unknown == "occupied"


def test_update_replaces_blocks() -> None:
    rng = np.random.default_rng(25)
    occupied = rng.random((8, 9, 10)) < 0.1
    world = MeshWorld(device="cpu")
    world.add("map", VoxelGrid(occupied, 0.1))
    points = rng.uniform(0.0, 0.8, (300, 3)).astype(np.float32)
    for at, shape in (((0, 0, 0), (2, 3, 4)), ((6, 6, 6), (2, 3, 4)), (None, (8, 9, 10))):
        block = rng.random(shape) < 0.2
        world.update("map", block, at=at)
        begin = np.array(at or (0, 0, 0))
        occupied[tuple(slice(a, a + n) for a, n in zip(begin, shape, strict=True))] = block
        found = signed_distance(torch.from_numpy(points), world).distance.numpy()
        truth = voxels_distance(occupied, float(np.float32(0.1)), np.zeros(3))(
            points.astype(np.float64)
        )
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match=r"must be given a block within it, got \(2, 2, 2\)"):
        world.update("map", np.zeros((2, 2, 2), bool), at=(7, 0, 0))
    with pytest.raises(ValueError, match=r"must be given the shape \(8, 9, 10\)"):
        world.update("map", np.zeros((2, 2, 2), bool))
    with pytest.raises(ValueError, match="at must be three indices"):
        world.update("map", np.zeros((2, 2, 2), bool), at=0.5)


@pytest.mark.parametrize("outside", ["free", "occupied"])
@pytest.mark.parametrize("size", [(70, 31, 45), (9, 60, 52)])
def test_updates_make_what_a_new_grid_has(
    size: tuple[int, int, int], outside: Any, device: torch.device
) -> None:
    """To the bit, after blocks of all sizes anywhere, and where all or nothing is occupied."""
    rng = np.random.default_rng(sum(size))
    occupied = ndimage.gaussian_filter(rng.normal(size=size), 2.0) > 0.1
    place: dict[str, Any] = {"voxel_size": 0.03, "origin": (0.1, -0.2, 0.3), "outside": outside}
    grid = VoxelGrid(occupied, **place)
    tables = grid.upload(device)
    for step in range(14):
        begin = [int(rng.integers(0, n)) for n in size]
        block = [slice(b, b + int(rng.integers(1, 12))) for b in begin]
        changed = occupied.copy()
        changed[tuple(block)] ^= rng.random(changed[tuple(block)].shape) < rng.choice([0.2, 1.0])
        if step in (5, 6, 9):
            changed[:] = step == 9
        after = VoxelGrid(changed, **place)
        tables, new = after.upload_after(grid, tables, device), after.upload(device)
        assert isinstance(tables, VoxelTables)
        assert isinstance(new, VoxelTables)
        assert torch.equal(tables.squares, new.squares)
        assert torch.equal(tables.faces.rectangles, new.faces.rectangles)
        for part, other in zip(tables.faces.counts, new.faces.counts, strict=True):
            assert torch.equal(part, other)
        grid, occupied = after, changed


def test_updates_compute_what_changed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares of cells within the band of a change are written, those within twice it are read."""
    occupied = np.zeros((90, 80, 70), bool)
    world = MeshWorld(device="cpu")
    world.add("map", VoxelGrid(occupied, 0.02))
    shapes = []

    def squares(solid: torch.Tensor, *arguments: Any) -> torch.Tensor:
        shapes.append(tuple(solid.shape))
        return squares_of(solid, *arguments)

    monkeypatch.setattr(voxel_tables, "squares_of", squares)
    world.update("map", np.ones((2, 3, 4), bool), at=(40, 0, 60))
    assert shapes == [(30, 23, 42)]
    spheres = torch.rand((1, 1, 500, 4), generator=torch.Generator().manual_seed(0))
    spheres *= torch.tensor([1.8, 1.6, 1.4, 0.3])
    occupied[40:42, :3, 60:64] = True
    again = MeshWorld(device="cpu")
    again.add("map", VoxelGrid(occupied, 0.02))
    assert torch.equal(in_collision(spheres, world), in_collision(spheres, again))
    points = spheres[0, 0, :, :3].contiguous()
    expected = signed_distance(points, again)
    for found, other in zip(signed_distance(points, world), expected, strict=True):
        assert found is other or torch.equal(found, other)


def test_its_mesh_is_its_surface() -> None:
    for kind in KINDS:
        rng = np.random.default_rng(31)
        occupied = random_voxels(rng, (7, 6, 5), kind)
        grid = VoxelGrid(occupied, 0.1, (0.5, 0, 0))
        mesh = trimesh.Trimesh(*grid.tessellate(), process=False)
        assert mesh.volume == pytest.approx(occupied.sum() * 1e-3, rel=1e-4)
        np.testing.assert_allclose(mesh.bounds, grid.bounds, atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_an_origin_that_is_a_tensor() -> None:
    corner = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    grid = VoxelGrid(np.ones((2, 2, 2), bool), 0.1, corner)
    assert grid.origin.tolist() == [0.5, -1.0, 2.0]
    with pytest.raises(TypeError, match="origin must be numbers"):
        VoxelGrid(np.ones((2, 2, 2), bool), 0.1, "corner")


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ((np.zeros((2, 2)), 0.1), TypeError, "occupied must be bools or integers, got float64"),
            ((np.zeros((2, 2), bool), 0.1), ValueError, r"shape \(nx, ny, nz\), got \(2, 2\)"),
            ((np.zeros((2, 0, 2), bool), 0.1), ValueError, r"got \(2, 0, 2\)"),
            ((np.zeros((2, 2, 2), bool), 0.0), ValueError, "voxel_size must be positive"),
            ((np.zeros((2, 2, 2), bool), "a"), TypeError, "voxel_size must be a number, got str"),
            ((np.zeros((2, 2, 2), bool), 0.1, (0, 0)), ValueError, "origin must be three finite"),
            (
                (np.zeros((2, 2, 2), bool), 9e8),
                ValueError,
                "the grid must end below 1e9",
            ),
            (
                (np.zeros((2, 2, 2), bool), 0.1, (0, 0, 0), np.zeros((2, 2, 3), bool)),
                ValueError,
                r"unknown_mask must have the shape \(2, 2, 2\) of occupied, got \(2, 2, 3\)",
            ),
            (
                (np.zeros((2, 2, 2), bool), 0.1, (0, 0, 0), None, "maybe"),
                ValueError,
                r"unknown must be one of \('occupied', 'free'\), got 'maybe'",
            ),
        ],
    )
    def test_is_named(self, arguments: Any, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            VoxelGrid(*arguments)


@pytest.mark.parametrize("changed", [False, True])
def test_an_update_by_equal_voxels_computes_nothing(
    changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of the same grid are recognized; one voxel or another outside is another grid."""
    occupied = np.random.default_rng(3).random((9, 7, 5)) < 0.3
    unknown = np.random.default_rng(4).random((9, 7, 5)) < 0.3
    world = MeshWorld(device="cpu")
    world.add("map", VoxelGrid(occupied, 0.1, unknown_mask=unknown))
    uploads: list[VoxelGrid] = []
    upload = VoxelGrid.upload_after
    monkeypatch.setattr(
        VoxelGrid,
        "upload_after",
        lambda grid, *before: (uploads.append(grid), upload(grid, *before))[1],
    )
    world.update("map", VoxelGrid(occupied.copy(), 0.1, unknown_mask=unknown.copy()))
    assert uploads == []
    grids = []
    if changed:
        other = occupied | unknown
        other[4, 3, 2] ^= True
        grids = [VoxelGrid(other, 0.1), VoxelGrid(other, 0.1, outside="occupied")]
    for grid in grids:
        world.update("map", grid)
    assert uploads == grids
    point = torch.tensor([[0.45, 0.35, 0.25]])
    fresh = MeshWorld(device="cpu")
    fresh.add("map", grids[-1] if grids else VoxelGrid(occupied, 0.1, unknown_mask=unknown))
    assert signed_distance(point, world).distance == signed_distance(point, fresh).distance

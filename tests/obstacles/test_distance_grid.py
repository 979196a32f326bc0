"""Distance grids: what they claim about a cell holds at each of its points, and changes no cost."""

import numpy as np
import pytest
import torch

import compare
import reference
import shapes
from cases import mostly_slow
from reference import Array
from truth_open import NAMES as OPEN
from truth_open import open_mesh
from truth_points import aligned_points, random_points
from truth_solids import solid
from warp_collision import MeshWorld, signed_distance, sphere_cost, swept_sphere_cost
from warp_collision.kernels.mesh_record import FAR, MeshRecord
from warp_collision.obstacles.distance_grid import DistanceGrid
from warp_collision.obstacles.geometry import prepare
from warp_collision.obstacles.mesh_obstacle import MeshObstacle

CLOSED = ("torus", "plate", "20 bodies")
# Where a step away from one surface ends at the next, or within it.
TOUCHING = ("needle", "abutting boxes", "boxes abutting by a part", "nested boxes", "soup")
SIMPLE = (*CLOSED, "open box", "open tube", "countertop", "oven")


def mesh_of(name: str) -> tuple[Array, Array]:
    return open_mesh(name) if name in OPEN else solid(name).mesh


def filled(name: str, device: torch.device) -> tuple[MeshObstacle, DistanceGrid, MeshRecord]:
    """An obstacle, its grid and its record as the kernels see it."""
    obstacle = MeshObstacle(prepare(name, *mesh_of(name)), device)
    obstacle.fill_grid()
    grid = obstacle._grid
    assert grid is not None
    record = obstacle.record.cpu().numpy().view(MeshRecord.numpy_dtype()).reshape(-1)[0]
    assert int(record["grid"]["values"]) == grid.values.data_ptr()
    return obstacle, grid, record


def test_the_centers_of_cells(device: torch.device) -> None:
    for name in (*CLOSED, *OPEN):
        obstacle, grid, record = filled(name, device)
        geometry = prepare(name, *mesh_of(name))
        values = compare.to_array(grid.values)
        rng = np.random.default_rng(161)
        z, y, x = (rng.integers(0, count, 300) for count in values.shape)
        places = np.stack([x, y, z], axis=1) + 0.5
        centers = record["grid"]["origin"] + record["grid"]["cell"] * places
        vertices = geometry.vertices.astype(np.float64)
        closest, _ = reference.closest_points(centers, vertices, geometry.faces)
        distance = np.linalg.norm(closest - centers, axis=1)
        inside = reference.winding_number(centers, vertices, geometry.faces) > 0.5
        known = values[z, y, x] < 0.5 * FAR
        assert known.any() or name not in SIMPLE, name
        expected = np.where(inside, -distance, distance)
        clear = known & (distance > 1e-6)
        np.testing.assert_allclose(values[z, y, x][clear], expected[clear], atol=2e-6)
        assert (known | bool(len(geometry.border))).all()
        assert obstacle.mesh_id == int(record["mesh_id"])


@pytest.mark.parametrize("name", OPEN)
def test_no_cell_has_two_sides(name: str, device: torch.device) -> None:
    """In the cells of an open mesh that have a value, corners and edges included."""
    _, grid, record = filled(name, device)
    values = compare.to_array(grid.values)
    known = np.argwhere(values < 0.5 * FAR)
    rng = np.random.default_rng(162)
    cells = known[rng.integers(0, len(known), 4000)] if len(known) else known
    spots = rng.uniform(0.0, 1.0, (len(cells), 3))
    spots[::2] = np.round(spots[::2])
    points = record["grid"]["origin"] + record["grid"]["cell"] * (cells[:, ::-1] + spots)
    geometry = prepare(name, *mesh_of(name))
    winding = reference.winding_number(points, geometry.vertices.astype(np.float64), geometry.faces)
    np.testing.assert_array_equal(winding > 0.5, values[tuple(cells.T)] < 0.0)


@pytest.mark.parametrize("name", OPEN)
def test_how_far_an_open_mesh_reaches(name: str, device: torch.device) -> None:
    """Beyond the reach around the box nothing is inside; the grid lowers it, and never too far."""
    _, _, record = filled(name, device)
    geometry = prepare(name, *mesh_of(name))
    assert record["inside_reach"] <= np.sqrt(geometry.area / (2.0 * np.pi)) * (1.0 + 1e-6)
    lower, upper = record["lower"].astype(np.float64), record["upper"].astype(np.float64)
    rng = np.random.default_rng(163)
    direction = rng.normal(size=(5000, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    # On the box and then straight out, by the reach or more.
    onto = np.clip(
        0.5 * (lower + upper) + direction * (upper - lower).max(), lower, upper
    ) * np.ones((5000, 3))
    away = np.sign(direction) * (np.isclose(onto, lower) | np.isclose(onto, upper))
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    beyond = record["inside_reach"] * (1.0 + 1e-4) + rng.exponential(0.02, (5000, 1))
    points = onto + away * beyond
    winding = reference.winding_number(points, geometry.vertices.astype(np.float64), geometry.faces)
    assert (winding < 0.5).all()


def test_kitchen_pieces_reach_less_with_a_grid(device: torch.device) -> None:
    geometry = prepare("oven", *open_mesh("oven"))
    _, _, record = filled("oven", device)
    assert record["inside_reach"] < 0.9 * np.sqrt(geometry.area / (2.0 * np.pi))


GRIDDED = [*CLOSED, *TOUCHING, *OPEN, "1 km away"]


@pytest.mark.parametrize("name", mostly_slow(GRIDDED, GRIDDED[1::4]))
@pytest.mark.parametrize("cells", mostly_slow((27, 32_768), (32_768,)))
def test_grids_change_no_bit(name: str, cells: int, device: torch.device) -> None:
    """Of costs and distances, at random points and in line with faces and edges."""
    vertices, faces = mesh_of(name)
    rng = np.random.default_rng(3)
    count = 5000 if name == "1 km away" else 1000
    points = [kind(rng, vertices, faces, count) for kind in (random_points, aligned_points)]
    centers = compare.to_device(shapes.rounded(np.concatenate(points))[None], device)
    radii = torch.full_like(centers[..., :1], 0.03)
    spheres = torch.cat((centers, radii), dim=-1)[:, :, None].contiguous()
    found = []
    for grid_cells in (0, cells):
        world = MeshWorld(device=device, grid_cells=grid_cells)
        world.add(name, (vertices, faces))
        distance = signed_distance(centers, world)[:2]
        found.append((sphere_cost(spheres, world), swept_sphere_cost(spheres, world), *distance))
    clear = found[0][2].abs() > 1e-5  # on the surface rounding tells the side
    for plain, gridded in zip(*found, strict=True):
        same = plain == gridded
        assert same.reshape(*clear.shape, -1)[clear].all()


@pytest.mark.parametrize(
    "name",
    mostly_slow((*CLOSED, *TOUCHING, *OPEN), [next(iter(k)) for k in (CLOSED, TOUCHING, OPEN)]),
)
@pytest.mark.parametrize("cells", mostly_slow((27, 1000), (27,)))
def test_grids_change_no_distance(name: str, cells: int, device: torch.device) -> None:
    vertices, faces = mesh_of(name)
    points = shapes.rounded(random_points(np.random.default_rng(164), vertices, faces, 3000))
    query = compare.to_device(points[None], device)
    plain = MeshWorld(device=device, grid_cells=0)
    coarse = MeshWorld(device=device, grid_cells=cells)
    fine, prepared = MeshWorld(device=device), MeshWorld(device=device)
    found = []
    for world in (plain, coarse, fine, prepared):
        world.add(name, (vertices, faces))
        if world is prepared:
            world.prepare()
        found.append(compare.to_array(signed_distance(query, world).distance)[0])
    # On the surface, and where the winding number is 1/2, float32 does not know the side.
    mesh = prepare(name, vertices, faces)
    winding = reference.winding_number(points, mesh.vertices.astype(np.float64), mesh.faces)
    clear = (np.abs(winding - 0.5) > 1e-5) & (np.abs(found[0]) > 1e-6)
    for distance in found[1:]:
        np.testing.assert_allclose(distance[clear], found[0][clear], rtol=1e-6, atol=1e-7)

"""The distance at every depth, on the surface, at slivers and far from the origin; no jumps.

``pytest -s -m slow tests/costs/test_truth_depth.py`` prints what was measured.
"""

from functools import partial

import numpy as np
import pytest
import torch

import compare
import reference
import shapes
from cases import mostly_slow
from reference import Array, Obstacle
from truth_open import open_mesh
from truth_points import aligned_points, random_points
from truth_solids import CLEAN, solid
from warp_collision import MeshWorld, clearance, signed_distance, sphere_cost, swept_sphere_cost

PRECISION = 4e-7  # of the largest coordinates of the mesh and the point, added up; 2e-6 is promised
THIN = ("plate", "needle", "roof", "cone")


def arrays(name: str) -> Obstacle:
    """A solid or an open mesh by name."""
    if name in CLEAN:
        return Obstacle(*solid(name).mesh)
    return Obstacle(*open_mesh(name))


def world_of(obstacle: Obstacle, device: torch.device) -> MeshWorld:
    return compare.build_world([[obstacle]], device)


# -- the distance ---------------------------------------------------------------------------------


def largest_error(name: str, count: int, device: torch.device) -> float:
    """Error of the distance over the largest coordinates, at random and aligned points."""
    mesh = arrays(name)
    rng = np.random.default_rng(111)
    kinds = (random_points, aligned_points)
    points = np.concatenate([kind(rng, mesh.vertices, mesh.faces, count) for kind in kinds])
    found = signed_distance(compare.to_device(points[None], device), world_of(mesh, device))
    closest, _ = reference.closest_points(points, mesh.vertices, mesh.faces)
    expected = np.linalg.norm(points - closest, axis=1)
    error = np.abs(np.abs(compare.to_array(found.distance)[0]) - expected)
    scale = np.abs(mesh.vertices).max() + np.abs(points).max(axis=1)
    return float((error / scale).max())


@pytest.mark.parametrize("name", [*CLEAN, "open box", "countertop", "oven", "random triangles"])
def test_the_distance_is_right(name: str, device: torch.device) -> None:
    """At slivers as well, where float32 can be off by a fifth of a millimetre in a metre."""
    assert largest_error(name, 300, device) < PRECISION


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CLEAN, "open box", "countertop", "oven", "random triangles"])
def test_the_distance_is_right_at_many_points(name: str, device: torch.device) -> None:
    error = largest_error(name, 20_000, device)
    print(f"distance: {name}, 40000 points, largest error {error:.1e} of the coordinates")
    assert error < PRECISION


@pytest.mark.parametrize("angle", [100.0, 135.0, 170.0, 179.0, 179.9])
@pytest.mark.parametrize("begin", [0, 1, 2])
def test_single_slivers(angle: float, begin: int, device: torch.device) -> None:
    """A triangle with one long edge and any angle opposite, beginning with any vertex."""
    rng = np.random.default_rng(112)
    for ratio in (1.0, 0.1, 0.01):
        turn = np.radians(angle)
        flat = np.array([[0, 0, 0], [1, 0, 0], [ratio * np.cos(turn), ratio * np.sin(turn), 0]])
        vertices = shapes.rounded(shapes.to_world(flat, Obstacle(flat, np.empty(0), tilt(rng))))
        mesh = Obstacle(vertices, np.roll([[0, 1, 2]], begin, axis=1))
        points = shapes.near_points(rng, mesh, 500, reach=0.3)
        found = signed_distance(compare.to_device(points[None], device), world_of(mesh, device))
        closest, _ = reference.closest_points(points, mesh.vertices, mesh.faces)
        expected = np.linalg.norm(points - closest, axis=1)
        actual = np.abs(compare.to_array(found.distance)[0])
        np.testing.assert_allclose(actual, expected, rtol=0.0, atol=1e-6)


def tilt(rng: np.random.Generator) -> Array:
    return shapes.random_pose(rng, spread=0.1)


# -- depth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [0.0, 0.02])
@pytest.mark.parametrize("radius", [0.0, 0.03, 3.0])
def test_cost_at_every_depth_of_a_block(radius: float, eta: float, device: torch.device) -> None:
    """From 1 m outside to the middle of 4 m: the formula of the cost, and its gradient."""
    world = world_of(shapes.box((4.0, 4.0, 4.0)), device)
    x = shapes.rounded(np.linspace(0.001, 3.0, 5000))
    spheres = np.zeros((1, 5000, 1, 4))
    spheres[0, :, 0] = np.column_stack([x, 0.0 * x + 1e-4, 0.0 * x + 2e-4, 0.0 * x + radius])
    overlap = radius + eta - (x - 2.0)
    expected = reference.hinge(overlap, eta)
    slope = np.clip(overlap / eta, 0.0, 1.0) if eta else (overlap > 0.0).astype(float)
    kinds = (sphere_cost, partial(swept_sphere_cost, tolerance=1e-6))
    for cost in (kinds[0], lambda s, w, **o: at_rest(kinds[1], s, w, **o)):
        actual, gradient = compare.cost_and_gradient(
            lambda s, cost=cost: cost(s, world, weight=2.0, activation_distance=eta),
            spheres,
            np.ones((1, 5000, 1)),
            device,
        )
        np.testing.assert_allclose(actual[0, :, 0], 2.0 * expected, rtol=2e-6, atol=2e-6)
        clear = np.abs(overlap) > 1e-5
        along = np.column_stack([-slope, 0.0 * slope, 0.0 * slope, slope])
        np.testing.assert_allclose(gradient[0, :, 0][clear], 2.0 * along[clear], atol=1e-3)


def at_rest(cost, spheres: torch.Tensor, world: MeshWorld, **options: float) -> torch.Tensor:
    """A swept cost of spheres that do not move: the waypoints become rows."""
    return cost(spheres.transpose(0, 1), world, **options).transpose(0, 1)


def test_next_to_the_center_of_a_sphere(device: torch.device) -> None:
    """All faces are nearly equally far there; the depth is right and the gradient a unit one."""
    ball = arrays("icosphere")
    rng = np.random.default_rng(113)
    direction = rng.normal(size=(600, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    points = shapes.rounded(direction * 10.0 ** rng.uniform(-9, -2, size=(600, 1)))
    points[:10] = 0.0
    found = signed_distance(compare.to_device(points[None], device), world_of(ball, device))
    expected = reference.obstacle_signed_distance(points, ball).distance
    assert (expected < -0.23).all()
    np.testing.assert_allclose(compare.to_array(found.distance)[0], expected, atol=1e-7)
    gradient = compare.to_array(found.gradient)[0]
    np.testing.assert_allclose(np.linalg.norm(gradient, axis=1), 1.0, atol=1e-6)
    # Away from the center's plateau it leads outward.
    far = np.linalg.norm(points, axis=1) > 5e-3
    assert ((gradient * direction).sum(axis=1)[far] > 0.5).all()


# -- the surface ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", mostly_slow(("box", "icosphere", "torus", "robot_link", *THIN), ("torus", *THIN[::2]))
)
def test_on_faces_edges_and_vertices(name: str, device: torch.device) -> None:
    """And 1e-7 from them: the gradient is finite, unit, and the normal on a face.

    On an edge or a vertex it leads out along one of the normals that meet there.
    """
    rng = np.random.default_rng(114)
    mesh = shapes.mesh(name) if name == "robot_link" else arrays(name)
    chosen = rng.integers(len(mesh.faces), size=300)
    corners = mesh.vertices[mesh.faces[chosen]]
    normals = reference.face_normals(mesh.vertices, mesh.faces)
    weights = np.concatenate(
        [rng.dirichlet(np.full(3, 5.0), 100), [[0.5, 0.5, 0.0]] * 100, [[1.0, 0.0, 0.0]] * 100]
    )
    exact = np.einsum("nk,nkx->nx", weights, corners)
    points = shapes.rounded(np.concatenate([exact, exact + 1e-7 * rng.normal(size=exact.shape)]))
    world = world_of(mesh, device)
    found = signed_distance(compare.to_device(points[None], device), world)
    gradient = compare.to_array(found.gradient)[0]
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(compare.to_array(found.distance)[0], 0.0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(gradient, axis=1), 1.0, atol=1e-5)
    reached = touching_normals(points, mesh, normals, gradient)
    np.testing.assert_allclose(reached, 1.0, atol=1e-3)
    # A cost deep in its linear part has this gradient, times the weight, with the other sign.
    spheres = np.concatenate([points, np.full((len(points), 1), 0.05)], axis=1)[None, None]
    _, slope = compare.cost_and_gradient(
        partial(sphere_cost, world=world, weight=3.0), spheres, np.ones((1, 1, 600)), device
    )
    np.testing.assert_allclose(slope[0, 0, :, :3], -3.0 * gradient, atol=1e-5)
    np.testing.assert_allclose(slope[0, 0, :, 3], 3.0, atol=1e-5)


def touching_normals(points: Array, mesh: Obstacle, normals: Array, gradient: Array) -> Array:
    """The largest cosine between a gradient and the normals of the faces that a point touches."""
    corners = mesh.vertices[mesh.faces]
    best = np.empty(len(points))
    for i, point in enumerate(points):
        there = reference.closest_on_triangles(np.tile(point, (len(corners), 1)), corners)
        touching = np.linalg.norm(there - point, axis=1) < 1e-6
        best[i] = (normals[touching] @ gradient[i]).max()
    return best


# -- no jumps -------------------------------------------------------------------------------------

STEP = 1e-4  # [m]


def crowded_scene(rng: np.random.Generator) -> list[Obstacle]:
    """Closed meshes that overlap, thin ones among them."""
    names = ("box", "icosphere", "torus", "plate", "needle", "20 bodies")
    return [arrays(name)._replace(pose=shapes.random_pose(rng, spread=0.3)) for name in names]


def largest_jump(lines: int, steps: int, device: torch.device) -> float:
    """Largest change of the cost along random lines, over weight * step * meshes in reach."""
    rng = np.random.default_rng(115)
    scene = crowded_scene(rng)
    world = compare.build_world([scene], device, max_obstacles=len(scene))
    alone = [world_of(mesh, device) for mesh in scene]
    begin = rng.uniform(-0.5, 0.5, size=(lines, 1, 3))
    direction = rng.normal(size=(lines, 1, 3))
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    spheres = np.full((lines, steps, 1, 4), 0.03)
    spheres[..., 0, :3] = begin + direction * (STEP * np.arange(steps))[:, None]
    weight, eta, largest, touched = 5.0, 0.02, 0.0, 0
    for part in np.array_split(spheres, max(1, lines // 100)):
        on_device = compare.to_device(part, device)
        cost = compare.to_array(sphere_cost(on_device, world, weight=weight))[..., 0]
        moved = np.linalg.norm(np.diff(compare.to_array(on_device)[:, :, 0, :3], axis=1), axis=2)
        reach = [
            compare.to_array(clearance(on_device, one).clearance)[..., 0] < eta for one in alone
        ]
        meshes = sum((near[:, 1:] | near[:, :-1]).astype(int) for near in reach)
        # Two distances of a step are rounded by less than this each.
        allowed = weight * (moved + 6e-7) * np.maximum(meshes, 1e-3)
        largest = max(largest, float((np.abs(np.diff(cost, axis=1)) / allowed).max()))
        touched += int((meshes > 0).sum())
    assert touched > 0.2 * lines * steps
    return largest


def test_no_jump_of_the_cost(device: torch.device) -> None:
    assert largest_jump(20, 2000, device) <= 1.0


@pytest.mark.slow
def test_no_jump_of_the_cost_on_many_lines(device: torch.device) -> None:
    largest = largest_jump(1000, 5000, device)
    print(f"jumps: 1000 lines of 0.5 m in steps of 0.1 mm, steepest {largest:.4f} of what may be")
    assert largest <= 1.0


@pytest.mark.parametrize(
    "name", mostly_slow(("box", "torus", "tetrahedron", "20 bodies"), ("box", "torus"))
)
def test_the_gradient_jumps_where_the_closest_point_does(name: str, device: torch.device) -> None:
    """And nowhere else: not on the surface, not between the faces of a sphere."""
    rng = np.random.default_rng(116)
    mesh = arrays(name)
    center = shapes.surface_points(rng, mesh, 40)[:, None]
    direction = rng.normal(size=(40, 1, 3))
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    points = shapes.rounded(center + direction * np.linspace(-0.1, 0.1, 2001)[:, None])
    found = signed_distance(compare.to_device(points, device), world_of(mesh, device))
    gradient, depth = compare.to_array(found.gradient), np.abs(compare.to_array(found.distance))
    turn = np.linalg.norm(np.diff(gradient, axis=1), axis=2)
    away = np.minimum(depth[:, 1:], depth[:, :-1]) > 2e-3
    # A step of 0.1 mm turns the direction to a vertex 2 mm away by 0.05.
    row, at = np.nonzero((turn > 0.1) & away)
    assert len(row) > 0
    before = reference.closest_points(points[row, at], mesh.vertices, mesh.faces)[0]
    after = reference.closest_points(points[row, at + 1], mesh.vertices, mesh.faces)[0]
    moved = np.linalg.norm(before - after, axis=1)
    assert (moved > 0.05 * depth[row, at]).all()
    # On the way through a face the gradient stays what it is.
    through = (np.diff(np.sign(compare.to_array(found.distance)), axis=1) != 0).nonzero()
    near_edge = depth_of_edges(points[through], mesh) < 1e-3
    assert (~near_edge).sum() > 10
    assert turn[through][~near_edge].max() < 1e-3


def depth_of_edges(points: Array, mesh: Obstacle) -> Array:
    """Distances (n,) to the nearest edge of a mesh whose faces are not in one plane."""
    corners = mesh.vertices[mesh.faces]
    ends = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    along = ends[:, 1] - ends[:, 0]
    offset = points[:, None] - ends[:, 0]
    share = np.einsum("nex,ex->ne", offset, along) / np.einsum("ex,ex->e", along, along)
    foot = offset - np.clip(share, 0.0, 1.0)[..., None] * along
    return np.linalg.norm(foot, axis=2).min(axis=1)


# -- far from the origin --------------------------------------------------------------------------

# Offset [m] to the largest error of the distance [m] within two metres of the mesh, stated in
# the documentation: a coordinate of 1 km has steps of 0.06 mm in float32.
FAR_LIMITS = {0.0: 5e-7, 1.0: 1e-6, 100.0: 1e-4, 1000.0: 1e-3}


@pytest.mark.parametrize("how", mostly_slow(("pose", "turned pose", "vertices"), ("turned pose",)))
@pytest.mark.parametrize("offset", FAR_LIMITS)
def test_errors_far_from_the_origin(offset: float, how: str, device: torch.device) -> None:
    """Against the reference at the very numbers that the library is given."""
    rng = np.random.default_rng(117)
    mesh = arrays("torus")
    shift = shapes.rounded(offset * np.array([1.0, -0.7, 0.4]) + [0.1, 0.2, -0.1])
    if how == "vertices":
        mesh = mesh._replace(vertices=shapes.rounded(mesh.vertices + shift))
    else:
        turn = shapes.random_pose(rng)[3:] if how == "turned pose" else np.array([1.0, 0, 0, 0])
        mesh = mesh._replace(pose=np.concatenate([shift, turn]))
    points = shapes.mixed_points(rng, mesh, 2000)
    found = signed_distance(compare.to_device(points[None], device), world_of(mesh, device))
    expected = reference.obstacle_signed_distance(points, mesh)
    error = np.abs(compare.to_array(found.distance)[0] - expected.distance).max()
    print(f"far: {offset:g} m by {how}: largest error of the distance {error:.1e} m")
    assert error < FAR_LIMITS[offset]


# -- large meshes ---------------------------------------------------------------------------------

# Size [m] of a turned slab whose surface passes the origin to the largest error of the distance [m]
# within two metres of it: over its faces, and where they meet. Stated in the documentation.
SIZE_LIMITS = {1.0: (1e-6, 1e-6), 10.0: (1e-6, 3e-6), 100.0: (1e-6, 3e-5), 1000.0: (1e-6, 3e-4)}


@pytest.mark.parametrize("size", SIZE_LIMITS)
def test_errors_beside_large_faces(size: float, device: torch.device) -> None:
    """The corners are far: what they have in common must cancel without a loss."""
    rng = np.random.default_rng(118)
    slab = shapes.box((size, size, 0.5))
    half = 0.5 * size * np.array([1.0, 1.0, 0.5 / size])
    within = np.array([0.31, -0.17, 1.0])  # a meter and more from the edges between the faces
    for kind, place, limit in (
        ("face", within, SIZE_LIMITS[size][0]),
        ("diagonal", np.array([0.4, 0.4, 1.0]), SIZE_LIMITS[size][1]),
        ("edge", np.array([0.3, 1.0, 1.0]), SIZE_LIMITS[size][1]),
        ("vertex", np.array([1.0, 1.0, 1.0]), SIZE_LIMITS[size][1]),
    ):
        worst = 0.0
        for _ in range(4):
            turn = reference.rotation_matrix(rng.normal(size=4))
            vertices = shapes.rounded((slab.vertices - place * half) @ turn.T)
            mesh = Obstacle(vertices, slab.faces)
            points = rng.normal(size=(1000, 3)) * 10.0 ** rng.uniform(-6, -0.1, (1000, 1))
            points = shapes.rounded(np.clip(points, -2.0, 2.0))
            found = signed_distance(compare.to_device(points[None], device), world_of(mesh, device))
            closest, _ = reference.closest_points(points, mesh.vertices, mesh.faces)
            expected = np.linalg.norm(points - closest, axis=1)
            error = np.abs(np.abs(compare.to_array(found.distance)[0]) - expected).max()
            worst = max(worst, float(error))
        print(f"large: {size:g} m, {kind}: largest error of the distance {worst:.1e} m")
        assert worst < limit


def test_clearance_is_the_distance_less_the_radius(device: torch.device) -> None:
    """To the last bit, at any depth."""
    rng = np.random.default_rng(118)
    mesh = arrays("torus")
    spheres = compare.to_device(shapes.random_spheres(rng, mesh, (2, 3, 200)), device)
    world = world_of(mesh, device)
    distance = signed_distance(spheres[..., :3], world).distance
    assert torch.equal(clearance(spheres, world).clearance, distance - spheres[..., 3])

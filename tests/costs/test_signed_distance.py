"""Signed distance, clearance and collision tests against the float64 reference."""

import numpy as np
import pytest
import torch

import compare
import reference
import shapes
from cases import mostly_slow
from reference import Array, Obstacle
from warp_collision import MeshWorld, clearance, in_collision, signed_distance


def assert_unit_gradients(actual: Array, expected: reference.SignedDistance, kink: Array) -> None:
    """Unit everywhere, and the reference's where the closest point is not about to jump."""
    np.testing.assert_allclose(np.linalg.norm(actual, axis=-1), 1.0, atol=1e-5)
    compare.assert_gradients(actual, expected.gradient, kink)


def scene_gradient(points: Array, scene: list[Obstacle]) -> reference.RowGradient:
    return reference.row_gradient(
        lambda p: reference.scene_signed_distance(p, scene).distance, points, compare.STEP
    )


@pytest.mark.parametrize("name", shapes.CLOSED + shapes.OPEN)
def test_distance_and_gradient(name: str, device: torch.device) -> None:
    rng = np.random.default_rng(21)
    scene = [shapes.placed(name, rng)]
    points = shapes.mixed_points(rng, scene[0], 1000)
    points = points[compare.clear_of_openings(points, scene[0])]
    result = signed_distance(
        compare.to_device(points[None], device), compare.build_world([scene], device)
    )
    expected = reference.scene_signed_distance(points, scene)
    assert 0.1 < (expected.distance < 0.0).mean() < 0.9
    compare.assert_costs(result.distance[0], expected.distance)
    differences = scene_gradient(points, scene)
    assert_unit_gradients(compare.to_array(result.gradient)[0], expected, differences.kink)
    assert result.obstacle.dtype == torch.int32
    assert (result.obstacle == 0).all()


def test_nearest_mesh_of_each_env(device: torch.device) -> None:
    rng = np.random.default_rng(22)
    scenes = [
        [
            shapes.placed("box", rng),
            shapes.placed("icosphere", rng, enabled=False),
            shapes.placed("torus", rng),
        ],
        [],
        [shapes.placed("robot_link", rng), shapes.placed("icosphere", rng)],
        [shapes.placed("box", rng, enabled=False)],
    ]
    env_index = [2, 0, 1, 0, 3]
    points = shapes.mixed_points(rng, shapes.mesh("icosphere"), 5 * 60).reshape(5, 6, 10, 3)
    envs = torch.tensor(env_index, dtype=torch.int32, device=device)
    result = signed_distance(
        compare.to_device(points, device), compare.build_world(scenes, device), env_index=envs
    )
    assert result.distance.shape == (5, 6, 10)
    assert result.gradient.shape == (5, 6, 10, 3)
    assert result.obstacle.shape == (5, 6, 10)
    for row, env in enumerate(env_index):
        rows = points[row].reshape(-1, 3)
        expected = reference.scene_signed_distance(rows, scenes[env])
        compare.assert_costs(result.distance[row].reshape(-1), expected.distance)
        single = [reference.scene_signed_distance(rows, [mesh]).distance for mesh in scenes[env]]
        if np.isinf(expected.distance).all():
            assert (result.obstacle[row] == -1).all()
            assert (result.distance[row] == torch.inf).all()
            assert torch.isfinite(result.gradient[row]).all()
            continue
        kink = scene_gradient(rows, scenes[env]).kink
        gradient = compare.to_array(result.gradient[row]).reshape(-1, 3)
        assert_unit_gradients(gradient, expected, kink)
        best, second = np.sort(single, axis=0)[:2]
        clear = second - best > 1e-5
        found = result.obstacle[row].cpu().numpy().reshape(-1)
        np.testing.assert_array_equal(found[clear], expected.source[clear])
        assert len(set(found)) == 2


@pytest.mark.parametrize("shape", [(4,), (4, 5), (2, 3, 4, 5), (0,), (0, 3), (2, 0)])
def test_shapes_of_points(shape: tuple[int, ...], device: torch.device) -> None:
    world = compare.build_world([[shapes.mesh("box")]], device)
    points = np.random.default_rng(23).uniform(-0.5, 0.5, size=(*shape, 3))
    result = signed_distance(compare.to_device(points, device), world)
    assert result.distance.shape == shape
    assert result.gradient.shape == (*shape, 3)
    assert result.obstacle.shape == shape
    rows = shapes.rounded(points).reshape(-1, 3)
    expected = reference.obstacle_signed_distance(rows, shapes.mesh("box")).distance
    compare.assert_costs(result.distance, expected.reshape(shape))


def test_gradient_on_faces_is_their_normal(device: torch.device) -> None:
    """In the mesh's own frame, where points can lie on a face to the last bit."""
    obstacle = shapes.mesh("box")
    low, high = obstacle.vertices.min(axis=0), obstacle.vertices.max(axis=0)
    rng = np.random.default_rng(24)
    points = shapes.rounded(rng.uniform(0.95 * low, 0.95 * high, size=(60, 3)))
    axis, side = np.arange(60) % 3, np.arange(60) // 3 % 2
    points[np.arange(60), axis] = np.where(side == 1, high[axis], low[axis])
    normals = np.zeros((60, 3))
    normals[np.arange(60), axis] = 2 * side - 1
    world = compare.build_world([[obstacle]], device)
    result = signed_distance(compare.to_device(points[None], device), world)
    np.testing.assert_allclose(compare.to_array(result.distance)[0], 0.0, atol=1e-7)
    np.testing.assert_allclose(compare.to_array(result.gradient)[0], normals, atol=1e-6)


@pytest.mark.parametrize("name", shapes.CLOSED)
def test_gradient_at_the_surface_points_outward(name: str, device: torch.device) -> None:
    """On faces, edges and vertices, and 1e-7 from them: unit and outward, never 0 or NaN.

    At an edge any direction between the normals of its faces will do; at a vertex with several
    faces at least one of them must agree.
    """
    rng = np.random.default_rng(25)
    obstacle = shapes.mesh(name)
    corners = obstacle.vertices[obstacle.faces]
    normals = reference.face_normals(obstacle.vertices, obstacle.faces)
    middles = [corners.mean(axis=1), 0.5 * (corners[:, 0] + corners[:, 1]), corners[:, 2]]
    points = np.concatenate(middles)
    points = np.concatenate([points, points + 1e-7 * rng.normal(size=points.shape)])
    world = compare.build_world([[obstacle]], device)
    result = signed_distance(compare.to_device(points[None], device), world)
    gradient = compare.to_array(result.gradient)[0]
    np.testing.assert_allclose(compare.to_array(result.distance)[0], 0.0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(gradient, axis=1), 1.0, atol=1e-5)
    for point, direction in zip(points, gradient, strict=True):
        there = reference.closest_on_triangles(np.tile(point, (len(corners), 1)), corners)
        touching = np.linalg.norm(there - point, axis=1) < 2e-6
        assert (normals[touching] @ direction).max() > 0.4


@pytest.mark.parametrize("height", mostly_slow((1e-7, 1e-6, 1e-5, 1e-4, 1e-2), (1e-6, 1e-2)))
@pytest.mark.parametrize("name", [*shapes.CLOSED, "plate"])
def test_above_faces_of_any_shape(name: str, height: float, device: torch.device) -> None:
    """Slivers too, such as the narrow faces of a plate, 1 m long and 0.5 mm high.

    The gradient is the normal wherever the closest point is within the face, be it on an edge of
    the pieces into which a sliver may have been split.
    """
    rng = np.random.default_rng(28)
    obstacle = shapes.mesh(name)
    face = rng.integers(len(obstacle.faces), size=1000)
    corners = obstacle.vertices[obstacle.faces[face]]
    normals = reference.face_normals(obstacle.vertices, obstacle.faces[face])
    inner = np.einsum("nk,nkx->nx", rng.dirichlet(np.ones(3), size=1000), corners)
    points = shapes.rounded(inner + height * normals)
    expected = reference.mesh_signed_distance(points, obstacle.vertices, obstacle.faces)
    above = (expected.source == face) & (expected.distance > 0.0)
    assert above.mean() > 0.7
    world = compare.build_world([[obstacle]], device)
    result = signed_distance(compare.to_device(points[None], device), world)
    compare.assert_costs(result.distance[0], expected.distance)
    gradient = compare.to_array(result.gradient)[0]
    along = np.sum(gradient * normals, axis=1)
    # A point that is further away by the rounding of a distance can pass for the closest one: it
    # lies aside by sqrt(2 height rounding).
    assert along[above].min() > np.cos(min(0.5, np.sqrt(2 * 1e-7 / height)))


def test_distance_has_its_gradient(device: torch.device) -> None:
    rng = np.random.default_rng(26)
    scene = [shapes.placed("robot_link", rng), shapes.placed("box", rng)]
    world = compare.build_world([scene], device)
    points = shapes.mixed_points(rng, scene[0], 40).reshape(2, 20, 3)
    leaf = compare.to_device(points, device).requires_grad_(True)
    result = signed_distance(leaf, world)
    incoming = compare.to_device(rng.normal(size=(2, 20)), device)
    result.distance.backward(incoming)
    torch.testing.assert_close(leaf.grad, incoming[..., None] * result.gradient)


@pytest.mark.parametrize("horizon", [1, 2, 32])
def test_clearance_and_collision(horizon: int, device: torch.device) -> None:
    rng = np.random.default_rng(27)
    scenes = [[shapes.placed("torus", rng), shapes.placed("box", rng)], []]
    env_index = [0, 1, 0]
    spheres = shapes.random_spheres(rng, scenes[0][0], (3, horizon, 8), disabled=0.2)
    world = compare.build_world(scenes, device)
    envs = torch.tensor(env_index, dtype=torch.int32, device=device)
    on_device = compare.to_device(spheres, device)
    result = clearance(on_device, world, env_index=envs)
    hit = in_collision(on_device, world, env_index=envs)
    assert hit.dtype == torch.bool
    assert hit.shape == spheres.shape[:3]
    torch.testing.assert_close(hit, result.clearance < 0.0)
    assert hit.any()
    assert not hit.all()
    disabled = spheres[..., 3] < 0.0
    free = disabled | (np.array(env_index) == 1)[:, None, None]
    actual = compare.to_array(result.clearance)
    assert np.isposinf(actual[free]).all()
    assert (result.obstacle.cpu().numpy()[free] == -1).all()
    expected = reference.scene_signed_distance(spheres[~free][:, :3], scenes[0])
    compare.assert_costs(actual[~free], expected.distance - spheres[~free][:, 3])
    plain = signed_distance(on_device[..., :3], world, env_index=envs)
    enabled = torch.tensor(~disabled, device=device)
    torch.testing.assert_close(result.gradient[enabled], plain.gradient[enabled])
    torch.testing.assert_close(result.obstacle[enabled], plain.obstacle[enabled])


@pytest.mark.parametrize("limit", [0.0, 0.03, 0.5, 20.0])
def test_clearance_up_to_a_distance(limit: float, device: torch.device) -> None:
    """Below the limit it is the clearance, with all gradients; beyond it there is nothing."""
    rng = np.random.default_rng(47)
    scene = [shapes.placed(name, rng) for name in ("box", "torus", "robot_link", "icosphere")]
    scene[1] = scene[1]._replace(enabled=False)
    world = compare.build_world([scene, []], device)
    spheres = shapes.random_spheres(rng, scene[0], (2, 6, 16), disabled=0.1)
    leaf = compare.to_device(spheres, device).requires_grad_(True)
    poses = compare.to_device(np.array([o.pose for o in scene]), device).expand(2, 4, 7).clone()
    poses.requires_grad_(True)
    envs = torch.tensor([0, 1], dtype=torch.int32, device=device)
    exact = clearance(leaf, world, env_index=envs)
    near = exact.clearance < limit
    assert near.any()
    assert not near[1].any()
    found = clearance(leaf, world, env_index=envs, max_distance=limit)
    assert torch.equal(found.clearance, torch.where(near, exact.clearance, torch.inf))
    assert torch.equal(found.obstacle, torch.where(near, exact.obstacle, -1))
    assert torch.equal(found.gradient, torch.where(near[..., None], exact.gradient, 0.0))
    for tensors in ((leaf,), (leaf, poses)):
        other = {} if len(tensors) == 1 else {"poses": poses}
        near_again = clearance(leaf, world, env_index=envs, max_distance=limit, **other)
        all_again = clearance(leaf, world, env_index=envs, **other)
        actual = torch.autograd.grad(near_again.clearance[near].sum(), tensors)
        expected = torch.autograd.grad(all_again.clearance[near].sum(), tensors)
        for one, two in zip(actual, expected, strict=True):
            torch.testing.assert_close(one, two)
            assert two.any()


def test_clearance_up_to_a_distance_in_graphs(device: torch.device) -> None:
    rng = np.random.default_rng(48)
    obstacle = shapes.placed("robot_link", rng)
    world = compare.build_world([[obstacle]], device)
    spheres = compare.to_device(shapes.random_spheres(rng, obstacle, (3, 2, 8)), device)

    def near(s: torch.Tensor) -> torch.Tensor:
        return clearance(s, world, max_distance=0.05).clearance

    expected = near(spheres)
    assert torch.isinf(expected).any()
    assert not torch.isinf(expected).all()
    compiled = torch.compile(near, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(spheres), expected)
    batched = torch.func.vmap(lambda s: near(s[None])[0])(spheres)
    assert torch.equal(batched, expected)


def test_a_limit_of_the_clearance_that_is_refused(device: torch.device) -> None:
    spheres = torch.ones((1, 2, 3, 4), device=device)
    for limit in (-0.1, torch.nan, torch.inf):
        with pytest.raises(ValueError, match="max_distance must"):
            clearance(spheres, MeshWorld(1, 2, device), max_distance=limit)

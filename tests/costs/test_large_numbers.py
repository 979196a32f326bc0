"""Numbers that float32 holds too coarsely or not at all: a cost is right or NaN, never 0."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import compare
import reference
import shapes
from cases import mostly_slow
from primitives import KINDS, Call
from reference import Array, Obstacle
from warp_collision import (
    MeshWorld,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_in_collision,
    swept_sphere_cost,
)

BOX = shapes.box((0.5, 0.3, 0.2))
HALF = BOX._replace(faces=BOX.faces[2:])  # without the two triangles of one side
INF = float("inf")
LARGE = 10.0 ** np.arange(2, 38, 0.5)


def at_rest(spheres: torch.Tensor, world: MeshWorld, **options: Any) -> torch.Tensor:
    """The swept cost of spheres that do not move."""
    return swept_sphere_cost(spheres.transpose(0, 1), world, **options).transpose(0, 1)


def world_of(*obstacles: Obstacle, device: torch.device, **options: int) -> MeshWorld:
    world = MeshWorld(max_obstacles=max(4, len(obstacles)), device=device, **options)
    for index, mesh in enumerate(obstacles):
        world.add(str(index), (mesh.vertices, mesh.faces), mesh.pose)
    return world


def worlds(device: torch.device) -> dict[str, MeshWorld]:
    """One closed mesh at a turned pose, the same without a grid, an open one, and a tree's many."""
    rng = np.random.default_rng(901)
    box = BOX._replace(pose=shapes.random_pose(rng))
    half = HALF._replace(pose=box.pose)
    crowd = [box, *(BOX._replace(pose=shapes.random_pose(rng)) for _ in range(14))]
    return {
        "closed": world_of(box, device=device),
        "no grid": world_of(box, device=device, grid_cells=0),
        "open": world_of(half, device=device),
        "crowd": world_of(*crowd, device=device),
    }


def directions(rng: np.random.Generator, count: int) -> Array:
    """Unit vectors, some of them along the axes."""
    direction = rng.normal(size=(count, 3))
    direction[:6] = np.concatenate([np.eye(3), -np.eye(3)])
    return direction / np.linalg.norm(direction, axis=1, keepdims=True)


# -- spheres --------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [1.01, 1.5, 3.0, 1e3])
def test_a_sphere_that_reaches_a_mesh_from_afar(share: float, device: torch.device) -> None:
    """The center is up to 1e37 m away, and the radius more than that."""
    rng = np.random.default_rng(902)
    direction = directions(rng, 12)
    centers = direction * LARGE[:, None, None]
    radii = np.minimum(share * LARGE, 3e38)[:, None, None] * np.ones((1, 12, 1))
    spheres = compare.to_device(np.concatenate([centers, radii], axis=2)[None], device)
    least = 0.5 * (radii[..., 0] - LARGE[:, None])
    for name, world in worlds(device).items():
        assert in_collision(spheres, world).all(), name
        for cost in (sphere_cost(spheres, world), at_rest(spheres, world)):
            found = compare.to_array(cost)[0]
            assert (np.isnan(found) | (found > least)).all(), name
        for kind in KINDS:
            call = Call(kind, spheres, world)
            result = compare.to_array(call())[0]
            assert (np.isnan(result) | (result > least)).all(), (name, kind)
            assert (call["sparsity_idx"] == 1).all()


def test_spheres_far_away_are_free(device: torch.device) -> None:
    """As far as anybody would park what takes no part."""
    rng = np.random.default_rng(903)
    distance = LARGE[LARGE < 3e8]
    centers = directions(rng, 12) * distance[:, None, None]
    radii = 0.9 * distance[:, None, None] * rng.uniform(size=(1, 12, 1))
    spheres = compare.to_device(np.concatenate([centers, radii], axis=2)[None], device)
    for name, world in worlds(device).items():
        assert (sphere_cost(spheres, world) == 0.0).all(), name
        assert (at_rest(spheres, world) == 0.0).all(), name
        assert not in_collision(spheres, world).any(), name
        expected = np.linalg.norm(centers, axis=2) - radii[..., 0]
        actual = compare.to_array(clearance(spheres, world).clearance)[0]
        np.testing.assert_allclose(actual, expected, rtol=0.2)


def test_points_beyond_all_measure_have_no_distance(device: torch.device) -> None:
    points = compare.to_device(directions(np.random.default_rng(904), 12) * 3e9, device)[None]
    for world in worlds(device).values():
        found = signed_distance(points, world)
        assert found.distance.isnan().all()
        assert (found.obstacle == -1).all()


@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.parametrize("far", [1.1e9, 1e10, 1e15, 1e20, 3e38])
def test_poses_beyond_all_measure_are_not_free(
    count: int, far: float, device: torch.device
) -> None:
    """Written to the table, or given with the call: with boxes and a tree, or without."""
    spheres = torch.tensor([0.0, 0.0, 0.0, 0.1], device=device).expand(1, 2, 1, 4).contiguous()
    boxes = [BOX._replace(pose=(5.0 + i, 0, 0, 1, 0, 0, 0)) for i in range(count)]
    world = world_of(*boxes, device=device)
    poses = torch.stack([world.pose(i) for i in range(count)])
    poses[0, 1] = far
    options: tuple[dict[str, Any], ...] = ({"poses": poses}, {})
    for chosen in options:
        if not chosen:
            world.mesh_from_world[0, 0, 1] = -far
        for cost in (sphere_cost, swept_sphere_cost):
            assert cost(spheres, world, **chosen).isnan().all()
        assert in_collision(spheres, world, **chosen).all()
        assert swept_in_collision(spheres, world, **chosen).all()
        assert not (clearance(spheres, world, **chosen).clearance > 0.0).any()


@pytest.mark.parametrize("radius", [1e9, 1e15, 2e16, 1e20, 3e38])
def test_radii_of_any_size(radius: float, device: torch.device) -> None:
    """Around the mesh, of which such a sphere holds all."""
    spheres = torch.tensor([1.0, 0.2, 0.1, radius], device=device).expand(1, 2, 1, 4).contiguous()
    for cost in (sphere_cost, swept_sphere_cost):
        leaf = spheres.clone().requires_grad_(True)
        found = cost(leaf, worlds(device)["closed"], activation_distance=0.02)
        np.testing.assert_allclose(compare.to_array(found), radius, rtol=1e-6)
        found.sum().backward()
        assert leaf.grad.isfinite().all()
        assert (leaf.grad[..., 3] == 1.0).all()


@pytest.mark.parametrize("eta", [1e-45, 1e-38, 1e6, 1e15, 1e20, 3e38])
def test_activation_distances_of_any_size(eta: float, device: torch.device) -> None:
    """From the least number above 0 on: contact costs, and the slope is at most 1."""
    spheres = torch.tensor([[0.1, 0, 0, 0.1], [0.2, 0.2, 0.0, 0.02]], device=device)
    leaf = spheres.reshape(1, 1, 2, 4).requires_grad_(True)
    world = world_of(BOX, device=device)
    for cost in (sphere_cost, at_rest):
        found = cost(leaf, world, activation_distance=eta)
        distance = compare.to_array(signed_distance(leaf[..., :3], world).distance)
        overlap = compare.to_array(leaf)[..., 3] + eta - distance
        expected = reference.hinge(overlap, eta)
        np.testing.assert_allclose(compare.to_array(found), expected, rtol=1e-5, atol=1e-7)
        (gradient,) = torch.autograd.grad(found.sum(), leaf)
        assert gradient.isfinite().all()
        assert (gradient[..., 3] <= 1.0).all()


@pytest.mark.parametrize("eta", [-0.5, -1e-45, -INF])
def test_negative_activation_distances_are_not_free(eta: float, device: torch.device) -> None:
    """In a tensor, which only the checking mode reads; they would hide contacts."""
    spheres = torch.tensor([0.1, 0.0, 0.0, 0.1], device=device).reshape(1, 1, 1, 4)
    world = world_of(BOX, device=device)
    value = torch.tensor([eta], device=device)
    if eta == -1e-45 and not value < 0.0:
        pytest.skip("denormals are flushed to 0 here")
    for cost in (sphere_cost, swept_sphere_cost):
        assert cost(spheres, world, activation_distance=value).isnan().all()
    for kind in KINDS:
        call = Call(kind, spheres, world)
        assert call(activation_distance=value).isnan().all()


# -- rounding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [1e3, 1e4, 1e5, 1e6, 1e7, 1e8])
@pytest.mark.parametrize("eta", [0.0, 0.02])
def test_contact_that_rounding_hides(offset: float, eta: float, device: torch.device) -> None:
    """Where a coordinate is rounded by more than the sphere is deep: NaN or a cost, never 0."""
    rng = np.random.default_rng(905)
    direction = directions(rng, 30)
    pose = np.concatenate([direction[10] * offset, shapes.random_pose(rng)[3:]])
    box = BOX._replace(pose=shapes.rounded(pose))
    centers = box.pose[:3] + rng.uniform(-0.3, 0.3, (3000, 3))
    spheres = shapes.rounded(np.column_stack([centers, rng.uniform(0.0, 0.1, 3000)]))
    inside = reference.obstacle_signed_distance(spheres[:, :3], box).distance < spheres[:, 3]
    assert inside.sum() > 10
    given = compare.to_device(spheres[None, :, None], device)
    for obstacles in ([box], [box] + [BOX] * 14):
        world = world_of(*obstacles, device=device)
        for cost in (sphere_cost, at_rest):
            found = compare.to_array(cost(given, world, activation_distance=eta)).reshape(-1)
            # At a kilometre the error is below a millimetre, as documented.
            deep = inside if offset > 2e3 else inside & (found > 0.0)
            assert (np.isnan(found) | (found > 0.0))[deep].all()
        collides = compare.to_array(in_collision(given, world)).reshape(-1) > 0.0
        assert collides[inside].all() or offset < 2e3


# -- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["closed", "no grid", "open", "crowd"])
@pytest.mark.parametrize("options", [{}, {"tolerance": 1e-6}, {"activation_distance": 0.0}])
def test_long_paths_through_a_mesh(
    name: str, options: dict[str, float], device: torch.device
) -> None:
    """Whatever their length, the waypoint that owns the place of contact is not free."""
    rng = np.random.default_rng(906)
    world = worlds(device)[name]
    middle = world.pose(0)[:3].double().cpu().numpy()
    length = LARGE[:, None, None]
    direction = directions(rng, 12)
    share = rng.uniform(0.1, 0.4, (1, 12, 1))
    begin, end = middle - direction * share * length, middle + direction * (1 - share) * length
    path = np.full((len(LARGE), 2, 12, 4), 0.05)
    path[:, 0, :, :3], path[:, 1, :, :3] = begin, end
    for owns in (0, 1):
        given = compare.to_device(path if owns == 0 else path[:, ::-1].copy(), device)
        owner = compare.to_array(swept_sphere_cost(given, world, **options))[:, owns]
        assert (np.isnan(owner) | (owner > 0.0)).all()
        sure = LARGE < 3e3
        assert np.isfinite(owner[sure]).all()


@pytest.mark.parametrize("reach", [1e-4, 1e-3, 5e-3, 0.02])
@pytest.mark.parametrize("length", mostly_slow((0.5, 2.0, 10.0, 30.0, 100.0), (2.0, 100.0)))
def test_small_spheres_through_a_sheet(reach: float, length: float, device: torch.device) -> None:
    """Two samples on its sides have empty balls that touch; by rounding they seem to overlap."""
    rng = np.random.default_rng(909)
    corners = np.array([[-1.0, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    sheet = Obstacle(corners, np.array([[0, 1, 2], [0, 2, 3]]), shapes.random_pose(rng))
    world = world_of(sheet, device=device)
    count = 3000
    flat = np.column_stack([rng.uniform(-0.9, 0.9, (count, 2)), np.zeros(count)])
    places = shapes.to_world(flat, sheet)
    direction = directions(rng, count)
    normal = shapes.to_world(np.array([[0.0, 0.0, 1.0]]), sheet) - sheet.pose[:3]
    direction[: count // 2] = normal
    share = rng.uniform(0.1, 0.4, (count, 1))
    for eta in (0.0, 0.5 * reach):
        path = np.full((count, 2, 1, 4), reach - eta)
        path[:, 0, 0, :3] = places - share * length * direction
        path[:, 1, 0, :3] = places + (1.0 - share) * length * direction
        given = compare.to_device(path, device)
        options = {"activation_distance": eta, "tolerance": 0.05 * reach}
        cost = swept_sphere_cost(given, world, **options)[:, 0]
        assert (cost > 0.0).all()


def test_long_paths_that_pass_at_a_distance_are_free(device: torch.device) -> None:
    rng = np.random.default_rng(907)
    length = LARGE[LARGE < 3e8]
    along = directions(rng, 12)
    across = np.cross(along, directions(rng, 12)[::-1])
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    aside = across * (5.0 + 3e-5 * length[:, None, None])
    path = np.full((len(length), 2, 12, 4), 0.05)
    path[:, 0, :, :3] = aside - along * 0.3 * length[:, None, None]
    path[:, 1, :, :3] = aside + along * 0.7 * length[:, None, None]
    for name, world in worlds(device).items():
        assert (swept_sphere_cost(compare.to_device(path, device), world) == 0.0).all(), name


# -- what scales ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-22, 1e-20, 1e-12, 1e-7, 1e-3, 1e3, 1e7, 1e15, 1e20, 1e30])
def test_quaternions_of_any_length(scale: float, device: torch.device) -> None:
    """Right or NaN: squares that over- or underflow must not turn a mesh to nowhere."""
    rng = np.random.default_rng(908)
    world = world_of(BOX._replace(pose=shapes.random_pose(rng)), device=device)
    centers = shapes.mixed_points(rng, BOX._replace(pose=world.pose(0).cpu().numpy()), 60)
    spheres = compare.to_device(shapes.spheres_at(rng, centers, (1, 60, 1)), device)
    for kind in KINDS:
        expected = Call(kind, spheres, world)()
        row = world.mesh_from_world.clone()
        row[..., 3:7] *= scale
        found = Call(kind, spheres, world)(mesh_pose_inverse=row)
        right = torch.isclose(found, expected, rtol=1e-4, atol=1e-5)
        assert (found.isnan() | right).all()
        assert right.all() or not 1e-6 < scale < 1e10
    poses = world.pose(0)[None].clone()
    poses[:, 3:] *= scale
    found = sphere_cost(spheres, world, poses=poses)
    right = torch.isclose(found, sphere_cost(spheres, world), rtol=1e-4, atol=1e-5)
    assert (found.isnan() | right).all()


@pytest.mark.parametrize("dt", [-1.0, float("nan"), -INF])
def test_times_that_are_none(dt: float, device: torch.device) -> None:
    """In a tensor: a negative cost would draw a path into the mesh."""
    world = world_of(BOX, device=device)
    path = torch.full((1, 3, 1, 4), 0.1, device=device)
    path[0, :, 0, 0] = torch.linspace(0.0, 0.2, 3)
    step = torch.tensor([dt], device=device)
    assert swept_sphere_cost(path, world, dt=step, speed_metric=True).isnan().all()
    call = Call("swept", path, world)
    assert call(speed_dt=step, enable_speed_metric=True).isnan().all()


@pytest.mark.parametrize("dt", [1e-45, 1e-38, 1e-20, 1e20, 3e38])
def test_times_of_any_size(dt: float, device: torch.device) -> None:
    world = world_of(BOX, device=device)
    path = torch.full((1, 3, 1, 4), 0.1, device=device)
    path[0, :, 0, 0] = torch.linspace(0.0, 0.2, 3)
    assert (swept_sphere_cost(path, world, dt=dt, speed_metric=True) > 0.0).all()


# -- gradients by poses ---------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["radius", "activation distance", "center"])
@pytest.mark.parametrize("number", [float("nan"), INF])
def test_pose_gradients_of_what_is_not_a_number(
    what: str, number: float, device: torch.device
) -> None:
    """A cost of NaN has gradients of NaN by the poses too, not 0."""
    world = world_of(BOX, HALF._replace(pose=(0.2, 0, 0, 1, 0, 0, 0)), device=device)
    cases: list[Callable[..., torch.Tensor]] = [sphere_cost, swept_sphere_cost, at_rest]
    for cost in cases:
        poses = torch.tensor([[0.0, 0, 0, 1, 0, 0, 0], [0.2, 0, 0, 1, 0, 0, 0]], device=device)
        poses.requires_grad_(True)
        spheres = torch.full((2, 3, 2, 4), 0.1, device=device)
        options: dict[str, Any] = {}
        if what == "activation distance":
            options["activation_distance"] = torch.tensor([number], device=device)
        else:
            spheres[1, 1, 0, 3 if what == "radius" else 1] = number
        found = cost(spheres, world, poses=poses, **options)
        assert found[1, 1, 0].isnan()
        found[1, 1, 0].backward()
        assert poses.grad.isnan().any(dim=1).all()

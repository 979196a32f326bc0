"""What the drop-in Functions compute: costs, gradients, sparsity; ESDF is in test_esdf."""

from typing import Any

import numpy as np
import pytest
import torch
import trimesh
import warp as wp

import compare
import shapes
from cases import mostly_slow
from primitives import KINDS, Call, paths, scenes
from reference import IDENTITY
from warp_collision import MeshWorld, sphere_cost, swept_sphere_cost

Tensor = torch.Tensor
WEIGHT, ETA, DT = 2.5, 0.03, 0.05


def scalars(device: torch.device) -> dict[str, Tensor]:
    """Parameters other than the usual ones."""
    values = {"weight": WEIGHT, "activation_distance": ETA, "speed_dt": DT}
    return {name: torch.full((1,), value, device=device) for name, value in values.items()}


def functional(kind: str, spheres: Tensor, world: MeshWorld, **options: Any) -> Tensor:
    """The same cost from the functional API."""
    fixed: dict[str, Any] = {"weight": WEIGHT, "activation_distance": ETA}
    if kind == "rest":
        return sphere_cost(spheres, world, **fixed, **options)
    return swept_sphere_cost(spheres, world, **fixed, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("return_loss", [False, True])
def test_same_as_the_functional_api(kind: str, return_loss: bool, device: torch.device) -> None:
    world = compare.build_world(scenes(), device)
    envs = torch.tensor([1, 0, 1], dtype=torch.int32, device=device)
    spheres = paths(device).requires_grad_(True)
    call = Call(kind, spheres, world, {**scalars(device), "env_query_idx": envs})
    cost = call(return_loss=return_loss)
    expected = functional(kind, spheres, world, env_index=envs)
    assert (cost > 0.0).float().mean() > 0.2
    assert torch.equal(cost, expected)
    assert torch.equal(call["out_cost"], expected)
    assert cost.data_ptr() == call["out_cost"].data_ptr()
    (total,) = torch.autograd.grad(expected.sum(), spheres, retain_graph=True)
    torch.testing.assert_close(call["out_grad"], total, rtol=1e-6, atol=1e-6)
    assert torch.equal(call["sparsity_idx"], (expected != 0.0).to(torch.uint8))

    incoming = torch.randn(cost.shape, generator=torch.Generator().manual_seed(62)).to(device)
    (found,) = torch.autograd.grad(cost, spheres, incoming)
    if return_loss:
        (pulled,) = torch.autograd.grad(expected, spheres, incoming)
        torch.testing.assert_close(found, pulled, rtol=1e-6, atol=1e-6)
    else:
        assert torch.equal(found, call["out_grad"])


def test_cost_by_hand(device: torch.device) -> None:
    """A sphere of 0.1 m at the face of a unit cube: free, in the activation band, deep."""
    world = compare.build_world([[shapes.box((1.0, 1.0, 1.0))]], device)
    centers = [0.65, 0.61, 0.55, 0.1]
    spheres = torch.tensor([[[[x, 0.0, 0.02, 0.1] for x in centers]]], device=device)
    call = Call("rest", spheres.requires_grad_(True), world)
    call(weight=torch.full((1,), 2.0, device=device))
    d = [0.1 + 0.02 - (x - 0.5) for x in centers]
    expected = [0.0, 2.0 * d[1] ** 2 / 0.04, 2.0 * (d[2] - 0.01), 2.0 * (d[3] - 0.01)]
    np.testing.assert_allclose(call["out_cost"].flatten().tolist(), expected, rtol=2e-5)
    slopes = [0.0, 2.0 * d[1] / 0.02, 2.0, 2.0]
    gradient = [[-s, 0.0, 0.0, s] for s in slopes]
    np.testing.assert_allclose(call["out_grad"][0, 0].tolist(), gradient, rtol=5e-5, atol=1e-6)
    assert call["sparsity_idx"].flatten().tolist() == [0, 1, 1, 1]


def test_swept_cost_by_hand(device: torch.device) -> None:
    """A sphere passes 0.12 m above a cube, in one step between waypoints that are far from it."""
    world = compare.build_world([[shapes.box((1.0, 1.0, 1.0))]], device)
    spheres = torch.tensor([[[[-2.0, 0.0, 0.62, 0.1]], [[2.0, 0.0, 0.62, 0.1]]]], device=device)
    call = Call("swept", spheres.requires_grad_(True), world)
    call(activation_distance=torch.full((1,), 0.05, device=device))
    d = 0.1 + 0.05 - 0.12
    np.testing.assert_allclose(call["out_cost"].flatten().tolist(), [d * d / 0.1] * 2, rtol=1e-4)
    gradient = call["out_grad"][0, :, 0].cpu().numpy()
    # Where along the flat top the minimum is found decides how the waypoints share it.
    np.testing.assert_allclose(gradient[:, 2].sum(), -2.0 * d / 0.05, rtol=1e-4)
    np.testing.assert_allclose(gradient[:, 3], d / 0.05, rtol=1e-4)
    np.testing.assert_allclose(gradient[:, :2], 0.0, atol=1e-6)
    assert (gradient[:, 2] < -0.1).all()
    call(sweep_steps=0)
    assert call["out_cost"].flatten().tolist() == [0.0, 0.0]
    assert call["sparsity_idx"].flatten().tolist() == [0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_max_dist_never_cuts_a_cost_off(kind: str, device: torch.device) -> None:
    world = compare.build_world([[shapes.box((4.0, 4.0, 4.0))]], device)
    steps = torch.linspace(0.0, 2.2, 12, device=device)
    spheres = torch.zeros((1, 12, 1, 4), device=device)
    spheres[0, :, 0, 0], spheres[..., 3] = steps, 0.1
    spheres[0, 0, 0, 0] = 1e-3  # off the middle, where all faces are as near
    call = Call(kind, spheres.requires_grad_(True), world)
    expected = call().clone()
    gradient = call["out_grad"].clone()
    np.testing.assert_allclose(expected[0, 0].item(), 2.0 - 1e-3 + 0.1 + 0.01, rtol=1e-2)
    for limit in (0.0, 1e-3, 0.12, 10.0, torch.inf):
        call(max_dist=torch.full((1,), limit, device=device))
        assert torch.equal(call["out_cost"], expected)
        assert torch.equal(call["out_grad"], gradient)


@pytest.mark.parametrize("kind", KINDS)
def test_buffers_are_written_whole_at_every_call(kind: str, device: torch.device) -> None:
    """Rubbish of earlier calls is gone, also where a sphere is free or disabled now."""
    world = compare.build_world(scenes(), device)
    spheres = paths(device).requires_grad_(True)
    call = Call(kind, spheres, world, scalars(device))
    call()
    costs = call["out_cost"].clone()
    assert torch.equal(call["sparsity_idx"], (costs != 0.0).to(torch.uint8))
    away = spheres.clone()
    away[1, ..., :3] += 10.0
    away[2, ..., 3] = -1.0
    call(query_spheres=away)
    assert (costs[1:] > 0.0).any()
    for buffer in call.buffers:
        assert (buffer[1:] == 0.0).all()
    assert torch.equal(call["out_cost"][0], costs[0])
    call(query_spheres=spheres)
    assert torch.equal(call["out_cost"], costs)
    assert torch.equal(call["sparsity_idx"], (costs != 0.0).to(torch.uint8))


def test_no_sweep_is_the_resting_cost(device: torch.device) -> None:
    world = compare.build_world(scenes(), device)
    spheres = paths(device).requires_grad_(True)
    rest = Call("rest", spheres, world, scalars(device))
    swept = Call("swept", spheres, world, scalars(device))
    assert torch.equal(swept(sweep_steps=0), rest())
    torch.testing.assert_close(swept["out_grad"], rest["out_grad"], rtol=1e-6, atol=1e-6)
    assert torch.equal(swept["sparsity_idx"], rest["sparsity_idx"])
    assert (swept(sweep_steps=1) > rest["out_cost"]).any()
    several = swept["out_cost"].clone()
    assert torch.equal(swept(sweep_steps=7), several)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_nothing_to_check(kind: str, shape: tuple[int, int, int], device: torch.device) -> None:
    world = compare.build_world(scenes(), device)
    spheres = torch.zeros((*shape, 4), device=device, requires_grad=True)
    cost = Call(kind, spheres, world)()
    cost.sum().backward()
    assert cost.shape == shape
    assert spheres.grad is not None
    assert spheres.grad.shape == spheres.shape


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("return_loss", [False, True])
def test_layouts_and_dtypes_of_spheres(kind: str, return_loss: bool, device: torch.device) -> None:
    world = compare.build_world(scenes(), device)
    spheres = paths(device).requires_grad_(True)
    call = Call(kind, spheres, world, {**scalars(device), "return_loss": return_loss})
    expected = call().detach().clone()
    (gradient,) = torch.autograd.grad(call().sum(), spheres)
    padded = torch.randn((*spheres.shape[:3], 6), device=device)
    padded[..., 1:5] = spheres.detach()
    swapped = spheres.detach().transpose(0, 2).contiguous().transpose(0, 2)
    for given in (padded[..., 1:5], swapped, spheres.detach().double()):
        assert given.dtype is torch.float64 or not given.is_contiguous()
        leaf = given.requires_grad_(True)
        cost = call(query_spheres=leaf)
        assert torch.equal(cost, expected)
        assert cost.dtype is torch.float32
        (found,) = torch.autograd.grad(cost.sum(), leaf)
        assert found.dtype is leaf.dtype
        torch.testing.assert_close(found.float(), gradient, rtol=1e-6, atol=1e-6)


# -- the tables ----------------------------------------------------------------------------------


def own_mesh(mesh: trimesh.Trimesh, device: torch.device, winding: bool) -> wp.Mesh:
    """A Warp mesh as a caller makes one."""
    return wp.Mesh(
        wp.array(mesh.vertices, dtype=wp.vec3, device=str(device)),
        wp.array(mesh.faces.ravel(), dtype=wp.int32, device=str(device)),
        support_winding_number=winding,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("winding", [False, True])
def test_the_callers_own_meshes(kind: str, winding: bool, device: torch.device) -> None:
    """Ids that no world knows of give what a world of the same meshes gives."""
    ball, box = trimesh.creation.icosphere(2, 0.25), trimesh.creation.box((0.5, 0.3, 0.2))
    world = MeshWorld(max_obstacles=3, device=device)
    pose = scenes()[0][0].pose
    for name, mesh in (("ball", ball), ("box", box)):
        world.add(name, mesh, pose)
    spheres = paths(device).requires_grad_(True)
    theirs = Call(kind, spheres, world)
    expected = theirs().clone()
    assert (expected > 0.0).any()

    meshes = [own_mesh(mesh, device, winding) for mesh in (ball, box)]
    ids = torch.zeros_like(world.mesh_ids)
    ids[0, :2] = torch.tensor([mesh.id for mesh in meshes])
    own = Call(kind, spheres, world)
    torch.testing.assert_close(own(mesh_idx=ids), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(own["out_grad"], theirs["out_grad"], rtol=1e-4, atol=1e-4)
    # A world's own table may be handed on with ids of others in it: what it knows of its mesh
    # must not be applied to theirs.
    world.load({"speck": (trimesh.creation.box((1e-3, 1e-3, 1e-3)), (5.0, *IDENTITY[1:]))})
    world.mesh_ids[0, 0] = meshes[0].id
    world.mesh_from_world[0, 0] = world.mesh_from_world[0, 1]
    only_ball = own(n_env_mesh=torch.ones_like(world.n_meshes)).clone()
    torch.testing.assert_close(theirs(), only_ball, rtol=1e-5, atol=1e-6)
    assert (only_ball > 0.0).any()


@pytest.mark.parametrize("way", ["numpy", "data"])
def test_ids_that_are_written_past_torch(way: str) -> None:
    """On the CPU such writes into a world's own table count, too."""
    device = torch.device("cpu")
    world = MeshWorld(device=device)
    world.add("speck", trimesh.creation.box((1e-3, 1e-3, 1e-3)), (0.0, 0.0, 0.0, *IDENTITY[3:]))
    spheres = paths(device)
    call = Call(KINDS[0], spheres, world)
    before = call().clone()
    own = own_mesh(trimesh.creation.icosphere(2, 0.25), device, True)
    ids = torch.full_like(world.mesh_ids, own.id)
    expected = Call(KINDS[0], spheres, world)(mesh_idx=ids)
    assert (expected > before).any()
    table = world.mesh_ids.numpy() if way == "numpy" else world.mesh_ids.data
    table[0, 0] = own.id
    torch.testing.assert_close(call(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_slots_that_are_not_checked(kind: str, device: torch.device) -> None:
    """A disabled slot, one with id 0, and all behind the count are as if they were not there."""
    pose = scenes()[0][0].pose
    names = ("box", "icosphere", "torus", "box")
    scene = [shapes.mesh(name)._replace(pose=pose) for name in names]
    spheres = paths(device)
    world = compare.build_world([scene], device)
    single = [Call(kind, spheres, compare.build_world([[o]], device))() for o in scene]
    assert all((cost > 0.0).any() for cost in single)

    def assert_sum(slots: list[int], **changes: Tensor) -> None:
        cost = Call(kind, spheres, world, changes)()
        torch.testing.assert_close(cost, sum(single[i] for i in slots), rtol=1e-6, atol=1e-6)

    assert_sum([0, 1, 2, 3])
    mask = torch.tensor([[0, 1, 1, 0]], dtype=torch.uint8, device=device)
    assert_sum([1, 2], mesh_enable=mask)
    assert_sum([0, 1, 2, 3], mesh_enable=torch.full_like(mask, 255))
    ids = world.mesh_ids.clone()
    ids[0, 1] = 0
    assert_sum([0, 2, 3], mesh_idx=ids)
    count = torch.tensor([2], dtype=torch.int32, device=device)
    assert_sum([0, 1], n_env_mesh=count)
    assert_sum([0], n_env_mesh=count, mesh_idx=ids)
    assert_sum([0, 1, 2, 3], n_env_mesh=count + 100)  # never beyond the table
    assert (Call(kind, spheres, world)(n_env_mesh=0 * count) == 0.0).all()
    assert (Call(kind, spheres, world)(n_env_mesh=-count) == 0.0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_env_of_each_row(kind: str, device: torch.device) -> None:
    world = compare.build_world(scenes(), device)
    spheres = paths(device, (1, 6, 8)).expand(4, -1, -1, -1)
    per_env = []
    for env in range(2):
        envs = torch.full((4,), env, dtype=torch.int32, device=device)
        per_env.append(Call(kind, spheres, world, {"env_query_idx": envs})()[0])
    assert not torch.equal(*per_env)
    envs = torch.tensor([1, 0, 0, 1], dtype=torch.int32, device=device)
    cost = Call(kind, spheres, world, {"env_query_idx": envs})()
    for row, env in enumerate(envs.tolist()):
        assert torch.equal(cost[row], per_env[env])
    assert torch.equal(Call(kind, spheres, world)()[2], per_env[0])


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", mostly_slow(INTEGERS, (torch.int64,)), ids=str)
@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 3), (3, 1, 1)], ids=str)
def test_env_of_each_row_in_any_integers(
    shape: tuple[int, ...], dtype: torch.dtype, kind: str, device: torch.device
) -> None:
    world = compare.build_world(scenes(), device)
    call = Call(kind, paths(device), world)
    envs = torch.tensor([1, 0, 1], dtype=torch.int32, device=device)
    expected = call(env_query_idx=envs).clone()
    assert not torch.equal(expected, call(env_query_idx=None))
    assert torch.equal(call(env_query_idx=envs.to(dtype).view(shape)), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("return_loss", [False, True])
def test_flat_buffers(return_loss: bool, kind: str, device: torch.device) -> None:
    """Buffers in fewer axes: rows in order, the right number of elements."""
    world = compare.build_world(scenes(), device)
    spheres = paths(device).requires_grad_(True)
    options = {**scalars(device), "return_loss": return_loss}
    call = Call(kind, spheres, world, options)
    weights = torch.linspace(0.5, 1.5, spheres[..., 0].numel(), device=device)
    expected = call().detach().clone()
    (call().flatten() * weights).sum().backward()
    gradient, spheres.grad = spheres.grad, None
    flat = Call(kind, spheres, world, options)
    for name, shape in (("out_cost", -1), ("out_grad", (-1, 4)), ("sparsity_idx", (3, -1))):
        flat.arguments[name] = flat[name].view(shape)
    cost = flat()
    assert cost.shape == (expected.numel(),)
    assert torch.equal(cost.view_as(expected), expected)
    assert cost.data_ptr() == flat["out_cost"].data_ptr()
    (cost * weights).sum().backward()
    assert torch.equal(spheres.grad, gradient)
    for mine, theirs in zip(flat.buffers, call.buffers, strict=True):
        assert torch.equal(mine.view_as(theirs), theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_flat_tables_and_scalars(kind: str, device: torch.device) -> None:
    world = compare.build_world(scenes(), device)
    call = Call(kind, paths(device), world)
    envs = torch.tensor([1, 0, 1], dtype=torch.int32, device=device)
    expected = call(env_query_idx=envs).clone()
    call(
        mesh_pose_inverse=call["mesh_pose_inverse"].view(-1, 8),
        mesh_enable=call["mesh_enable"].view(-1),
        n_env_mesh=call["n_env_mesh"].view(-1, 1),
        weight=call["weight"].view(()),
        max_dist=call["max_dist"].view(1, 1),
    )
    assert torch.equal(call["out_cost"], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_as_unsigned_numbers(kind: str, device: torch.device) -> None:
    """Torch knows uint64 too, which is what Warp's ids are."""
    world = compare.build_world(scenes(), device)
    call = Call(kind, paths(device), world)
    expected = call().clone()
    assert torch.equal(call(mesh_idx=world.mesh_ids.view(torch.uint64)), expected)

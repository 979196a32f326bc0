"""Moving meshes and switching them on and off."""

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import shapes
from reference import rotation_matrix
from warp_collision import MeshWorld, in_collision, signed_distance, sphere_cost
from warp_collision.queries import dispatch
from worlds import BOX, CUBE, SCENES, SHIFT, TILT, TURN, Held, assert_holds, build, probe

ROUNDING = 1e-6  # poses that come as float32 tensors are inverted in float32


@pytest.fixture
def world(device: torch.device) -> MeshWorld:
    """The world of `SCENES`."""
    return build(*SCENES, device=device)


# -- poses ----------------------------------------------------------------------------------------


def test_pose_round_trip(device: torch.device) -> None:
    rng = np.random.default_rng(51)
    world = MeshWorld(device=device)
    world.add("box", BOX)
    for spread in (0.1, 1.0, 100.0):
        for _ in range(20):
            pose = shapes.random_pose(rng, spread)
            world.set_pose("box", pose)
            found = world.pose("box")
            assert (found.shape, found.dtype, found.device) == (
                (7,),
                torch.float32,
                world.device,
            )
            back = found.cpu().numpy().astype(np.float64)
            np.testing.assert_allclose(back[:3], pose[:3], rtol=0.0, atol=1e-6 * spread)
            np.testing.assert_allclose(back[3:], pose[3:], rtol=0.0, atol=3e-7)


def test_all_poses_of_an_env(world: MeshWorld, device: torch.device) -> None:
    moved = torch.tensor([0.1, 0.2, 0.3, 0.6, 0.0, 0.8, 0.0], device=device, requires_grad=True)
    world.set_pose(1, moved)
    for env in range(world.n_envs):
        poses = world.poses(env)
        assert poses.shape == (len(world.names(env)), 7)
        assert not poses.requires_grad
        each = [world.pose(name, env) for name in world.names(env)]
        assert torch.equal(poses, torch.stack(each) if each else poses[:0])
    torch.testing.assert_close(world.poses()[1], moved.detach())
    spheres = torch.rand(1, 3, 5, 4, device=device)
    expected = sphere_cost(spheres, world)
    world.set_poses(world.poses())
    torch.testing.assert_close(sphere_cost(spheres, world), expected)


def test_pose_returns_a_new_tensor(world: MeshWorld) -> None:
    world.pose("box").fill_(7.0)
    assert_holds(world, *SCENES)


def test_a_pose_places_the_mesh_in_the_world(device: torch.device) -> None:
    """The point of a face's middle, sent through the pose, is on the surface."""
    rng = np.random.default_rng(52)
    world = MeshWorld(device=device)
    world.add("box", BOX)
    middles = BOX.vertices[BOX.faces].mean(axis=1)
    for _ in range(10):
        pose = shapes.random_pose(rng)
        world.set_pose("box", pose)
        placed = middles @ rotation_matrix(pose[3:]).T + pose[:3]
        points = torch.tensor(placed[None], dtype=torch.float32, device=device)
        assert signed_distance(points, world).distance.abs().max() < 3e-7


@pytest.mark.parametrize("scale", [1e-3, 0.5, 3.0, 1e4, -1.0])
def test_quaternions_are_normalised(scale: float, world: MeshWorld) -> None:
    """A quaternion of any length is a rotation, and its negative is the same one."""
    scaled = (*TILT[:3], *(scale * q for q in TILT[3:]))
    scenes = [[Held("box", BOX, TILT), SCENES[0][1]], *SCENES[1:]]
    expected = probe(build(*scenes, device=world.device))

    def assert_moved() -> None:
        np.testing.assert_allclose(world.pose("box")[3:].norm().item(), 1.0, atol=1e-6)
        torch.testing.assert_close(probe(world), expected, rtol=0.0, atol=ROUNDING)

    world.set_pose("box", scaled)
    assert_moved()
    world.add("box", BOX, scaled, replace=True)
    assert_moved()
    world.set_poses(torch.tensor([scaled, SCENES[0][1].pose], device=world.device))
    assert_moved()
    poses = torch.stack([world.pose("box"), world.pose("ball")])
    poses[0, 3:] *= abs(scale)
    full = torch.zeros((3, 4, 7), device=world.device)
    full[0, :2] = poses
    spheres = torch.rand((1, 20, 3, 4), device=world.device) * 0.2
    torch.testing.assert_close(
        sphere_cost(spheres, world, poses=full),
        sphere_cost(spheres, world),
        rtol=0.0,
        atol=ROUNDING,
    )


AS_POSE: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "list": list,
    "array": lambda p: np.array(p),
    "float32 array": lambda p: np.array(p, dtype=np.float32),
    "integers": lambda p: [round(value) for value in p],
    "host tensor": lambda p: torch.tensor(p, dtype=torch.float64),
    "differentiable tensor": lambda p: torch.tensor(p, requires_grad=True),
}


@pytest.mark.parametrize("kind", AS_POSE)
@pytest.mark.parametrize("name", ["cube", 1])
def test_set_pose(kind: str, name: str | int, world: MeshWorld) -> None:
    pose = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0) if kind == "integers" else TILT
    world.set_pose(name, AS_POSE[kind](pose), env=1)
    world.enable(name, env=1)
    moved = [SCENES[1][0], Held("cube", CUBE, pose), SCENES[1][2]]
    assert_holds(world, SCENES[0], moved, SCENES[2], atol=ROUNDING)


def test_set_pose_from_a_tensor_of_the_device(world: MeshWorld) -> None:
    for dtype in (torch.float32, torch.float64):
        world.set_pose("cube", torch.tensor(TILT, dtype=dtype, device=world.device), env=1)
        moved = [SCENES[1][0], Held("cube", CUBE, TILT, False), SCENES[1][2]]
        assert_holds(world, SCENES[0], moved, SCENES[2], atol=ROUNDING)
        world.set_pose("cube", SHIFT, env=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_set_poses(dtype: torch.dtype, world: MeshWorld) -> None:
    given = (TURN, SHIFT, TILT)
    poses = torch.tensor(given, dtype=dtype, device=world.device, requires_grad=True)
    world.set_poses(poses, env=1)
    world.set_poses(torch.zeros((0, 7), device=world.device), env=2)
    moved = [held._replace(pose=pose) for held, pose in zip(SCENES[1], given, strict=True)]
    assert_holds(world, SCENES[0], moved, SCENES[2], atol=ROUNDING)
    assert not world.mesh_from_world.requires_grad
    world.set_poses(poses.detach().flip(1).flip(1), env=1)  # not contiguous is fine
    assert_holds(world, SCENES[0], moved, SCENES[2], atol=ROUNDING)


@pytest.mark.parametrize("pose", [np.array((*SHIFT[:3], 2.0, 0.0, 0.0, 0.0)), None])
def test_the_callers_pose_is_left_as_it_was(pose: np.ndarray | None, world: MeshWorld) -> None:
    """A float64 array or tensor could be normalised in place; a read-only one could not."""
    values = np.array((*SHIFT[:3], 2.0, 0.0, 0.0, 0.0))
    if pose is None:
        tensor = torch.from_numpy(values.copy())
        world.set_pose("box", tensor)
        assert torch.equal(tensor, torch.from_numpy(values))
        return
    world.set_pose("box", pose)
    assert np.array_equal(pose, values)
    pose.setflags(write=False)
    world.set_pose("box", pose)
    assert_holds(world, *SCENES)


# -- enabling -------------------------------------------------------------------------------------


def test_enable(world: MeshWorld) -> None:
    for name, on in (("box", False), (1, False), ("box", True), (1, True), (0, np.bool_(False))):
        world.enable(name, on)
        index = world.names().index(name) if isinstance(name, str) else name
        assert world.enabled[0, index].item() == int(on)
    assert_holds(world, [SCENES[0][0]._replace(enabled=False), SCENES[0][1]], *SCENES[1:])


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_enable_from_a_tensor(shape: tuple[int, ...], dtype: torch.dtype, world: MeshWorld) -> None:
    off = torch.zeros(shape, dtype=dtype, device=world.device)
    world.enable("ball", off, env=1)
    world.enable(1, ~off if dtype is torch.bool else off + 2, env=1)
    masks = (False, True, True)
    expected = [held._replace(enabled=on) for held, on in zip(SCENES[1], masks, strict=True)]
    assert_holds(world, SCENES[0], expected, SCENES[2])


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_set_enabled(dtype: torch.dtype, world: MeshWorld) -> None:
    for masks in ((1, 0, 1), (0, 1, 1), (0, 0, 0), (1, 1, 1)):
        world.set_enabled(torch.tensor(masks, dtype=dtype, device=world.device), env=1)
        expected = [
            held._replace(enabled=bool(on)) for held, on in zip(SCENES[1], masks, strict=True)
        ]
        assert_holds(world, SCENES[0], expected, SCENES[2])
    world.set_enabled(torch.zeros(0, dtype=dtype, device=world.device), env=2)


def test_masks_move_with_their_meshes(world: MeshWorld) -> None:
    world.remove("ball", env=1)
    assert world.enabled[1].tolist() == [0, 1, 0, 0]
    world.grow(max_obstacles=6)
    assert world.enabled[1].tolist() == [0, 1, 0, 0, 0, 0]


def test_device_tensors_written_by_the_caller_take_effect(world: MeshWorld) -> None:
    """The tables are the state: a planner may write poses and masks into them itself."""
    world.enabled[1, 1] = 1
    world.mesh_from_world[1, 0] = world.mesh_from_world[1, 2]
    expected = [
        Held("ball", SCENES[1][0].mesh, TURN),
        SCENES[1][1]._replace(enabled=True),
        SCENES[1][2],
    ]
    assert_holds(world, SCENES[0], expected, SCENES[2])
    np.testing.assert_allclose(world.pose("ball", env=1).tolist(), TURN, atol=ROUNDING)


# -- modes of torch -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_world_made_and_changed_without_gradients(
    mode: Callable[[], Any], device: torch.device
) -> None:
    with mode():
        world = build(*SCENES, device=device)
        world.set_pose("box", TILT)
        world.set_poses(torch.tensor([TILT, TILT], device=device))
        world.set_enabled(torch.tensor([True, False], device=device))
        world.grow(max_obstacles=5)
        world.set_pose("ball", TURN)
    box, ball = SCENES[0]
    scene = [box._replace(pose=TILT), ball._replace(pose=TURN, enabled=False)]
    assert_holds(world, scene, *SCENES[1:], atol=ROUNDING)
    spheres = torch.tensor([[[[*TILT[:3], 0.1]]]], device=device, requires_grad=True)
    sphere_cost(spheres, world).sum().backward()
    assert spheres.grad is not None
    assert spheres.grad[0, 0, 0, 3] == 1.0


def test_poses_that_require_gradients_come_and_go(device: torch.device) -> None:
    """Some meshes have rows of one tensor, some a tensor of their own, and some just a place."""
    rng = np.random.default_rng(137)
    start = torch.tensor(np.stack([shapes.random_pose(rng, 0.3) for _ in range(9)]), device=device)
    start = start.float()
    spheres = torch.tensor(rng.uniform(-0.8, 0.8, (4, 3, 20, 4)), device=device).float().abs_()
    world = MeshWorld(2, 8, device)
    for env, count in ((0, 5), (1, 4)):
        for i in range(count):
            world.add(f"mesh {i}", BOX, start[5 * env + i].cpu(), env)
    envs = torch.tensor([0, 1, 1, 0], dtype=torch.int32, device=device)

    first, second = (start[part].clone().requires_grad_(True) for part in (slice(5), slice(5, 9)))
    own = start[2].clone().requires_grad_(True)
    world.set_poses(first)
    world.set_poses(second, env=1)
    world.set_pose("mesh 2", own)
    world.set_pose("mesh 3", start[3].cpu())
    world.remove("mesh 0")
    sphere_cost(spheres, world, env_index=envs).sum().backward()

    poses = torch.zeros((2, 8, 7), device=device)
    poses[..., 3] = 1.0
    poses[0, :4], poses[1, :4] = start[1:5], start[5:]
    poses.requires_grad_(True)
    sphere_cost(spheres, world, env_index=envs, poses=poses).sum().backward()
    assert poses.grad is not None
    assert (poses.grad[:, :4] != 0.0).any(dim=-1).all()
    expected = torch.zeros_like(first)
    expected[[1, 4]] = poses.grad[0, [0, 3]]
    close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)
    close(first.grad, expected)
    close(own.grad, poses.grad[0, 1])
    close(second.grad, poses.grad[1, :4])

    with torch.no_grad():  # nothing requires a gradient any longer
        world.set_poses(first[1:].detach())
        world.set_poses(second, env=1)
    assert not sphere_cost(spheres, world, env_index=envs).requires_grad


def test_poses_that_require_gradients_are_read_anew(device: torch.device) -> None:
    """By every function, with gradients and without."""
    world = MeshWorld(device=device)
    world.add("box", BOX)
    spheres = torch.zeros((1, 1, 1, 4), device=device)
    pose = torch.tensor([5.0, 0, 0, 2, 0, 0, 0], device=device, requires_grad=True)
    world.set_pose("box", pose)
    assert not in_collision(spheres, world).any()
    with torch.no_grad():
        pose[0] = 0.01
        assert sphere_cost(spheres, world).item() > 0.0
    assert sphere_cost(spheres, world).requires_grad
    assert in_collision(spheres, world).all()
    expected = torch.tensor([0.01, 0, 0, 1, 0, 0, 0], device=device)
    torch.testing.assert_close(world.pose("box"), expected)
    assert not world.pose("box").requires_grad


def test_a_query_outlives_the_tables_it_began_with(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may let the world grow before the query is launched."""
    world = MeshWorld(device=device)
    pose = torch.tensor([0.01, 0, 0, 1, 0, 0, 0], device=device, requires_grad=True)
    world.add("box", BOX, pose)
    spheres = torch.zeros((1, 1, 1, 4), device=device)

    def ask() -> list[torch.Tensor]:
        cost = sphere_cost(spheres, world)
        return [cost.detach(), *torch.autograd.grad(cost.sum(), pose)]

    expected, applied = ask(), dispatch.apply

    def grow_first(*operands: Any) -> Any:
        world.grow(world.n_envs, world.max_obstacles + 1)
        gc.collect()
        return applied(*operands)

    monkeypatch.setattr(dispatch, "apply", grow_first)
    for found, same in zip(ask(), expected, strict=True):
        assert torch.equal(found, same)
        assert (found != 0.0).any()


def test_what_is_written_after_a_pose_that_requires_a_gradient_counts(device: torch.device) -> None:
    """The tables are the state; what stands beside it still follows its tensor."""
    world = MeshWorld(device=device)
    poses = torch.zeros((3, 7), device=device)
    poses[:, 0], poses[:, 3] = torch.tensor([5.0, 7.0, 9.0]), 1.0
    for name in "abc":
        world.add(name, BOX)
    poses.requires_grad_()
    world.set_poses(poses)
    world.mesh_from_world[0, 1, :3] = 0.0
    spheres = torch.zeros((1, 1, 1, 4), device=device)
    assert sphere_cost(spheres, world).item() > 0.0
    assert in_collision(spheres, world).all()
    assert signed_distance(spheres[..., :3], world).obstacle.item() == 1
    assert world.pose("b").tolist() == pytest.approx([0, 0, 0, 1, 0, 0, 0])
    # Written back it is where its tensor says, also in another slot and a larger table.
    world.mesh_from_world[0, 1, 0] = -7.0
    world.remove("a")
    world.grow(2, 40)
    for leaf, expected in ((7.0, False), (0.1, True), (3.0, False)):
        with torch.no_grad():
            poses[1, 0] = leaf
        assert in_collision(spheres, world).any() == expected
        assert world.pose("b")[0].item() == pytest.approx(leaf)
    cost = sphere_cost(spheres, world, activation_distance=5.0).sum()
    (gradient,) = torch.autograd.grad(cost, poses)
    assert (gradient[1] != 0.0).any()
    assert (gradient[0] == 0.0).all()


@pytest.mark.parametrize("how", ["add", "replace", "load"])
def test_meshes_come_with_poses_that_require_gradients(how: str, device: torch.device) -> None:
    world = MeshWorld(device=device)
    pose = torch.tensor([0.0, 0, 0, 1, 0, 0, 0], device=device, requires_grad=True)
    if how == "load":
        world.load({"box": (BOX, pose), "other": BOX})
    else:
        if how == "replace":
            world.add("box", CUBE)
        world.add("box", BOX, pose, replace=how == "replace")
    spheres = torch.full((1, 1, 1, 4), 0.1, device=device)
    sphere_cost(spheres, world).sum().backward()
    assert pose.grad is not None
    assert pose.grad[:3].abs().max() > 0.5


def test_a_refused_pose_moves_nothing() -> None:
    world = build([Held("box", BOX)], device=torch.device("cpu"))
    pose = torch.tensor([5.0, 0, 0, 0, 0, 0, 0], requires_grad=True)
    for move in (lambda: world.set_pose("box", pose), lambda: world.set_poses(pose)):
        with pytest.raises(ValueError, match="pose"):
            move()
        assert_holds(world, [Held("box", BOX)])
        assert not sphere_cost(torch.zeros((1, 1, 1, 4)), world).requires_grad


def test_integers_of_numpy(device: torch.device) -> None:
    world = MeshWorld(np.int64(2), np.int32(3), device)
    world.add("box", BOX, env=np.int64(1))
    world.set_pose(np.int64(0), SHIFT, env=np.int16(1))
    assert_holds(world, [], [Held("box", BOX, SHIFT)])
    with pytest.raises(TypeError, match="env must be an int, got float"):
        world.names(1.0)  # pyright: ignore[reportArgumentType]


def test_the_default_device() -> None:
    assert MeshWorld().device == torch.get_default_device()
    with torch.device("meta"), pytest.raises(ValueError, match="device must be a cpu or cuda"):
        MeshWorld()


def test_a_device_with_an_index(device: torch.device) -> None:
    """What `torch.zeros(device="cpu:0")` reports is "cpu"; both are one device."""
    name = f"{device.type}:0"
    world = build([Held("box", BOX)], device=torch.device(name))
    spheres = torch.zeros((1, 1, 1, 4), device=name)
    assert sphere_cost(spheres, world).item() > 0.0
    world.set_poses(torch.tensor([SHIFT], device=name))
    assert_holds(world, [Held("box", BOX, SHIFT)], atol=ROUNDING)

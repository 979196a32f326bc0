"""Yes or no: in collision, any in collision, and proofs of free paths."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import compare
import reference
import reference_sweep
import shapes
from cases import mostly_slow
from reference import Obstacle
from warp_collision import (
    MeshWorld,
    any_in_collision,
    clearance,
    in_collision,
    swept_in_collision,
    swept_sphere_cost,
)

# Clearances that float32 cannot tell from 0 [m].
DOUBT = 2e-6
FUNCTIONS = (in_collision, any_in_collision, swept_in_collision)


def scene_of(seed: int, names: tuple[str, ...]) -> list[Obstacle]:
    rng = np.random.default_rng(seed)
    return [shapes.placed(name, rng, enabled=i % 4 != 2) for i, name in enumerate(names)]


def assert_answers(scene: list[Obstacle], count: int, seed: int, device: torch.device) -> None:
    """The reference's answers, for spheres of all sizes near, deep inside and far from a scene."""
    rng = np.random.default_rng(seed)
    shape = (2, count // 64, 32)
    each = 64 * (count // 64) // len(scene) + 1
    points = np.concatenate([shapes.mixed_points(rng, obstacle, each) for obstacle in scene])
    spheres = shapes.spheres_at(rng, rng.permutation(points)[: np.prod(shape)], shape, 0.02)
    spheres[..., 3] *= rng.choice([0.0, 0.1, 1.0, 3.0], size=shape)
    spheres = shapes.rounded(spheres)
    distance = reference.scene_signed_distance(spheres[..., :3].reshape(-1, 3), scene).distance
    value = distance.reshape(shape) - spheres[..., 3]
    sure = np.abs(value) > DOUBT
    for obstacle in scene:
        if obstacle.enabled and len(obstacle.faces) < 60:  # the open ones
            at = spheres[..., :3].reshape(-1, 3)
            sure &= compare.clear_of_openings(at, obstacle).reshape(shape)
    expected = (value < 0.0) & (spheres[..., 3] >= 0.0)
    assert 0.1 < expected.mean() < 0.9
    assert sure.mean() > 0.98
    world = compare.build_world([scene], device, max_obstacles=len(scene))
    on_device = compare.to_device(spheres, device)
    hit = in_collision(on_device, world)
    assert hit.dtype == torch.bool
    np.testing.assert_array_equal(hit.cpu().numpy()[sure], expected[sure])
    assert torch.equal(hit, ~(clearance(on_device, world).clearance >= 0.0))
    assert torch.equal(any_in_collision(on_device, world), hit.any(dim=-1))


SCENES = {
    "closed": ("box", "icosphere", "box", "torus", "plate"),
    "open": ("countertop", "box"),
    "one": ("robot_link",),
    "many": ("box", "box", "icosphere", "box") * 4,
}


@pytest.mark.parametrize("names", SCENES.values(), ids=SCENES)
def test_answers_of_the_reference(names: tuple[str, ...], device: torch.device) -> None:
    assert_answers(scene_of(31, names), 2_048, 32, device)


@pytest.mark.slow
@pytest.mark.parametrize("names", SCENES.values(), ids=SCENES)
def test_many_answers_of_the_reference(names: tuple[str, ...], device: torch.device) -> None:
    for seed in range(5):
        assert_answers(scene_of(seed, names), 8_192, seed + 50, device)


def test_answers_agree_with_the_clearance(device: torch.device) -> None:
    """Of 131,072 spheres in two envs, with a field of distances and without."""
    world = compare.build_world([scene_of(s, SCENES["many"]) for s in (1, 2)], device, 16)
    made = torch.Generator().manual_seed(33)
    spheres = torch.rand((8, 128, 128, 4), generator=made) * 1.6 - 0.8
    spheres[..., 3] = 0.2 * torch.rand(spheres.shape[:-1], generator=made) ** 3
    spheres = spheres.to(device)
    envs = torch.arange(8, dtype=torch.int32, device=device) % 2
    for prepared in (False, True):
        if prepared:
            world.prepare()
        expected = clearance(spheres, world, env_index=envs).clearance < 0.0
        assert 0.1 < expected.float().mean().item() < 0.9
        hit = in_collision(spheres, world, env_index=envs)
        assert torch.equal(hit, expected)
        assert torch.equal(any_in_collision(spheres, world, env_index=envs), hit.any(dim=-1))


# -- in motion ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", mostly_slow(("box", "torus", "plate", "robot_link"), ("box", "plate"))
)
def test_what_is_called_free_is_free(name: str, device: torch.device) -> None:
    """And what is not has a clearance below the tolerance."""
    rng = np.random.default_rng(34)
    obstacle = shapes.placed(name, rng)
    spheres = shapes.random_paths(rng, obstacle, (4, 6, 6), step=0.4, disabled=0.05)
    spheres[..., 3] *= 0.3
    spheres = shapes.rounded(spheres)

    def distance(points: reference.Array) -> reference.Array:
        return reference.obstacle_signed_distance(points, obstacle).distance

    lowest = reference_sweep.swept_distance(spheres, distance) - spheres[..., 3]
    enabled = spheres[..., 3] >= 0.0
    world = compare.build_world([[obstacle]], device)
    given = compare.to_device(spheres, device)
    for tolerance in (1e-4, 5e-3):
        hit = swept_in_collision(given, world, tolerance=tolerance).cpu().numpy()
        assert not hit[~enabled].any()
        assert 0.1 < hit[enabled].mean() < 0.9
        assert (lowest[~hit & enabled] > -DOUBT).all()
        assert (lowest[hit] < tolerance + DOUBT).all()


def test_thin_things_are_not_passed_through(device: torch.device) -> None:
    world = compare.build_world([[shapes.mesh("plate")]], device)
    made = torch.Generator().manual_seed(35)
    spheres = torch.rand((64, 2, 8, 4), generator=made) * 0.8 - 0.4
    spheres[:, 0, :, 2] = -0.3 - spheres[:, 0, :, 2].abs()
    spheres[:, 1, :, 2] = 0.2 + spheres[:, 1, :, 2].abs()
    spheres[..., 3] = 0.001
    spheres = spheres.to(device)
    assert not in_collision(spheres, world).any()
    assert swept_in_collision(spheres, world).any(dim=1).all()


def test_at_rest_and_reversed(device: torch.device) -> None:
    world = compare.build_world([scene_of(36, SCENES["closed"])], device, 5)
    made = torch.Generator().manual_seed(37)
    spheres = torch.rand((16, 5, 16, 4), generator=made) * 1.2 - 0.6
    spheres[..., 3] = 0.1 * spheres[..., 3].abs()
    spheres = spheres.to(device)
    hit = swept_in_collision(spheres, world)
    assert torch.equal(hit.flip(1), swept_in_collision(spheres.flip(1), world))
    assert hit[in_collision(spheres, world)].all()
    # A cost of an activation distance says the same, but for what is within the tolerance.
    cost = swept_sphere_cost(spheres, world, activation_distance=1e-4, tolerance=1e-4)
    assert (hit | (cost <= 0.5e-4)).all()
    still = spheres[:, :1].expand(16, 5, 16, 4)
    value = clearance(still, world).clearance
    sure = (value < 0.0) | (value > 1.1e-4)
    assert torch.equal(swept_in_collision(still, world)[sure], value[sure] < 0.0)


# -- what is nowhere, and what is not there ----------------------------------------------------


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_not_finite_collides(function: Callable[..., Tensor], device: torch.device) -> None:
    world = compare.build_world([scene_of(38, SCENES["closed"]), []], device, 5)
    far = torch.tensor([50.0, 3.0, 20.0, 0.1], device=device).expand(4, 3, 2, 4).clone()
    far[..., 0] += torch.arange(3, device=device)[:, None]
    envs = torch.tensor([0, 1, 0, 1], dtype=torch.int32, device=device)
    assert not function(far, world, env_index=envs).any()
    for component in range(4):
        for number in (torch.nan, torch.inf):
            bad = far.clone()
            bad[0, 1, 0, component] = bad[1, 1, 0, component] = number
            hit = function(bad, world, env_index=envs)
            assert hit[:2, 1].reshape(2, -1).any(dim=1).all()
            assert not hit[2:].any()
    for env in (-1, 2, 2**31 - 1):
        envs[2] = env
        hit = function(far, world, env_index=envs).flatten(1)
        assert hit.tolist() == [[row == 2] * hit.shape[1] for row in range(4)]
    off = far.clone()
    off[..., 3] = -1.0
    off[0, :, :, 0] = torch.nan
    assert not function(off, world, env_index=envs).any()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_pose_that_is_not_finite(function: Callable[..., Tensor], device: torch.device) -> None:
    """Of an enabled mesh it collides with everything, however far, and of another with nothing."""
    for many in (False, True):
        names = ("box",) * (30 if many else 2)
        world = compare.build_world([scene_of(39, names)], device, len(names))
        world.set_enabled(torch.ones(len(names), dtype=torch.bool, device=device))
        far = torch.tensor([50.0, 3.0, 20.0, 0.1], device=device).expand(2, 3, 4, 4)
        assert not function(far, world).any()
        world.mesh_from_world[0, 1, 4] = torch.nan
        assert function(far, world).all()
        world.enable("mesh_1", False)
        assert not function(far, world).any()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_to_collide_with(function: Callable[..., Tensor], device: torch.device) -> None:
    world = MeshWorld(1, 2, device)
    spheres = torch.ones((2, 3, 4, 4), device=device)
    assert not function(spheres, world).any()
    box = shapes.mesh("box")
    world.add("box", (box.vertices, box.faces), (1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0), enabled=False)
    assert not function(spheres, world).any()
    world.enable("box")
    assert function(spheres, world).all()
    for shape in ((0, 3, 4, 4), (2, 0, 4, 4), (2, 3, 0, 4)):
        empty = function(spheres.new_empty(shape), world)
        assert not empty.any()
        assert empty.shape[:2] == shape[:2]


@pytest.mark.parametrize("tolerance", [0.0, -1e-3, torch.nan, torch.inf])
def test_tolerances_that_are_refused(tolerance: float, device: torch.device) -> None:
    world = MeshWorld(1, 2, device)
    with pytest.raises(ValueError, match="tolerance must be"):
        swept_in_collision(torch.ones((1, 2, 3, 4), device=device), world, tolerance=tolerance)


# -- torch's transforms ---------------------------------------------------------------------------


def operands(device: torch.device) -> tuple[MeshWorld, Tensor, Tensor]:
    """A world, spheres (3, 4, 6, 4) that need a gradient, and poses of the world."""
    scene = scene_of(40, ("box", "icosphere"))
    world = compare.build_world([scene], device, max_obstacles=2)
    made = torch.Generator().manual_seed(41)
    spheres = torch.rand((3, 4, 6, 4), generator=made) * 0.8 - 0.4
    spheres[..., 3] = 0.1 * spheres[..., 3].abs()
    poses = compare.to_device(np.array([obstacle.pose for obstacle in scene]), device)
    return world, spheres.to(device).requires_grad_(True), poses.requires_grad_(True)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, in jvp
@pytest.mark.parametrize("function", FUNCTIONS)
def test_under_transforms(function: Callable[..., Tensor], device: torch.device) -> None:
    world, spheres, poses = operands(device)
    expected = function(spheres, world)
    assert not expected.requires_grad
    assert expected.any()
    assert not expected.all()
    assert torch.equal(function(spheres, world, poses=poses), expected)

    def cost(s: Tensor) -> tuple[Tensor, Tensor]:
        hit = function(s, world)
        return s.sum() * hit.sum(), hit

    gradient, hit = torch.func.grad(cost, has_aux=True)(spheres.detach())
    assert torch.equal(hit, expected)
    assert (gradient == expected.sum()).all()
    tangent = torch.func.jvp(lambda s: cost(s)[0], (spheres.detach(),), (torch.ones_like(spheres),))
    assert torch.equal(tangent[1], expected.sum() * float(spheres.numel()))
    batched = torch.func.vmap(lambda s: function(s[None], world)[0])(spheres)
    assert torch.equal(batched, torch.cat([function(s[None], world) for s in spheres]))
    moved = torch.stack((poses, poses + 0.05 * torch.eye(7, device=device)[0]))
    by_pose = torch.func.vmap(lambda p: function(spheres, world, poses=p))(moved)
    assert torch.equal(by_pose[1], function(spheres, world, poses=moved[1]))
    assert torch.equal(by_pose[0], expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_and_exported(function: Callable[..., Tensor], device: torch.device) -> None:
    world, spheres, _ = operands(device)

    class Module(torch.nn.Module):
        def forward(self, s: Tensor) -> Any:
            return torch.where(function(s, world), 1.0, 0.0)

    expected = Module()(spheres)
    compiled = torch.compile(Module(), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(spheres), expected)
    assert torch.equal(compiled(spheres * 0.9), Module()(spheres * 0.9))
    program = torch.export.export(Module(), (spheres.detach(),))
    assert "warp_collision" in str(program.graph)
    assert torch.equal(program.module()(spheres.detach()), expected)

"""The checking mode finds what is wrong with the values of device tensors before a kernel runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trimesh
import warp as wp

from not_finite import BAD_NUMBERS, BAD_POSES, COSTS, INF, NAN, WAYS, Function, env, some_spheres
from primitives import KINDS, Call
from reference import IDENTITY
from refusals import forbid_launches, refuses
from warp_collision import (
    MeshWorld,
    any_in_collision,
    checking,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_in_collision,
    swept_sphere_cost,
)
from worlds import BOX, CUBE, SCENES, SHIFT, TURN, Held, build

YES_OR_NO: tuple[Function, ...] = (in_collision, any_in_collision, swept_in_collision)


@pytest.fixture
def world(device: torch.device) -> MeshWorld:
    """The world of `SCENES`: envs of two, three and no meshes."""
    return build(*SCENES, device=device)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch, world: MeshWorld) -> MeshWorld:
    """The same world, in which no kernel may run."""
    forbid_launches(monkeypatch)
    return world


@pytest.mark.parametrize("number", BAD_NUMBERS)
@pytest.mark.parametrize("function", [*COSTS, clearance, *YES_OR_NO])
def test_spheres_are_checked(function: Function, number: float, checked: MeshWorld) -> None:
    spheres = some_spheres(checked.device)
    spheres[1, 1, 2, 1] = number
    with checking():
        message = rf"spheres must be finite, got {number} at \(1, 1, 2, 1\)"
        refuses(lambda: function(spheres, checked), ValueError, message)
        refuses(lambda: function(spheres.double(), checked), ValueError, message)


def test_points_are_checked(checked: MeshWorld) -> None:
    points = torch.zeros((2, 5, 3), device=checked.device)
    points[0, 4, 2] = NAN
    with checking():
        message = r"points must be finite, got nan at \(0, 4, 2\)"
        refuses(lambda: signed_distance(points, checked), ValueError, message)


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_the_drop_in_functions_are_checked(kind: str, checked: MeshWorld) -> None:
    device = checked.device
    nan, minus = (torch.full((1,), value, device=device) for value in (NAN, -1.0))
    spheres = some_spheres(device)
    spheres[0, 0, 3, 0] = INF
    rows = checked.mesh_from_world.clone()
    rows[0, 1, 4] = NAN
    zero = checked.mesh_from_world.clone()
    zero[1, 0, 3:7] = 0.0
    mesh = own_mesh(device)
    dead = checked.mesh_ids.clone()
    dead[0, 0] = mesh.id
    del mesh
    count = checked.n_meshes.clone()
    count[1] = 5
    with checking():
        for name, value, message in (
            ("query_spheres", spheres, r"query_spheres must be finite, got inf at \(0, 0, 3, 0\)"),
            ("weight", nan, "weight must be finite, got nan"),
            ("activation_distance", minus, r"activation_distance must .*negative, got -1\.0"),
            ("max_dist", minus, r"max_dist must not be negative, got -1\.0"),
            ("env_query_idx", env(device, 0, 3), r"env_query_idx must be in \[0, 3\), got 3"),
            ("env_query_idx", env(device, -1, 0), r"env_query_idx must be in \[0, 3\), got -1"),
            ("mesh_pose_inverse", rows, "mesh_pose_inverse must be finite, got .*nan"),
            ("mesh_pose_inverse", zero, "mesh_pose_inverse must .*other than 0"),
            ("mesh_idx", dead, f"mesh_idx must hold ids of living .*got {dead[0, 0].item()}"),
            ("n_env_mesh", count, r"n_env_mesh must be in \[0, 4\], got 5"),
            ("n_env_mesh", -count, r"n_env_mesh must be in \[0, 4\], got -"),
        ):
            call = Call(kind, some_spheres(device), checked, {name: value})
            refuses(call, ValueError, message)
            assert all((buffer == 7).all() for buffer in call.buffers)


def own_mesh(device: torch.device) -> wp.Mesh:
    """A Warp mesh that no world knows of."""
    return wp.Mesh(
        wp.array(BOX.vertices, dtype=wp.vec3, device=str(device)),
        wp.array(BOX.faces.ravel(), dtype=wp.int32, device=str(device)),
        support_winding_number=True,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_read_is_not_checked(kind: str, world: MeshWorld) -> None:
    """Living meshes of the caller, id 0, and rubbish in slots that are off or not filled."""
    mesh = own_mesh(world.device)
    ids, rows = world.mesh_ids.clone(), world.mesh_from_world.clone()
    ids[0, 1], ids[1, 0] = mesh.id, 0
    ids[1, 1], ids[1, 3] = 12345, 54321  # off, not filled
    rows[1, 0] = rows[1, 1] = rows[1, 3] = NAN
    call = Call(kind, some_spheres(world.device), world)
    with checking():
        cost = call(mesh_idx=ids, mesh_pose_inverse=rows, env_query_idx=env(world.device, 0, 1))
    assert (cost > 0.0).any(dim=2).any(dim=1).all()


@pytest.mark.parametrize("function", [*COSTS, clearance, *YES_OR_NO, signed_distance])
def test_env_index_is_checked(function: Function, checked: MeshWorld) -> None:
    operand = some_spheres(checked.device)
    operand = operand[..., :3] if function is signed_distance else operand
    with checking():
        for index in (-1, 3):
            message = rf"env_index must be in \[0, 3\), got {index}"
            rows = env(checked.device, 0, index)
            refuses(lambda r=rows: function(operand, checked, env_index=r), ValueError, message)


@pytest.mark.parametrize("name", ["weight", "activation_distance", "tolerance", "dt"])
def test_scalar_tensors_are_checked(name: str, checked: MeshWorld) -> None:
    options: dict[str, Any] = {"dt": 0.1, "speed_metric": True}
    spheres = some_spheres(checked.device)
    with checking():
        for number in (NAN, INF) if name == "weight" else (NAN, INF, -1.0):
            options[name] = torch.tensor(number, device=checked.device)
            rule = "be positive|not be negative" if number == -1.0 else "be finite"
            message = rf"{name} must ({rule}), got {number}"
            refuses(lambda: swept_sphere_cost(spheres, checked, **options), ValueError, message)


@pytest.mark.parametrize("pose", BAD_POSES)
@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
@pytest.mark.parametrize("function", [*COSTS, clearance, signed_distance])
def test_poses_are_checked(
    function: Function, pose: str, way: Callable[..., dict[str, Any]], checked: MeshWorld
) -> None:
    operand = some_spheres(checked.device)
    operand = operand[..., :3] if function is signed_distance else operand
    rule = "quaternion.* other than 0" if pose == "zero quaternion" else "finite"

    def call() -> None:
        function(operand, checked, **way(checked, BAD_POSES[pose]))

    with checking():
        refuses(call, ValueError, rf"(poses|mesh_from_world)\b.* must .*{rule}")


def test_set_pose_is_checked_on_any_device(checked: MeshWorld) -> None:
    pose = torch.tensor(BAD_POSES["nan"], device=checked.device)
    before = checked.mesh_from_world.clone()
    with checking():
        refuses(lambda: checked.set_pose("box", pose), ValueError, "pose must be finite.*nan")
    assert torch.equal(checked.mesh_from_world, before)


def test_good_input_passes(world: MeshWorld) -> None:
    spheres = some_spheres(world.device)
    expected = [function(spheres, world) for function in COSTS]
    with checking():
        for function, cost in zip(COSTS, expected, strict=True):
            found = function(spheres, world, env_index=env(world.device, 0, 0))
            assert torch.equal(found, cost)
        world.add("cube", CUBE, TURN)
        world.set_poses(torch.tensor([SHIFT, TURN, IDENTITY], device=world.device))
        for kind in KINDS:
            cost = Call(kind, spheres, world)()
            assert (cost > 0.0).all()
    scene = [Held("box", BOX, SHIFT), SCENES[0][1]._replace(pose=TURN), Held("cube", CUBE)]
    fresh = build(scene, device=world.device)
    torch.testing.assert_close(sphere_cost(spheres, world), sphere_cost(spheres, fresh))


def test_the_mode_ends_with_its_block(world: MeshWorld) -> None:
    spheres = torch.full((1, 1, 1, 4), NAN, device=world.device)

    def fails() -> bool:
        try:
            return not sphere_cost(spheres, world).isnan().item()
        except ValueError:
            return True

    def interrupted() -> None:
        with checking():
            raise KeyError("anything")

    assert not fails()
    with checking():
        assert fails()
        with checking(False):
            assert not fails()
        assert fails()
    assert not fails()
    with pytest.raises(KeyError):
        interrupted()
    assert not fails()


def test_a_file_with_nan_vertices(world: MeshWorld, tmp_path: Path) -> None:
    path = tmp_path / "broken.off"
    path.write_text("OFF\n3 1 0\n0 0 0\n1 nan 0\n0 1 0\n3 0 1 2\n")
    refuses(lambda: world.add("new", path), ValueError, "mesh 'new'.*finite.*nan")
    made = trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [0, INF, 0]], [[0, 1, 2]], process=False)
    refuses(lambda: world.add("new", made), ValueError, "mesh 'new'.*finite.*inf")

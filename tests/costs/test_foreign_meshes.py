"""Meshes of the caller's own in the drop-in Functions: right, also when an id is used again."""

import gc
import threading
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
import torch
import trimesh
import warp as wp

import compare
import shapes
from cases import mostly_slow
from primitives import KINDS, Call, paths
from reference import sphere_cost
from warp_collision import MeshWorld
from warp_collision.devices import CPU, is_gpu, synchronize_all
from warp_collision.launching.warp_runtime import quiet_warp
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
from warp_collision.world import external_meshes

Tensor = torch.Tensor


def warp_mesh(mesh: trimesh.Trimesh, device: torch.device, **options: Any) -> wp.Mesh:
    """A Warp mesh as a caller makes one, without a tree of winding numbers."""
    with quiet_warp():
        return wp.Mesh(
            wp.array(np.array(mesh.vertices), dtype=wp.vec3, device=str(device)),
            wp.array(np.array(mesh.faces).ravel(), dtype=wp.int32, device=str(device)),
            **options,
        )


class Caller:
    """Tables of one env with meshes that no world knows of."""

    def __init__(self, meshes: list[wp.Mesh], device: torch.device, slots: int = 6):
        self.meshes = meshes
        empty = MeshWorld(max_obstacles=slots, device=device)
        self.ids = torch.zeros((1, slots), dtype=torch.int64, device=device)
        self.ids[0, : len(meshes)] = torch.tensor([mesh.id for mesh in meshes])
        self.tables = {
            "mesh_idx": self.ids,
            "mesh_pose_inverse": empty.mesh_from_world.clone(),
            "mesh_enable": torch.ones((1, slots), dtype=torch.uint8, device=device),
            "n_env_mesh": torch.tensor([len(meshes)], dtype=torch.int32, device=device),
        }
        self._empty = empty

    def cost(self, kind: str, spheres: Tensor, **changes: Any) -> Tensor:
        """A fresh call; the cost by sphere."""
        return Call(kind, spheres, self._empty, {**self.tables, **changes})()


def expected(kind: str, spheres: Tensor, *meshes: trimesh.Trimesh) -> Tensor:
    """What a world of the same meshes at the origin gives."""
    world = MeshWorld(device=spheres.device)
    for index, mesh in enumerate(meshes):
        world.add(str(index), mesh)
    cost = Call(kind, spheres, world)().clone()
    assert (cost > 0.0).any()
    return cost


def around(mesh: trimesh.Trimesh, device: torch.device, seed: int = 70) -> Tensor:
    """Moving spheres in and around a mesh, many of them free."""
    rng = np.random.default_rng(seed)
    low, high = mesh.bounds
    begin = rng.uniform(low - 0.3, high + 0.3, (4, 1, 40, 3))
    steps = rng.normal(scale=0.02, size=(4, 5, 40, 3)).cumsum(axis=1)
    radius = rng.uniform(0.005, 0.05, (4, 5, 40, 1))
    return torch.from_numpy(np.concatenate((begin + steps, radius), axis=-1)).float().to(device)


def lopsided() -> trimesh.Trimesh:
    """A body that differs from its mirror image in the same box."""
    body = trimesh.creation.icosphere(2, 0.25)
    body.vertices[body.vertices[:, 0] > 0.1] *= (1.0, 0.6, 0.7)
    return body


def mirrored(mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    """The mirror image in x, in the same box, with as many points and faces."""
    vertices = np.array(mesh.vertices)
    vertices[:, 0] = mesh.bounds[:, 0].sum() - vertices[:, 0]
    return trimesh.Trimesh(vertices, np.array(mesh.faces)[:, ::-1], process=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("winding", [False, True])
@pytest.mark.parametrize("name", [*shapes.CLOSED, *shapes.OPEN])
def test_as_right_as_a_world(name: str, winding: bool, kind: str, device: torch.device) -> None:
    obstacle = shapes.mesh(name)
    mesh = trimesh.Trimesh(obstacle.vertices, obstacle.faces, process=False)
    spheres = around(mesh, device)
    caller = Caller([warp_mesh(mesh, device, support_winding_number=winding)], device)
    cost = caller.cost(kind, spheres)
    torch.testing.assert_close(cost, expected(kind, spheres, mesh), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("constructor", ["sah", "median", None])
def test_against_the_reference(constructor: str | None, device: torch.device) -> None:
    rng = np.random.default_rng(71)
    scene = [shapes.placed("torus", rng), shapes.placed("box", rng), shapes.placed("box", rng)]
    world = compare.build_world([scene], device)
    spheres = paths(device, (3, 1, 30))
    meshes = [
        warp_mesh(trimesh.Trimesh(o.vertices, o.faces), device, bvh_constructor=constructor)
        for o in scene
    ]
    caller = Caller(meshes, device, slots=world.mesh_ids.shape[1])
    cost = caller.cost("rest", spheres, mesh_pose_inverse=world.mesh_from_world)
    truth = sphere_cost(compare.to_array(spheres), [scene])
    assert (truth > 0.0).mean() > 0.05
    compare.assert_costs(cost, truth)


def test_flawed_meshes_are_repaired(device: torch.device) -> None:
    """Where Warp's default sign errs: inside out, doubled, overlapping."""
    ball = trimesh.creation.icosphere(2, 0.25)
    inverted = trimesh.Trimesh(ball.vertices, ball.faces[:, ::-1], process=False)
    doubled = trimesh.Trimesh(ball.vertices, np.tile(ball.faces, (2, 1)), process=False)
    spheres = around(ball, device)
    truth = expected("rest", spheres, ball)
    for mesh in (inverted, doubled):
        cost = Caller([warp_mesh(mesh, device)], device).cost("rest", spheres)
        torch.testing.assert_close(cost, truth, rtol=1e-5, atol=1e-6)


# -- what changes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["moved", "mirrored", "one point", "part"])
def test_a_refit_mesh_is_noticed(change: str, kind: str, device: torch.device) -> None:
    """Points written and refit: farther off, mirrored in the same box, one point, a body of two."""
    small = trimesh.creation.box((0.04, 0.04, 0.04))
    body = trimesh.util.concatenate([lopsided(), small.apply_translation((0.0, 0.35, 0.0))])
    caller = Caller(
        [warp_mesh(body, device), warp_mesh(trimesh.creation.box((0.1,) * 3), device)], device
    )
    cube = trimesh.creation.box((0.1,) * 3)
    spheres = around(body, device)
    spheres[0, :, :6, :3] = torch.tensor([0.0, 0.35, 0.0], device=device)
    before = caller.cost(kind, spheres).clone()
    torch.testing.assert_close(before, expected(kind, spheres, body, cube), rtol=1e-5, atol=1e-6)
    changed = body.copy()
    if change == "moved":
        changed.apply_translation((0.1, 0.0, 0.05))
    elif change == "mirrored":
        vertices = np.array(body.vertices)
        vertices[:, 0] = body.bounds[:, 0].sum() - vertices[:, 0]
        changed = trimesh.Trimesh(vertices, body.faces, process=False)
    elif change == "one point":
        inner = int(np.argmin(np.linalg.norm(body.vertices - (0.0, 0.0, 0.25), axis=1)))
        changed.vertices[inner] *= 0.2
    else:
        changed.vertices[-8:] += (0.0, -0.7, 0.0)
    mesh = caller.meshes[0]
    mesh.points.assign(np.array(changed.vertices, dtype=np.float32))
    mesh.refit()
    after = caller.cost(kind, spheres)
    assert not torch.equal(after, before)
    torch.testing.assert_close(after, expected(kind, spheres, changed, cube), rtol=1e-5, atol=1e-6)
    again = caller.cost(kind, spheres)
    # A GPU asks the caller's mesh first, and a copy once the host has heard of the change: the same
    # to the rounding of another tree.
    tolerance = 1e-6 if is_gpu(device) else 0.0
    torch.testing.assert_close(again, after, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", mostly_slow(KINDS, ("swept",)))
def test_the_next_mesh_with_the_same_id(kind: str, device: torch.device) -> None:
    """Memory of a mesh that is gone goes to the next one, id included."""
    body = lopsided()
    spheres = around(body, device)
    caller = Caller([warp_mesh(body, device)], device)
    caller.cost(kind, spheres)
    gone = {}  # of ids that were asked for, whether the body was mirrored
    for turn in range(20):
        gone[int(caller.ids[0, 0])] = turn % 2
        caller.meshes.clear()
        gc.collect()
        body = mirrored(body)
        for _ in range(20):
            caller.meshes.append(warp_mesh(body, device))
            if is_reused := gone.get(caller.meshes[-1].id) == turn % 2:
                break
        # As a Warp kernel would write it: torch is not told.
        if device.type == "cpu":
            caller.ids.numpy()[0, 0] = caller.meshes[-1].id
        else:
            caller.ids[0, 0] = caller.meshes[-1].id
        cost = caller.cost(kind, spheres)
        torch.testing.assert_close(cost, expected(kind, spheres, body), rtol=1e-5, atol=1e-6)
        if is_reused:
            return
    pytest.skip("no id was used again")


def test_only_slots_that_are_checked_are_looked_at(device: torch.device) -> None:
    """Ids of meshes that are gone may stand where nothing is checked, and be replaced later."""
    ball, box = trimesh.creation.icosphere(2, 0.25), trimesh.creation.box((0.5, 0.3, 0.2))
    caller = Caller([warp_mesh(ball, device), warp_mesh(box, device)], device)
    spheres = around(ball, device)
    nowhere = 2**40 + 16  # whoever reads there ends the process
    caller.ids[0, 2:] = nowhere
    both = expected("rest", spheres, ball, box)
    torch.testing.assert_close(caller.cost("rest", spheres), both, rtol=1e-5, atol=1e-6)
    kept = caller.ids[0, 1].item()
    mask = caller.tables["mesh_enable"]
    for masked in (0, 1):
        mask[0, 1], caller.ids[0, 1] = masked, kept if masked else nowhere
        truth = both if masked else expected("rest", spheres, ball)
        torch.testing.assert_close(caller.cost("rest", spheres), truth, rtol=1e-5, atol=1e-6)
    caller.ids[0, 1] = 0
    torch.testing.assert_close(
        caller.cost("rest", spheres), expected("rest", spheres, ball), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("kind", mostly_slow(KINDS, ("rest",)))
def test_many_meshes_that_move(kind: str, device: torch.device) -> None:
    """So many that a tree is built; poses written by torch, and behind its back."""
    rng = np.random.default_rng(72)
    ball = trimesh.creation.icosphere(1, 0.1)
    caller = Caller([warp_mesh(ball, device) for _ in range(30)], device, slots=30)
    spheres = around(trimesh.creation.box((1.0, 1.0, 1.0)), device)
    rows = caller.tables["mesh_pose_inverse"]
    for step in range(4):
        places = rng.uniform(-0.6, 0.6, (30, 3)).astype(np.float32)
        if step % 2 or is_gpu(device):
            rows[0, :, :3] = torch.from_numpy(-places)
        else:
            rows.numpy()[0, :, :3] = -places
        caller.tables["n_env_mesh"][0] = 30 - 5 * step
        moved = [ball.copy().apply_translation(p) for p in places[: 30 - 5 * step]]
        cost = caller.cost(kind, spheres)
        torch.testing.assert_close(cost, expected(kind, spheres, *moved), rtol=1e-4, atol=1e-5)


def test_ids_of_a_world_in_tables_of_ones_own(device: torch.device) -> None:
    """They are known already: no copy is made, and the bits are the world's."""
    rng = np.random.default_rng(73)
    world = compare.build_world([[shapes.placed("torus", rng), shapes.placed("box", rng)]], device)
    spheres = paths(device, (3, 6, 8))
    for kind in KINDS:
        truth = Call(kind, spheres, world)().clone()
        ids = world.mesh_ids.clone()
        assert torch.equal(Call(kind, spheres, world)(mesh_idx=ids), truth)


def test_an_open_mesh_among_others_gets_its_grid_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes need none. Of the others the open one is paid for by the first queries."""
    rng = np.random.default_rng(79)
    boxes = [trimesh.creation.box(rng.uniform(0.2, 0.5, 3)) for _ in range(5)]
    bodies = [trimesh.creation.icosphere(2, rng.uniform(0.1, 0.3)) for _ in range(3)]
    oven = shapes.mesh("oven")
    opened = trimesh.Trimesh(oven.vertices * rng.uniform(0.9, 1.1), oven.faces, process=False)
    filled: list[bool] = []
    fill_grid = MeshObstacle.fill_grid

    def count(obstacle: MeshObstacle) -> None:
        filled.append(obstacle.has_jumps)
        fill_grid(obstacle)

    monkeypatch.setattr(MeshObstacle, "fill_grid", count)
    monkeypatch.setattr(external_meshes, "_with_grids", WeakSet())
    caller = Caller([warp_mesh(mesh, CPU) for mesh in (*boxes, *bodies, opened)], CPU, slots=9)
    spheres = around(opened, CPU)  # 800, so that a call counts for the least number
    calls = external_meshes._QUERIES_PER_GRID // external_meshes._LEAST_QUERIES
    found = []
    for count_of_grids in range(1, 6):
        for _ in range(calls):
            found.append(caller.cost(KINDS[0], spheres).clone())
        assert filled == [True, False, False, False][:count_of_grids]
    assert (found[0] > 0.0).any()
    for cost in found[1:]:
        assert torch.equal(cost, found[0])


def test_a_mesh_that_is_none_is_refused(device: torch.device) -> None:
    bad = trimesh.creation.box((0.5, 0.3, 0.2))
    caller = Caller([warp_mesh(bad, device)], device)
    spheres = around(bad, device)
    caller.cost("rest", spheres)
    vertices = np.array(bad.vertices, dtype=np.float32)
    vertices[3, 1] = np.nan
    caller.meshes[0].points.assign(vertices)
    if is_gpu(device):  # where the host hears of it after the call
        caller.cost("rest", spheres)
        synchronize_all(device)
    with pytest.raises(ValueError, match=r"mesh_idx\[0, 0\].*vertices must be finite.*nan"):
        caller.cost("rest", spheres)
    caller.meshes[0].points.assign(np.array(bad.vertices, dtype=np.float32))
    torch.testing.assert_close(
        caller.cost("rest", spheres), expected("rest", spheres, bad), rtol=1e-5, atol=1e-6
    )


def test_threads_that_share_tables(device: torch.device) -> None:
    body = lopsided()
    spheres = around(body, device)
    truth = expected("swept", spheres, body)
    caller = Caller([warp_mesh(body, device)], device)
    found: list[Tensor] = []
    threads = [
        threading.Thread(target=lambda: found.append(caller.cost("swept", spheres)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for cost in found:
        torch.testing.assert_close(cost, truth, rtol=1e-5, atol=1e-6)

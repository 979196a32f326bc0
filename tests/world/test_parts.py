"""The parts that a world is made of, each alone: slots, storage, acceleration."""

import sys
import threading
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
import warp as wp

from warp_collision.launching.edit import Edit
from warp_collision.obstacles.geometry import prepare, read_mesh
from warp_collision.obstacles.mesh_obstacle import MeshObstacle
from warp_collision.world.acceleration import Acceleration
from warp_collision.world.external_meshes import MeshTables, scene_of_tables
from warp_collision.world.obstacle_cache import Entry
from warp_collision.world.scene import Scene
from warp_collision.world.scene_storage import SceneStorage
from warp_collision.world.slots import Slot, Slots

CPU = torch.device("cpu")
POSES = torch.tensor(
    [[0.1, -0.2, 0.3, 0.5, 0.5, -0.5, 0.5], [1.0, 2.0, 3.0, 0.8, 0.0, 0.6, 0.0]],
    dtype=torch.float64,
)


@pytest.fixture
def obstacle(device: torch.device) -> MeshObstacle:
    """A mesh on each device."""
    return MeshObstacle(prepare("box", *read_mesh("box", trimesh.creation.box())), device)


# -- slots ----------------------------------------------------------------------------------------


def slots_with(obstacle: MeshObstacle, *names: str) -> Slots:
    """Two envs, the second with slots of these names."""
    slots = Slots(2)
    edit = Edit()
    slots.fill(edit, 1, 0, [Slot(name, obstacle) for name in names])
    assert slots.envs == [[], []]
    edit.run()
    return slots


def test_slots_are_found_by_name_and_index(obstacle: MeshObstacle) -> None:
    slots = slots_with(obstacle, "a", "b")
    assert (slots.index("b", 1), slots.index(0, 1), len(slots.envs[1])) == (1, 0, 2)
    with pytest.raises(KeyError, match="env 0, which holds no meshes; got 'b'"):
        slots.index("b", 0)
    with pytest.raises(IndexError, match=r"index must be in \[0, 2\) in env 1, got 2"):
        slots.index(2, 1)
    with pytest.raises(IndexError, match=r"env must be in \[0, 2\), got 2"):
        slots.of(2)


def test_a_new_name_gets_the_first_free_slot(obstacle: MeshObstacle) -> None:
    slots = slots_with(obstacle, "a", "b")
    assert slots.index_for("c", 1, 3, replace=False) == 2
    assert slots.index_for("a", 1, 2, replace=True) == 0
    with pytest.raises(ValueError, match="name must be new in env 1, got 'a' again"):
        slots.index_for("a", 1, 3, replace=False)
    with pytest.raises(ValueError, match="env 1 must have a free slot for 'c', all 2 are taken"):
        slots.index_for("c", 1, 2, replace=False)


def test_names_keep_their_slots_through_edits(obstacle: MeshObstacle) -> None:
    """As of a list with the same edits."""
    rng = np.random.default_rng(11)
    slots, expected = slots_with(obstacle, *"abcd"), list("abcd")
    for name in map(str, range(300)):
        edit, index = Edit(), int(rng.integers(0, len(expected) + 1))
        if rng.random() < 0.5 and index < len(expected):
            slots.remove(edit, 1, index)
            del expected[index]
        elif rng.random() < 0.1:
            expected = [f"{name} {i}" for i in range(4)]
            slots.fill_all(edit, 1, [Slot(each, obstacle) for each in expected])
        else:
            new = [f"{name} {i}" for i in range(int(rng.integers(1, 3)))]
            slots.fill(edit, 1, index, [Slot(each, obstacle) for each in new])
            expected[index : index + len(new)] = new
        edit.run()
        assert [slots.index(each, 1) for each in expected] == list(range(len(expected)))
    assert [slot.name for slot in slots.of(1)] == expected
    assert len(slots._by_name[1]) == len(expected)


def test_a_removal_takes_as_many_steps_of_any_number_of_slots(obstacle: MeshObstacle) -> None:
    def instructions(count: int) -> int:
        slots, edit, total = slots_with(obstacle, *map(str, range(count))), Edit(), 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal total
            frame.f_trace_opcodes = True
            total += event == "opcode"
            return trace

        before = sys.gettrace()  # the recorder's of `--gpu-lines`
        sys._getframe().f_trace_opcodes = True  # Python 3.12 asks for it before a trace begins
        sys.settrace(trace)
        try:
            slots.remove(edit, 1, slots.index("7", 1))
            edit.run()
        finally:
            sys.settrace(before)
        assert len(slots.envs[1]) == count - 1
        return total

    assert 0 < instructions(10) == instructions(2000)


def test_only_tracked_poses_make_rows_differentiable(obstacle: MeshObstacle) -> None:
    slots = slots_with(obstacle, "a", "b")
    rows = SceneStorage(2, 3, CPU).tables.mesh_from_world
    slots.track(slots.of(1), POSES, rows[1, :2])
    assert slots.differentiable_rows(rows) is rows
    poses = POSES.clone().requires_grad_()
    slots.track(slots.of(1)[1:], poses[1], rows[1, 1:2])
    tracked = slots.differentiable_rows(rows)
    assert torch.equal(tracked[0], rows[0])
    assert torch.equal(tracked[1, 0], rows[1, 0])
    (gradient,) = torch.autograd.grad(tracked[1, 1].sum(), poses)
    assert gradient[0].abs().max() == 0.0
    assert gradient[1].abs().max() > 0.1


# -- storage --------------------------------------------------------------------------------------


def fill(storage: SceneStorage, env: int, *entries: Entry) -> None:
    """Fills the first slots of an env."""
    edit = Edit()
    storage.fill(edit, env, 0, entries)
    edit.then(storage.tables.n_meshes[env].fill_, len(entries))
    assert not storage.tables.n_meshes.any()
    edit.run()


def entry(
    obstacle: MeshObstacle, row: int = 0, *, enabled: bool = True, padding: float = 0.0
) -> Entry:
    """An obstacle at one of the poses."""
    return Entry("box", obstacle, POSES[row], POSES[row], enabled, padding)


def test_storage_holds_inverse_poses(device: torch.device, obstacle: MeshObstacle) -> None:
    storage = SceneStorage(2, 3, device)
    fill(storage, 1, entry(obstacle), entry(obstacle, 1, enabled=False, padding=0.1))
    tables = storage.tables
    assert storage.mesh_ids.tolist() == [[0, 0, 0], [obstacle.mesh_id, obstacle.mesh_id, 0]]
    assert tables.enabled[1].tolist() == [1, 0, 0]
    for row, pose in zip(tables.mesh_from_world[1, :2].cpu().numpy(), POSES.numpy(), strict=True):
        inverse = wp.transform_inverse(wp.transform(*pose[:3], *pose[4:], pose[3]))
        expected = [*inverse[:3], inverse[6], *inverse[3:6], 0.0]
        assert row == pytest.approx(expected, abs=1e-6)


def test_storage_moves_up_and_grows(device: torch.device, obstacle: MeshObstacle) -> None:
    storage = SceneStorage(1, 3, device)
    off = entry(obstacle, 1, enabled=False, padding=0.2)
    fill(storage, 0, entry(obstacle), off, entry(obstacle, padding=0.3))
    kept = storage.tables.mesh_from_world[0, 1].clone()
    edit = Edit()
    storage.remove(edit, 0, 0, 3)
    edit.run()
    assert storage.tables.enabled.tolist() == [[0, 1, 0]]
    assert torch.equal(storage.tables.mesh_from_world[0, 0], kept)
    larger = storage.enlarged(2, 5).tables
    assert larger.n_meshes.tolist() == [2, 0]
    assert larger.enabled.tolist() == [[0, 1, 0, 0, 0], [0] * 5]
    assert torch.equal(larger.mesh_from_world[0, 0], kept)


# -- acceleration ---------------------------------------------------------------------------------


def test_grids_are_built_at_the_first_query(device: torch.device, obstacle: MeshObstacle) -> None:
    storage = SceneStorage(1, 2, device)
    acceleration = Acceleration(storage.tables, threading.RLock())
    fill(storage, 0, entry(obstacle))
    before = obstacle.record.clone()
    acceleration.add([obstacle])
    acceleration.meshes_changed(1)
    assert torch.equal(obstacle.record, before)
    complete = acceleration.complete(storage.tables)
    assert not torch.equal(obstacle.record, before)
    assert complete.records is storage.records
    assert complete.tree is not None


def test_tensors_of_a_world_find_its_scene(device: torch.device) -> None:
    storage = SceneStorage(1, 2, device)
    acceleration = Acceleration(storage.tables, threading.RLock())
    storage.scene.source = acceleration
    tensors = storage.mesh_ids, *storage.tables[:3]
    found = scene_of_tables(MeshTables(*tensors), 1)
    assert found.source is acceleration
    assert found.tables.records is storage.records
    # A copy of the ids is of no world, and a view of them has the padding of its slots.
    copied = scene_of_tables(MeshTables(storage.mesh_ids.clone(), *tensors[1:]), 1)
    assert copied.source is not acceleration
    assert copied.tables.padding is None
    storage.padding[0, 1] = 0.5
    view = scene_of_tables(MeshTables(*(table[:, 1:] for table in tensors[:3]), tensors[3]), 1)
    assert view.tables.padding.tolist() == [[0.5]]
    # What others write there is looked up.
    storage.mesh_ids[0, 0] = 0
    written = scene_of_tables(MeshTables(*tensors), 1)
    assert written.source is None
    assert written.tables.records is not storage.records


def test_operators_find_living_scenes_alone(device: torch.device) -> None:
    storage = SceneStorage(2, 3, device)
    operands = handle, rows, enabled = storage.scene.operands()
    assert Scene.of(*operands) is storage.scene
    moved = Scene.of(handle, rows.clone(), enabled)
    assert moved.tables.records is storage.records
    assert moved.handle == handle
    # A batching rule repeats the envs.
    storage.records.copy_(torch.arange(6).view(2, 3))
    repeated = Scene.of(handle, rows.repeat(3, 1, 1), enabled.repeat(3, 1)).tables
    assert torch.equal(repeated.records, storage.records.repeat(3, 1))
    assert repeated.n_meshes.shape == (6,)
    del storage
    with pytest.raises(RuntimeError, match="as long as its world lives"):
        Scene.of(*operands)


def test_larger_tables_replace_smaller_ones(device: torch.device) -> None:
    storage = SceneStorage(1, 2, device)
    acceleration = Acceleration(storage.tables, threading.RLock())
    storage.scene.source = acceleration
    larger = storage.enlarged(2, 4)
    edit = Edit()
    acceleration.use(edit, larger.tables)
    assert acceleration.complete(storage.tables).records is storage.records
    edit.run()
    assert acceleration.complete(larger.tables).records is larger.records
    # Who still has the old ones keeps their records, without a tree.
    old = storage.scene.completed()
    assert old.records is storage.records
    assert old.tree is None
    assert larger.scene.source is acceleration
    assert larger.scene.handle != storage.scene.handle

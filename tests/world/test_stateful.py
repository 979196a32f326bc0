"""Random operations on a world, against a plain model of it.

The model of lists and analytic boxes goes through the same operations, and says after each of them
what the world must hold and cost. ``pytest -s -m slow tests/world/test_stateful.py`` prints how
much was done.
"""

import gc
from collections import Counter
from typing import Any, ClassVar
from weakref import ref

import numpy as np
import pytest
import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import compare
import shapes
from reference import Array
from truth_world import FLAWS, SIZES, Entry, Model
from warp_collision import MeshWorld, clearance, sphere_cost, swept_sphere_cost
from worlds import tables

pytestmark = pytest.mark.usefixtures("quick_collections")

CPU = torch.device("cpu")
RADIUS, ETA = 0.04, 0.02

ALL_NAMES = [*"abcdefgh", *(f"mesh {i}" for i in range(12))]
NAMES = st.sampled_from(ALL_NAMES)
ENVS = st.integers(0, 3)
LENGTHS = st.floats(-0.5, 0.5, width=32)
TURNS = st.sampled_from(
    [(1, 0, 0, 0), (0.5, 0.5, 0.5, 0.5), (0.6, 0, 0.8, 0), (-1, 0, 0, 0), (0, 3, 0, 4)]
)
POSES = st.builds(
    lambda x, y, z, turn: np.array([x, y, z, *turn], dtype=np.float64),
    LENGTHS,
    LENGTHS,
    LENGTHS,
    TURNS,
)
ENTRIES = st.builds(
    Entry,
    NAMES,
    st.integers(0, len(SIZES) - 1),
    st.sampled_from(sorted(FLAWS)),
    POSES,
    st.booleans(),
)


def renamed(entries: list[Entry], shift: int) -> list[Entry]:
    """No name twice."""
    for index, entry in enumerate(entries):
        entry.name = ALL_NAMES[(index + shift) % len(ALL_NAMES)]
    return entries


def scenes(least: int, most: int) -> st.SearchStrategy[list[Entry]]:
    """Entries with names of their own."""
    return st.builds(
        renamed, st.lists(ENTRIES, min_size=least, max_size=most), st.integers(0, len(ALL_NAMES))
    )


BAD = st.sampled_from(
    [
        (np.zeros((3, 3)), [[0, 1, 2]]),
        (np.full((3, 3), np.nan), [[0, 1, 2]]),
        (np.eye(3), [[0, 1, 3]]),
        (np.eye(3), [[0, 1]]),
        "no-such-file.stl",
        7,
    ]
)
ERRORS = (ValueError, TypeError, KeyError, IndexError, FileNotFoundError)


class WorldMachine(RuleBasedStateMachine):
    """A world and its model, which refuse the same operations and hold the same meshes."""

    done: ClassVar[Counter[str]] = Counter()

    @initialize(
        n_envs=st.integers(1, 3),
        max_obstacles=st.sampled_from([1, 4, 16, 16]),
        entries=scenes(16, 16),
    )
    def begin(self, n_envs: int, max_obstacles: int, entries: list[Entry]) -> None:
        self.world = MeshWorld(n_envs, max_obstacles, CPU)
        self.model = Model(n_envs, max_obstacles)
        self.rng = np.random.default_rng(142)
        self.steps = 0
        self.held: dict[int, ref[Any]] = {}
        self.pointers = [table.data_ptr() for table in tables(self.world)]
        # From 12 meshes on there is a tree over them.
        for entry in entries[: max_obstacles - max_obstacles // 8]:
            self.add(entry, 0, False)

    def teardown(self) -> None:
        """The meshes of the world are there, and no other that it ever held."""
        if not hasattr(self, "world"):
            return
        self.query(True)
        gc.collect()
        assert len(self.living()) == len(self.model.geometries())
        del self.world
        gc.collect()
        assert not self.living()

    def living(self) -> set[int]:
        """The Warp meshes that are still there, of all that the world has held."""
        return {index for index, mesh in self.held.items() if mesh() is not None}

    def refused(self, env: int) -> bool:
        """Whether there is no such env."""
        return env >= self.model.n_envs

    @rule(entry=ENTRIES, env=ENVS, replace=st.booleans())
    def add(self, entry: Entry, env: int, replace: bool) -> None:
        place = None if self.refused(env) else self.model.find(env, entry.name)
        full = not self.refused(env) and len(self.model.envs[env]) >= self.model.max_obstacles
        arguments = (entry.name, entry.given, entry.pose, env, entry.enabled)
        if self.refused(env):
            with pytest.raises(IndexError):
                self.world.add(*arguments, replace=replace)
        elif (place is not None and not replace) or (place is None and full):
            with pytest.raises(ValueError, match=r"again|taken"):
                self.world.add(*arguments, replace=replace)
        elif place is not None:
            assert self.world.add(*arguments, replace=True) == place
            self.model.envs[env][place] = entry
        else:
            assert self.world.add(*arguments, replace=replace) == len(self.model.envs[env])
            self.model.envs[env].append(entry)

    @rule(name=NAMES, mesh=BAD, env=st.integers(0, 0), replace=st.booleans())
    def add_what_is_no_mesh(self, name: str, mesh: Any, env: int, replace: bool) -> None:
        with pytest.raises(ERRORS):
            self.world.add(name, mesh, env=env, replace=replace)

    @rule(name=NAMES, env=ENVS, by_index=st.booleans())
    def remove(self, name: str, env: int, by_index: bool) -> None:
        place = None if self.refused(env) else self.model.find(env, name)
        if place is None:
            with pytest.raises((KeyError, IndexError)):
                self.world.remove(name, env)
        else:
            self.world.remove(place if by_index else name, env)
            del self.model.envs[env][place]

    @rule(name=NAMES, env=ENVS, on=st.booleans())
    def enable(self, name: str, env: int, on: bool) -> None:
        place = None if self.refused(env) else self.model.find(env, name)
        if place is None:
            with pytest.raises((KeyError, IndexError)):
                self.world.enable(name, on, env)
        else:
            self.world.enable(name, on, env)
            self.model.envs[env][place].enabled = on

    @rule(env=ENVS, bits=st.lists(st.booleans(), min_size=20, max_size=20))
    @precondition(lambda self: any(self.model.envs))
    def set_enabled(self, env: int, bits: list[bool]) -> None:
        env %= self.model.n_envs
        slots = self.model.envs[env]
        self.world.set_enabled(torch.tensor(bits[: len(slots)], dtype=torch.bool), env)
        for entry, on in zip(slots, bits, strict=False):
            entry.enabled = on

    @rule(name=NAMES, env=ENVS, pose=POSES)
    def set_pose(self, name: str, env: int, pose: Array) -> None:
        place = None if self.refused(env) else self.model.find(env, name)
        if place is None:
            with pytest.raises((KeyError, IndexError)):
                self.world.set_pose(name, pose, env)
        else:
            self.world.set_pose(name, pose, env)
            self.model.envs[env][place].pose = pose

    @rule(name=NAMES, pose=st.sampled_from([[0.0] * 7, [np.inf] * 7, [0.0] * 6, None, "x"]))
    def set_no_pose(self, name: str, pose: Any) -> None:
        with pytest.raises(ERRORS):
            self.world.set_pose(name, pose)

    @rule(env=ENVS, poses=st.lists(POSES, min_size=20, max_size=20))
    def set_poses(self, env: int, poses: list[Array]) -> None:
        env %= self.model.n_envs
        slots = self.model.envs[env]
        rows = np.stack(poses)[: len(slots)]
        self.world.set_poses(torch.tensor(rows, dtype=torch.float32), env)
        for entry, pose in zip(slots, rows, strict=True):
            entry.pose = pose

    @rule(more_envs=st.integers(-1, 1), more_meshes=st.integers(-1, 2))
    def grow(self, more_envs: int, more_meshes: int) -> None:
        n_envs, slots = self.model.n_envs + more_envs, self.model.max_obstacles + more_meshes
        if more_envs < 0 or more_meshes < 0:
            with pytest.raises(ValueError, match=r"shrink|at least"):
                self.world.grow(n_envs, slots)
        elif n_envs <= 4 and slots <= 20:
            self.world.grow(n_envs, slots)
            self.pointers = [table.data_ptr() for table in tables(self.world)]
            self.model.envs += [[] for _ in range(more_envs)]
            self.model.n_envs, self.model.max_obstacles = n_envs, slots

    @rule(env=st.none() | ENVS, chance=st.integers(0, 3))
    def clear(self, env: int | None, chance: int) -> None:
        if chance:  # else most worlds would be empty
            return
        if env is not None and self.refused(env):
            with pytest.raises(IndexError):
                self.world.clear(env)
            return
        self.world.clear(env)
        for index in range(self.model.n_envs) if env is None else [env]:
            self.model.envs[index] = []

    @rule(env=ENVS, entries=scenes(0, 4) | scenes(12, 18), bad=BAD)
    def load(self, env: int, entries: list[Entry], bad: Any) -> None:
        env %= self.model.n_envs
        for entry in entries:
            entry.enabled = True
        meshes: dict[str, Any] = {entry.name: (entry.given, entry.pose) for entry in entries}
        if len(entries) > self.model.max_obstacles:
            with pytest.raises(ValueError, match="slot for each mesh"):
                self.world.load(meshes, env)
            return
        if len(entries) < self.model.max_obstacles:
            # One mesh that is none, and nothing has changed.
            with pytest.raises(ERRORS):
                self.world.load({**meshes, "bad": bad}, env)
            self.holds_the_same()
        self.world.load(meshes, env)
        self.model.envs[env] = entries

    def spheres(self) -> Array:
        """Paths (n_envs, 3, 10, 4) of spheres, most of which begin near a mesh."""
        n_envs = self.model.n_envs
        spheres = np.full((n_envs, 3, 10, 4), RADIUS)
        spheres[..., :3] = self.rng.uniform(-0.7, 0.7, (n_envs, 3, 10, 3))
        for env, slots in enumerate(self.model.envs):
            if slots:
                centers = np.stack([entry.pose[:3] for entry in slots])
                begin = centers[self.rng.integers(len(slots), size=8)]
                spheres[env, :, :8, :3] = begin + self.rng.normal(size=(3, 8, 3)) * 0.1
        return shapes.rounded(spheres)

    @rule(swept=st.booleans())
    def query(self, swept: bool) -> None:
        """All envs at once, as the model says."""
        n_envs, spheres = self.model.n_envs, self.spheres()
        envs = torch.arange(n_envs, dtype=torch.int32)
        on_device = compare.to_device(spheres, CPU)
        function, tolerance = sphere_cost, 0.0
        if swept:
            function, tolerance = swept_sphere_cost, ETA / 20 * self.model.max_obstacles
        cost = compare.to_array(function(on_device, self.world, env_index=envs))
        found = clearance(on_device, self.world, env_index=envs)
        for env in range(n_envs):
            expected = self.model.cost(env, spheres[env : env + 1], swept)
            compare.assert_costs(cost[env : env + 1], expected, tolerance=tolerance + 4e-6)
            each = self.model.distances(env, spheres[env, ..., :3].reshape(-1, 3))
            distance = each.min(axis=0, initial=np.inf)
            np.testing.assert_allclose(
                compare.to_array(found.clearance)[env].ravel() + RADIUS, distance, atol=2e-6
            )
            hit = found.obstacle[env].numpy().ravel()
            if np.isfinite(distance).any():
                np.testing.assert_array_less(each[hit, np.arange(len(hit))], distance + 4e-6)
            else:
                assert (hit == -1).all()
            self.done["costs of nothing"] += int((expected == 0.0).sum())
            self.done["costs of a collision"] += int((expected > 0.0).sum())
        self.done["with a tree"] += max(map(len, self.model.envs)) >= 12

    @invariant()
    def is_as_the_model_says(self) -> None:
        """What it holds after each step, and what it costs after every third."""
        if hasattr(self, "world"):
            self.holds_the_same()
            self.done["steps"] += 1
            self.steps += 1
            if self.steps % 3 == 0:
                self.query(False)

    def holds_the_same(self) -> None:
        world, model = self.world, self.model
        assert (world.n_envs, world.max_obstacles) == (model.n_envs, model.max_obstacles)
        assert world.mesh_ids.shape == world.enabled.shape == (model.n_envs, model.max_obstacles)
        assert world.mesh_from_world.shape == (model.n_envs, model.max_obstacles, 8)
        assert world.n_meshes.tolist() == [len(slots) for slots in model.envs]
        for env, slots in enumerate(model.envs):
            assert world.names(env) == [entry.name for entry in slots]
            count = len(slots)
            assert (world.mesh_ids[env, :count] != 0).all()
            assert (world.mesh_ids[env, count:] == 0).all()
            assert world.enabled[env, :count].tolist() == [int(entry.enabled) for entry in slots]
            assert (world.enabled[env, count:] == 0).all()
            if slots:
                poses = np.stack([compare.to_array(world.pose(i, env)) for i in range(count)])
                expected = np.stack([entry.pose for entry in slots])
                np.testing.assert_allclose(poses[:, :3], expected[:, :3], atol=1e-6)
                # Unit quaternions, which with the other sign mean the same.
                alike = np.einsum("nq,nq->n", poses[:, 3:], expected[:, 3:])
                alike = alike / np.linalg.norm(expected[:, 3:], axis=1)
                np.testing.assert_allclose(np.abs(alike), 1.0, atol=1e-6)
        # Equal geometry is stored once.
        assert len(set(world.mesh_ids[world.mesh_ids != 0].tolist())) == len(model.geometries())
        # The tables are the same memory until the world grows.
        assert self.pointers == [table.data_ptr() for table in tables(world)]
        for slots in world._slots.envs:
            self.held |= {id(slot.obstacle.mesh): ref(slot.obstacle.mesh) for slot in slots}


def run_machine(examples: int, steps: int) -> Counter[str]:
    """What was done, after runs of random operations."""
    WorldMachine.done = Counter()
    run_state_machine_as_test(
        WorldMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],  # making a failure shorter can take many minutes
        ),
    )
    return WorldMachine.done


def test_random_operations() -> None:
    # How many there are varies: Hypothesis draws constants of whatever modules are loaded, too.
    done = run_machine(12, 30)
    assert done["steps"] > 300
    assert done["costs of a collision"] > 1000
    assert done["with a tree"] > 10


@pytest.mark.slow
def test_many_random_operations() -> None:
    done = run_machine(250, 60)
    print(f"stateful: {dict(done)}")
    assert done["steps"] > 5_000
    assert done["costs of a collision"] > 20_000
    assert done["with a tree"] > 300

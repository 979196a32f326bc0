"""Warp's own capture on the CPU: recorded once, replayed with what the operands are by then."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
import warp as wp

import compare
import shapes
from primitives import KINDS, Call, paths, scenes
from warp_collision import (
    CollisionCost,
    MeshWorld,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_sphere_cost,
)

Tensor = torch.Tensor
Step = Callable[[], list[Tensor]]

CPU = torch.device("cpu")
MOVED = (0.05, -0.1, 0.02, 0.9, 0.1, -0.3, 0.2)


def record(step: Step) -> tuple[wp.Graph, list[Tensor]]:
    """A graph of a step, and the tensors that it writes."""
    with wp.ScopedCapture(device="cpu") as capture:
        outputs = step()
    return capture.graph, outputs


def many_meshes() -> MeshWorld:
    """Enough meshes for a tree over them."""
    rng = np.random.default_rng(97)
    world = MeshWorld(1, 20, CPU)
    for i in range(20):
        box = shapes.placed("box", rng)
        world.add(f"mesh_{i}", (box.vertices, box.faces), box.pose)
    return world


class Operands:
    """What a graph reads: tensors whose values change between replays."""

    def __init__(self, world: MeshWorld):
        self.world = world
        self.spheres = paths(CPU).requires_grad_(True)
        self.upstream = torch.linspace(-1.0, 2.0, self.spheres[..., 0].numel())
        self.upstream = self.upstream.reshape(self.spheres.shape[:-1])
        self.weight, self.eta = torch.ones(1), torch.full((1,), 0.02)
        self.dt, self.env_index = torch.full((1,), 0.1), torch.zeros(3, dtype=torch.int32)

    def changes(self) -> Iterator[str]:
        """Changes one operand after the other, in place."""
        with torch.no_grad():
            self.spheres.mul_(0.8)
        yield "spheres"
        self.upstream.neg_()
        yield "upstream"
        self.world.set_pose("mesh_0", MOVED)
        yield "pose"
        self.world.mesh_from_world[0, 2, :3] += 0.05
        yield "mesh_from_world"
        self.world.enable("mesh_0", False)
        yield "enable"
        self.world.enabled[0, 1] = 1
        yield "enabled"
        self.weight.fill_(3.0)
        yield "weight"
        self.eta.fill_(0.07)
        yield "activation distance"

    def cost(self) -> list[Tensor]:
        """The cost of resting spheres and its gradient."""
        options = {"weight": self.weight, "activation_distance": self.eta}
        return self._with_gradient(sphere_cost(self.spheres, self.world, **options))

    def swept(self) -> list[Tensor]:
        """That of moving ones, scaled by their speed, in envs by an index."""
        options = {"weight": self.weight, "activation_distance": self.eta, "dt": self.dt}
        options |= {"speed_metric": True, "env_index": self.env_index}
        return self._with_gradient(swept_sphere_cost(self.spheres, self.world, **options))

    def module(self) -> list[Tensor]:
        """The module, with numbers as its buffers."""
        module = CollisionCost(self.world, weight=2.0, reduction="none")
        module.weight, module.activation_distance = self.weight, self.eta
        return self._with_gradient(module(self.spheres))

    def distance(self) -> list[Tensor]:
        """The signed distance of the centers, without a gradient function."""
        found = signed_distance(self.points(), self.world)
        return [*found]

    def points(self) -> Tensor:
        """Points in one row of memory, as `signed_distance` reads them."""
        return self.upstream.reshape(-1)[: 3 * 40].reshape(1, 40, 3)

    def _with_gradient(self, values: Tensor) -> list[Tensor]:
        return [values, *torch.autograd.grad(values, self.spheres, self.upstream)]


STEPS = ("cost", "swept", "module", "distance")
# What makes no difference to a step.
DEAF = {"distance": {"spheres", "weight", "activation distance"}}


@pytest.mark.parametrize("make", [lambda: compare.build_world(scenes(), CPU), many_meshes])
@pytest.mark.parametrize("name", STEPS)
def test_replay_is_what_eager_code_computes(name: str, make: Callable[[], MeshWorld]) -> None:
    operands = Operands(make())
    step = getattr(operands, name)
    step()  # distance grids and the tree are made by a first query, which a capture cannot wait for
    graph, outputs = record(step)
    wp.capture_launch(graph)
    assert all(map(torch.equal, outputs, step()))
    before = [output.clone() for output in outputs]
    for change in operands.changes():
        wp.capture_launch(graph)
        assert all(map(torch.equal, outputs, step())), change
        if change in ("spheres", "upstream", "pose", "weight", "activation distance"):
            same = all(map(torch.equal, outputs, before))
            assert same == (change in DEAF.get(name, ())), change
        before = [output.clone() for output in outputs]


@pytest.mark.parametrize("options", [{}, {"return_loss": True}], ids=["", "return_loss"])
@pytest.mark.parametrize("kind", [*KINDS, "esdf", "speed", "no sweep"])
def test_drop_in_functions(kind: str, options: dict[str, Any]) -> None:
    changes = {
        "esdf": {"compute_esdf": True},
        "speed": {"enable_speed_metric": True},
        "no sweep": {"sweep_steps": 0},
    }.get(kind, {})
    operands = Operands(compare.build_world(scenes(), CPU))
    changes |= {"weight": operands.weight, "activation_distance": operands.eta}
    changes |= {"env_query_idx": operands.env_index}
    function = "rest" if kind in ("rest", "esdf") else "swept"
    call = Call(function, operands.spheres, operands.world, changes | options)

    def step() -> list[Tensor]:
        gradient = torch.autograd.grad(call(), operands.spheres, operands.upstream)
        return [*call.buffers, *gradient]

    step()
    graph, outputs = record(step)
    for change in operands.changes():
        for output in outputs:
            output.fill_(9)
        wp.capture_launch(graph)
        replayed = [output.clone() for output in outputs]
        assert all(map(torch.equal, replayed, step())), change


def test_a_first_call_may_be_recorded() -> None:
    """Before there are grids and a tree; later calls make them, and the results stay the same."""
    for make in (lambda: compare.build_world(scenes(), CPU), many_meshes):
        operands = Operands(make())
        graph, outputs = record(operands.cost)
        for _ in operands.changes():
            expected = operands.cost()
            wp.capture_launch(graph)
            torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-6)


def test_a_graph_keeps_what_it_reads_and_writes() -> None:
    operands = Operands(many_meshes())
    expected = operands.cost()
    graph, outputs = record(operands.cost)
    expected = [value.clone() for value in expected]
    held = [output.data_ptr() for output in outputs]
    del operands, outputs
    # What was free would be given to these.
    others = [torch.full_like(expected[i % 2], 5.0) for i in range(64)]
    wp.capture_launch(graph)
    assert not {other.data_ptr() for other in others} & set(held)
    assert all((other == 5.0).all() for other in others)


def test_a_recording_moves_nothing() -> None:
    """The tree that a graph will fit to new poses is not taken for one that fits them already."""
    operands = Operands(many_meshes())
    operands.cost()
    operands.world.mesh_from_world[..., :3] += 0.3
    record(operands.cost)
    fresh = many_meshes()
    fresh.mesh_from_world[..., :3] += 0.3
    expected = Operands(fresh).cost()
    assert all(map(torch.equal, operands.cost(), expected))
    assert (expected[0] != 0.0).any()


@wp.kernel
def _write(rows: wp.array3d[wp.float32], target: wp.array3d[wp.float32]):
    i, j, k = wp.tid()
    target[i, j, k] = rows[i, j, k]


@pytest.mark.parametrize("change", ["add", "remove"])
def test_a_graph_survives_another_tree(change: str) -> None:
    """Replays see poses as they are, whatever tree eager queries have built since."""
    operands = Operands(many_meshes())
    world = operands.world
    expected = operands.cost()[0].clone()
    assert (expected > 0.0).any()
    graph, outputs = record(operands.cost)
    away = (50.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    if change == "add":
        world.grow(max_meshes=24)
        operands.cost()
        graph, outputs = record(operands.cost)  # tensors of a grown world are new ones
        world.add("far", trimesh.creation.box((0.1, 0.1, 0.1)), away)
    else:
        world.remove("mesh_19")
    operands.cost()  # builds a tree over the meshes as they are now
    for seed in range(3):
        for index in range(len(world.names())):
            moved = shapes.random_pose(np.random.default_rng(seed + 10 * index), 0.4)
            world.mesh_from_world[0, index, :7] = torch.tensor(moved, dtype=torch.float32)
        wp.capture_launch(graph)
        # The tree and its absence add the meshes up in different orders.
        torch.testing.assert_close(outputs, operands.cost(), rtol=1e-4, atol=1e-5)
        assert not torch.equal(outputs[0], expected)


def test_poses_that_graphs_move_are_noticed() -> None:
    """A graph that fits no tree, as there is none yet, and moves meshes behind torch's back."""
    operands = Operands(many_meshes())
    world = operands.world
    written = world.mesh_from_world.clone()
    target = wp.from_torch(world.mesh_from_world)
    with wp.ScopedCapture(device="cpu") as capture:
        wp.launch(_write, written.shape, [wp.from_torch(written), target], device="cpu")
        world.refit()
    operands.cost()  # builds the tree
    for index in range(20):
        moved = shapes.random_pose(np.random.default_rng(index), 0.4)
        written[0, index, :7] = torch.tensor(moved, dtype=torch.float32)
        wp.capture_launch(capture.graph)
        with_tree = operands.cost()[0]
        # A copy of the poses is not the world's, so that every mesh is looked at.
        call = Call("rest", operands.spheres.detach(), world)
        plain = call(mesh_pose_inverse=world.mesh_from_world.clone())
        torch.testing.assert_close(with_tree.detach(), plain, rtol=1e-5, atol=1e-6)


def test_a_graph_outlives_its_tree() -> None:
    """Adding a mesh makes a new tree; the graph goes on with the old one, of the old meshes."""
    operands = Operands(many_meshes())
    operands.cost()
    graph, outputs = record(operands.cost)
    operands.world.remove("mesh_3")
    expected = operands.cost()
    wp.capture_launch(graph)
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-6)


# -- what cannot be recorded ----------------------------------------------------------------------


def tracked_pose(operands: Operands) -> None:
    """The gradient by a pose needs torch."""
    world, pose = operands.world, torch.tensor(MOVED).requires_grad_(True)
    sphere_cost(operands.spheres, world, poses=torch.stack([pose] * len(world.names())))


def differentiable_weight(operands: Operands) -> None:
    """So does that by the weight."""
    sphere_cost(operands.spheres, operands.world, weight=torch.ones(1, requires_grad=True))


def create_graph(operands: Operands) -> None:
    """A gradient that shall be differentiated is torch's."""
    cost = sphere_cost(operands.spheres, operands.world)
    torch.autograd.grad(cost, operands.spheres, operands.upstream, create_graph=True)


def summed(operands: Operands) -> None:
    """The gradient of a sum comes in without memory of its own."""
    sphere_cost(operands.spheres, operands.world).sum().backward()


def summed_swept(operands: Operands) -> None:
    """The same of moving spheres."""
    swept_sphere_cost(operands.spheres, operands.world).sum().backward()


REFUSED: dict[str, tuple[str, Callable[[Operands], Any]]] = {
    "double spheres": (
        "spheres must be float32",
        lambda o: sphere_cost(o.spheres.double(), o.world),
    ),
    "transposed spheres": (
        "spheres must be contiguous",
        lambda o: sphere_cost(o.spheres.transpose(0, 1), o.world),
    ),
    "int64 env index": (
        "env_index must be int32",
        lambda o: sphere_cost(o.spheres, o.world, env_index=o.env_index.long()),
    ),
    "double weight": (
        "weight must be float32",
        lambda o: sphere_cost(o.spheres, o.world, weight=o.weight.double()),
    ),
    "poses": ("poses must be those of the world", tracked_pose),
    "weight with a gradient": ("plain eager code", differentiable_weight),
    "vmap": (
        "plain eager code",
        lambda o: torch.func.vmap(lambda s: sphere_cost(s, o.world))(o.spheres[None]),
    ),
    "create_graph": ("create_graph must be False", create_graph),
    "sum": ("incoming gradient must be contiguous", summed),
    "swept sum": ("incoming gradient must be contiguous", summed_swept),
    "clearance": ("ask for signed_distance of contiguous", lambda o: clearance(o.spheres, o.world)),
    "in_collision": (
        "ask for signed_distance of contiguous",
        lambda o: in_collision(o.spheres, o.world),
    ),
    "reduction": (
        'reduction must be "none"',
        lambda o: CollisionCost(o.world, reduction="sum")(o.spheres),
    ),
    "set_pose": ("a world must not be changed", lambda o: o.world.set_pose(0, MOVED)),
    "set_poses": (
        "a world must not be changed",
        lambda o: o.world.set_poses(torch.tensor([MOVED] * 3)),
    ),
    "enable": ("a world must not be changed", lambda o: o.world.enable(0, False)),
    "set_enabled": (
        "a world must not be changed",
        lambda o: o.world.set_enabled(torch.ones(3, dtype=torch.bool)),
    ),
    "add": (
        "a world must not be changed",
        lambda o: o.world.add("more", trimesh.creation.box()),
    ),
    "load": ("a world must not be changed", lambda o: o.world.load({})),
    "remove": ("a world must not be changed", lambda o: o.world.remove(0)),
    "clear": ("a world must not be changed", lambda o: o.world.clear()),
    "grow": ("a world must not be changed", lambda o: o.world.grow(max_meshes=64)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_torch_would_compute_raises(case: str) -> None:
    rule, call = REFUSED[case]
    operands = Operands(compare.build_world(scenes(), CPU))
    expected = operands.cost()
    with (
        pytest.raises(RuntimeError, match=f"capture on the CPU.*{rule}"),
        wp.ScopedCapture(device="cpu"),
    ):
        call(operands)
    assert not wp.get_device("cpu").is_capturing
    assert all(map(torch.equal, operands.cost(), expected))

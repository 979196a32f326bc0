"""Every public call on a GPU: what it takes, and that graphs, streams and devices may have it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

import budgets
import public_calls
import simulated_cuda
import warp_collision
from problem_sample import PROBLEMS, QUICK
from warp_collision import planning, robot, sphere_cost, validate, warp_primitives
from warp_collision.queries.constants import Constant
from warp_collision.robot.model import base_pose

Tensor = torch.Tensor

NAMES = [*public_calls.CALLS]
# Their shapes depend on values, which the host waits for.
READING = ("joint_path_cost + gradient", "RobotSpheres.interpolate")
# What runs on no device, or is an answer of what does.
WITHOUT_DEVICE = {
    *("Capsule", "Cone", "Cuboid", "Cylinder", "HalfSpace", "Sphere"),
    *("Constraint", "MeshReport", "OpenMeshWarning"),
    *("Clearance", "SignedDistance", "JointPathClearance", "SelfClearance", "GaussNewton"),
    "LinkDistances",
    *("SelfCollisionPairs", "CollisionReport", "Coverage", "Interpolated", "LinkMesh"),
    *("SphereFit", "coverage", "fit_spheres", "checking", "sampling"),
    *("Camera", "CameraWarning"),
    *("DepthCounts", "DepthOptions", "OccupancyMap", "UnitsWarning", "thin"),
    *("MatrixEntry", "SelfCollisionMatrix"),
    *("GuardedStep", "Refusal"),
    *("NearEnd", "PlannedPaths", "PlanningProgress", "TimedPaths"),
    "timed",  # its search is on the host
    "Planner",  # as `optimize_paths`, which makes one
    *("load_motion_limits", "load_trajectory", "save_trajectory"),  # files
}


@cache
def operands_on(device: torch.device) -> public_calls.Operands:
    """What the calls of all tests read, which leave it as it is."""
    return public_calls.Operands(device)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """Each public call."""
    return request.param


def tensors_of(result: Any) -> list[Tensor]:
    """The tensors that a call returns, one or several, without autograd's nodes."""
    results = [result] if isinstance(result, Tensor) else list(result or ())
    return [each.detach() for each in results]


def as_numbers(results: list[Tensor]) -> list[Tensor]:
    """On the host, in float64."""
    return [each.cpu().double() for each in results]


def assert_close(name: str, found: list[Tensor], expected: list[Tensor]) -> None:
    """Equal, but for the order in which threads add up gradients; samples have equal shapes."""
    for one, other in zip(found, expected, strict=True):
        if name.startswith("sampling."):
            assert one.shape == other.shape
            continue
        close = {"rtol": 1e-5, "atol": 1e-6, "equal_nan": True}
        torch.testing.assert_close(one, other, msg=lambda m: f"{name}: {m}", **close)


def test_every_public_name_has_a_call() -> None:
    calls = " ".join(NAMES)
    modules = warp_collision, robot, planning, warp_primitives
    public = {name for module in modules for name in module.__all__}
    assert WITHOUT_DEVICE <= public
    assert [name for name in sorted(public - WITHOUT_DEVICE) if name not in calls] == []


@pytest.mark.parametrize("name", budgets.NAMES)
def test_calls_take_what_they_took(name: str, gpu: torch.device, cuda: Any) -> None:
    kept = budgets.read_kept()
    if gpu.type != simulated_cuda.NAME:
        pytest.skip("counts are those of the simulated GPU")
    if not torch.__version__.startswith(kept["torch"]):
        pytest.skip(f"counts are those of torch {kept['torch']}")
    found = budgets.counted(name, operands_on(gpu), cuda)
    assert found == kept["budgets"].get(name), "python tests/support/budgets.py keeps new figures"


@pytest.mark.parametrize(
    ("until", "names"),
    [
        pytest.param("first", QUICK, marks=pytest.mark.slow),
        pytest.param("first", tuple(PROBLEMS), id="first of seven sets", marks=pytest.mark.slow),
        pytest.param("converged", tuple(PROBLEMS), id="seven sets", marks=pytest.mark.slow),
    ],
)
def test_planning_problems_share_launches(
    until: str, names: tuple[str, ...], gpu: torch.device, cuda: Any
) -> None:
    """Of one kind or of seven, which are not solved in the same rounds."""
    if gpu.type != simulated_cuda.NAME:
        pytest.skip("counts are those of the simulated GPU")
    found = budgets.plan_counted(until, names, gpu, cuda)
    most = budgets.read_kept()[budgets.PLANS][until]
    assert all(found[what] <= most[what] for what in most), found


def test_no_call_waits_that_need_not() -> None:
    waits = {n: budget.waits for n, budget in budgets.read_kept()["budgets"].items()}
    # At the first query for the distance grids of all meshes, and for the tree.
    assert {waits.pop(name) for name in public_calls.FIRST_CALLS} == {2}
    # To read what is on the device. An update of a cloud waits before it writes a buffer that other
    # streams may have read, and each update at its end, where it frees what these have read. The
    # host needs the voxels of a map, and the number of faces of each of its two grids.
    sensing = {name: waits.pop(name) for name in public_calls.SENSING}
    assert [*sensing.values()] == [0, 1, 1, 2, 1 + 2 * 2]
    assert {name: n for name, n in waits.items() if n} == dict.fromkeys(READING, 1)


def test_every_call_in_a_graph(gpu: torch.device, cuda: Any) -> None:
    """Replays give what the call gives, also after edits that replace what it read."""
    operands = public_calls.Operands(gpu)
    captured: dict[str, tuple[Any, list[Tensor], list[Tensor]]] = {}
    kept = []  # what the caller gives is the caller's to keep
    for name in NAMES:
        call = public_calls.CALLS[name](operands)
        kept.append(call)
        for _ in range(2):
            call()
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        if name in READING:
            with pytest.raises(RuntimeError, match="captur"), cuda.graph(graph):
                call()
            continue
        with cuda.graph(graph):
            results = tensors_of(call())
        captured[name] = graph, results, as_numbers(tensors_of(call()))
    for name, (graph, results, expected) in captured.items():
        graph.replay()
        assert_close(name, as_numbers(results), expected)
    for edited in (operands.robot, operands.plain_robot):
        edited.attach("can", "panda_hand", [[0.0, 0.0, 0.2, 0.04]])
    gc.collect()
    rubbish = [torch.full((1 << 12,), 7.0, device=gpu) for _ in range(64)]
    for name, (graph, results, expected) in captured.items():
        graph.replay()
        assert_close(name, as_numbers(results), expected)
    del rubbish


@pytest.mark.parametrize(
    "name",
    [
        *("sphere_cost", "RobotSpheres.spheres", "RobotSpheres.spheres, one robot for all envs"),
        *("configuration_in_collision", "joint_path_in_collision, world_clearance"),
        *("joint_path_clearance", "link_distances"),
    ],
)
def test_calls_compile_in_one_piece(name: str, gpu: torch.device) -> None:
    """Whether a graph is captured is not asked while the compiler traces."""
    call = public_calls.CALLS[name](operands_on(gpu))
    torch.compiler.reset()
    compiled = torch.compile(call, backend="eager", fullgraph=True)
    assert_close(name, as_numbers(tensors_of(compiled())), as_numbers(tensors_of(call())))


@pytest.fixture
def streams(cuda: Any) -> Iterator[tuple[Any, Any]]:
    """Two streams that wait for what was there before, and for nothing else."""
    cuda.synchronize()
    yield cuda.Stream(), cuda.Stream()
    cuda.synchronize()


def test_every_call_on_two_streams(
    name: str, streams: tuple[Any, Any], gpu: torch.device, cuda: Any
) -> None:
    """Both are launched before either runs."""
    operands = operands_on(gpu)
    call = public_calls.CALLS[name](operands)
    expected = as_numbers(tensors_of(call()))
    cuda.synchronize()
    found = []
    for stream in streams:
        with cuda.stream(stream):
            found.append(tensors_of(call()))
    cuda.synchronize()
    for each in found:
        assert_close(name, as_numbers(each), expected)


def test_first_calls_on_two_streams(
    streams: tuple[Any, Any], gpu: torch.device, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first one makes and keeps is there for the second one, before either has run."""
    operands = public_calls.Operands(gpu)
    monkeypatch.setattr(validate, "_scalars", {})
    monkeypatch.setattr(base_pose, "_kept", {})
    for constant in filter(lambda thing: type(thing) is Constant, gc.get_objects()):
        monkeypatch.setattr(constant, "_made", type(constant._made)())
    for name in NAMES:
        call, found = public_calls.CALLS[name](operands), []
        cuda.synchronize()
        for stream in streams:
            with cuda.stream(stream):
                found.append(tensors_of(call()))
        cuda.synchronize()
        expected = as_numbers(tensors_of(call()))
        for each in found:
            assert_close(name, as_numbers(each), expected)


def test_every_call_on_a_device_that_is_not_the_current_one(
    name: str, gpu: torch.device, cuda: Any
) -> None:
    """It stays the other one, which launches do not see to by themselves."""
    if cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    expected = public_calls.CALLS[name](operands_on(gpu))()
    other = torch.device(gpu.type, 1)
    found = tensors_of(public_calls.CALLS[name](operands_on(other))())
    assert cuda.current_device() == 0
    assert all(each.device == other for each in found)
    assert_close(name, as_numbers(found), as_numbers(tensors_of(expected)))


def test_a_guard_of_numbers_steps_as_one_of_tensors(gpu: torch.device) -> None:
    operands = operands_on(gpu)
    guards = [
        planning.MotionGuard(operands.robot, operands.world, 1e-3, acceleration=10.0)
        for _ in range(2)
    ]
    joints = operands.joints[0, 0].double()
    rest, command = torch.zeros_like(joints), torch.full_like(joints, 0.3)
    numbers, state = [joints.tolist(), rest.tolist()], [joints, rest]
    for _ in range(3):
        listed = guards[0].step(*numbers, command.tolist())
        passed = guards[1].step(*state, command)
        numbers, state = [listed.joints, listed.velocities], [passed.joints, passed.velocities]
        assert numbers == [part.tolist() for part in state]
        assert listed.share == passed.share.item()
    assert numbers[0] != joints.tolist()


def test_few_threads_are_spread_over_the_chip(gpu: torch.device, cuda: Any) -> None:
    """Threads for configurations run in blocks of a warp, and few others in small blocks."""
    if gpu.type != simulated_cuda.NAME:
        pytest.skip("sizes of blocks are those that the simulated GPU saw")
    operands = operands_on(gpu)
    before = cuda.counts()
    for call in ("joint_path_in_collision", "configuration_in_collision", "RobotSpheres.spheres"):
        public_calls.CALLS[call](operands)()
    for n_spheres in (1920, 10_000, 40_000):
        sphere_cost(torch.ones(1, 1, n_spheres, 4, device=gpu), operands.world)
    cuda.synchronize()
    seen = {name for name, count in cuda.counts().items() if count > before.get(name, 0)}
    for kernel in ("joint_path_hit", "configuration_hit", "place_points"):
        assert f"block of 32: {kernel}" in seen
    assert {f"block of {threads}: sphere_cost" for threads in (32, 64, 256)} <= seen

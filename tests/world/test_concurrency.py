"""Several Python threads ask one world, and change it.

``pytest -s -m slow tests/world/test_concurrency.py`` prints what was counted.
"""

import ast
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache, partial

import pytest
import torch
import trimesh

import concurrent_changes
from concurrent_changes import CHANGES, HARMLESS, N_THREADS, Outcome, crowd, everything, paths
from warp_collision import MeshWorld
from warp_collision.launching import warp_runtime

pytestmark = pytest.mark.usefixtures("two_threads")


def in_threads(work: Callable[[int], None]) -> None:
    """Runs the same work in all threads, begun together; the first exception is raised."""
    start = threading.Barrier(N_THREADS)
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            start.wait()
            work(index)
        except BaseException as error:  # to be raised where pytest sees it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def assert_threads_agree(count: int, worlds: int, device: torch.device) -> None:
    """All threads ask new worlds at once, and find what one thread alone does."""
    seeds = [seed % 4 for seed in range(N_THREADS)]
    alone = crowd(count, device)
    expected = {seed: everything(alone, paths(seed, device)) for seed in set(seeds)}
    assert all((values[0] > 0.0).any() for values in expected.values())
    for _ in range(worlds):
        world = crowd(count, device)
        found: list[list[list[torch.Tensor]]] = [[] for _ in range(N_THREADS)]

        def ask(index: int, world: MeshWorld, found: list[list[list[torch.Tensor]]]) -> None:
            spheres = paths(seeds[index], device)
            found[index] += [everything(world, spheres) for _ in range(3)]

        in_threads(partial(ask, world=world, found=found))
        for index, rounds in enumerate(found):
            for values in rounds:
                for actual, truth in zip(values, expected[seeds[index]], strict=True):
                    assert torch.equal(actual, truth)


@pytest.mark.parametrize("count", [5, 20])
def test_threads_agree(count: int, device: torch.device) -> None:
    """To the last bit, from the first query on, which builds what later ones use."""
    assert_threads_agree(count, 2, device)


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 20])
def test_threads_agree_in_many_worlds(count: int, device: torch.device) -> None:
    assert_threads_agree(count, 100, device)
    print(f"threads: {N_THREADS} ask 100 new worlds of {count} meshes, all bits equal")


def test_threads_with_worlds_of_their_own(device: torch.device) -> None:
    """Each builds, changes and asks its own; nothing of one shows in another."""
    spheres = paths(9, device, 2)
    expected = {count: everything(crowd(count, device, 2), spheres) for count in (3, 13)}

    def work(index: int) -> None:
        for turn in range(2):
            count = (3, 13)[(index + turn) % 2]
            world = crowd(count, device, 2)
            world.add("more", trimesh.creation.box((0.4, 0.4, 0.4)))
            world.remove("more")
            for actual, truth in zip(everything(world, spheres), expected[count], strict=True):
                assert torch.equal(actual, truth)

    in_threads(work)


def test_python_parses_nothing_when_a_world_is_built(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parser fails now and then in threads of Python 3.11; NumPy asks it for dtypes."""
    spheres = paths(9, device, 2)
    expected = everything(crowd(13, device, 2), spheres)

    def parse(*args: object) -> None:
        raise AssertionError("Python parses")

    monkeypatch.setattr(ast, "literal_eval", parse)
    for actual, truth in zip(everything(crowd(13, device, 2), spheres), expected, strict=True):
        assert torch.equal(actual, truth)


def test_threads_leave_the_log_level(device: torch.device) -> None:
    """Blocks that keep Warp quiet overlap, and the level is that of before all of them."""
    before = warp_runtime.log_level()
    outer, inner = warp_runtime.quiet_warp(), warp_runtime.quiet_warp()
    with outer:
        inner.__enter__()
    assert warp_runtime.log_level() >= before
    inner.__exit__(None, None, None)
    assert warp_runtime.log_level() == before


# -- changes --------------------------------------------------------------------------------------

# Threads that change poses with a gradient let few queries end.
CASES = [
    *((change, 5) for change in CHANGES if change != "track"),
    ("remove and add", 20),
]
FEW, MANY = 4, 60
MORE = [*CASES, ("track", 5), *((change, 20) for change in ("move", "grow", "replace", "load"))]
# The order of sums is not told with a tree over the meshes, nor with gradients by poses: rounding
# of gradients that are as large as 60, the speed being a factor of theirs.
ROUNDING = 2e-5


@cache
def outcomes(device: torch.device, least: int) -> dict[tuple[str, int], Outcome]:
    """What came of each case, in a process of its own: reading a freed mesh is no exception.

    A case that crashes has no outcome, nor have those after it.
    """
    cases = CASES if least == FEW else MORE
    done = subprocess.run(
        [
            sys.executable,
            concurrent_changes.__file__,
            str(device),
            str(least),
            repr(cases),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )
    print(done.stderr)
    lines = [ast.literal_eval(line) for line in done.stdout.splitlines() if line.startswith("(")]
    found = dict(zip(lines[::2], map(Outcome._make, lines[1::2]), strict=False))
    assert found, done.stderr
    return found


def assert_right(change: str, count: int, least: int, device: torch.device) -> Outcome:
    found = outcomes(device, least)
    assert (change, count) in found, f"crashed after {list(found)[-1]}"
    outcome = found[change, count]
    assert outcome.errors == []
    assert outcome.changes >= least
    assert outcome.rounds >= least
    assert outcome.error <= (0.0 if count == 5 and change != "track" else ROUNDING)
    return outcome


@pytest.mark.parametrize(("change", "count"), CASES)
def test_queries_while_other_threads_change_the_world(
    change: str, count: int, device: torch.device
) -> None:
    """No crash, no NaN, and what is not changed costs what it did: to the last bit."""
    assert_right(change, count, FEW, device)


@pytest.mark.slow
@pytest.mark.parametrize(("change", "count"), MORE)
def test_queries_while_other_threads_change_much(
    change: str, count: int, device: torch.device
) -> None:
    outcome = assert_right(change, count, MANY, device)
    what = "all envs" if change in HARMLESS else "the env that is not changed"
    print(
        f"threads: {change}, {count} meshes, {outcome.changes} changes, {outcome.rounds} rounds of "
        f"queries by {N_THREADS} threads, {what} off by {outcome.error:.1e}"
    )

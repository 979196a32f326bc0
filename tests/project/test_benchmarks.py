"""The benchmarks: workloads build, and every contender is right. No time is looked at."""

import argparse
import importlib
import json
import operator
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp
from benchmarks import (
    baseline,
    costs,
    downloads,
    exact_shapes,
    first_call,
    gpu,
    harness,
    pool,
    truth,
)
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.curves import CURVES
from benchmarks.harness import RESULTS
from benchmarks.scenes import WORKLOADS, build

import reference
from warp_collision import sphere_cost

slow = pytest.mark.slow
SMALL = 0.002  # of the spheres of a workload
# The large ones build the same way, and take seconds.
BUILT = [name for name in WORKLOADS if not name.endswith(("10000", "80000"))]
CHECKED = ("near-torus-200", "near-kitchen", "deep-link", "scene-10", "envs", "panda-1", "tiny")
CHECKED += ("panda-swept-1", "tori-5")
FEW = ("--rounds", "1", "--seconds", "0.01")


@slow
@pytest.mark.parametrize("name", BUILT)
def test_workload_builds(name: str) -> None:
    problem = build(name, scale=SMALL)
    assert problem.spheres.dtype == torch.float32
    assert problem.spheres.is_contiguous()
    assert problem.spheres.ndim == 4
    assert (problem.spheres[..., 3] > 0.0).all()
    counts = [len(scene) for scene in problem.content.scenes]
    assert problem.world.n_meshes.tolist() == counts
    assert min(counts) > 0


@slow
def test_workload_is_the_same_every_time() -> None:
    first, second = (build("envs", scale=0.02) for _ in range(2))
    assert torch.equal(first.spheres, second.spheres)
    assert torch.equal(first.world.mesh_from_world, second.world.mesh_from_world)


@slow
@pytest.mark.parametrize("name", ["deep-link", "gaps-5"])
def test_spheres_are_inside_or_free(name: str) -> None:
    content = build(name, scale=SMALL).content
    spheres = content.spheres.reshape(-1, 4).astype(np.float64)
    for sphere in spheres:
        near = truth.obstacles_near(content.scenes[0], sphere[None])
        found = reference.scene_signed_distance(sphere[None, :3], near).distance
        assert (found < 0.0 if name == "deep-link" else found > sphere[3] + 0.02).all()


def options_of(device: torch.device, scale: float) -> argparse.Namespace:
    return argparse.Namespace(device=device, scale=scale, seconds=0.01)


@slow
@pytest.mark.parametrize("name", CHECKED)
def test_contenders_agree_with_the_reference(name: str, device: torch.device) -> None:
    """Or it raises; the baseline is exact too, by another kernel."""
    found = costs.contenders(name, options_of(device, 0.01))
    assert ("baseline" in found) != ("swept" in name)
    assert ("short search" in found) == name.startswith(("near", "tori"))
    cost, gradient = found["library"].run()
    assert (cost > 0.0).any()
    if "baseline" in found:
        other, slopes = found["baseline"].run()
        torch.testing.assert_close(cost[: len(other)], other, rtol=1e-5, atol=2e-6)
        off = ((gradient[: len(other)] - slopes).abs().amax(dim=-1) > 1e-2).float().mean()
        assert off < 0.02  # at kinks either side is right


@slow
def test_short_search_reads_deep_as_free() -> None:
    problem = build("middle-ball-20480", scale=0.005)
    found = baseline.sphere_cost(problem.spheres, problem.world, limit=0.06)
    assert (found == 0.0).all()
    assert (baseline.sphere_cost(problem.spheres, problem.world) > 0.29).all()


def test_wrong_results_do_not_count() -> None:
    problem = build("deep-link", scale=SMALL)
    cost, gradient = costs.library(problem).run()
    truth.check(problem.content, cost, gradient)
    with pytest.raises(harness.WrongResultError, match="cost is off"):
        truth.check(problem.content, cost + 1e-4, gradient)
    with pytest.raises(harness.WrongResultError, match="gradients"):
        truth.check(problem.content, cost, -gradient)


@slow
def test_wrong_sweeps_do_not_count() -> None:
    problem = build("panda-swept-1")
    cost, gradient = costs.library(problem).run()
    truth.check(problem.content, cost, gradient, swept=True)
    resting = sphere_cost(problem.spheres, problem.world, activation_distance=0.02)
    with pytest.raises(harness.WrongResultError, match="cost is off"):
        truth.check(problem.content, resting * 0.5, swept=True)


def test_contenders_run_in_turns_and_are_counted_by_their_own_time() -> None:
    order: list[str] = []
    calls = {
        name: harness.Call(lambda name=name: order.append(name), items, threads)
        for name, items, threads in (("one", 1, 1), ("ten", 10, 1), ("all", 1, 2))
    }
    times = harness.interleave(calls, 1)
    assert order[-3:] == ["one", "ten", "all"]
    assert times.counted["all"] is times.clock["all"]
    assert times.counted["one"] is not times.clock["one"]
    assert times.ratio("one", over="all") == times.clock["one"][0] / times.clock["all"][0]
    assert len(harness.interleave(calls, 9, seconds=0.0).counted["one"]) == 3


def test_ratios_are_medians_of_those_within_rounds() -> None:
    taken = {"a": np.array([4.0, 40.0, 8.0]), "b": np.array([1.0, 10.0, 4.0])}
    assert harness.Times(taken, taken).ratio("a", over="b") == 4.0


def test_slow_contenders_get_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(count: int) -> harness.Call:
        return harness.Call(lambda: None, count)

    monkeypatch.setattr(harness, "seconds_of", lambda call, _: np.array((0.1 * call.items, 0.0)))
    assert harness.within(make, 100, 1.0, harness.CPU).items == 5
    assert harness.within(make, 4, 100.0, harness.CPU).items == 4


@pytest.mark.parametrize("names", [["tiny"], pytest.param(["near-torus-200", "tiny"], marks=slow)])
def test_costs_are_written(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--only", *names, "--scale", "0.01", *FEW]
    assert main([*few, "--write", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    text = (tmp_path / "costs-cpu.md").read_text()
    assert text in printed
    rows = [line.split("|")[1].strip() for line in text.splitlines()[4:]]
    assert rows == names
    assert (tmp_path / "costs-cpu.png").read_bytes().startswith(b"\x89PNG")


def test_commands_are_listed_and_unknown_ones_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in BENCHMARKS)
    assert main(["nonsense"]) == 2
    assert main(["--list"]) == 0
    assert set(WORKLOADS) == set(capsys.readouterr().out.split())
    assert main(["--only", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_a_command_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    assert "--write" in capsys.readouterr().out


def test_what_fails_is_told_and_the_rest_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong() -> dict[str, harness.Call]:
        raise harness.WrongResultError("a cost is off by 1")

    calls = {"library": harness.Call(lambda: None, 2), "other": harness.Call(lambda: None)}
    asked = [
        harness.Workload("right", "sphere", lambda: calls),
        harness.Workload("wrong", "sphere", wrong),
    ]
    known = {"only": [""], "list": False, "rounds": 1, "seconds": 0.0, "device": harness.CPU}
    with pytest.raises(harness.Failed) as failed:
        harness.measure(asked, argparse.Namespace(**known, write=None))
    text = str(failed.value)
    assert "| right | sphere | 2 | " in text
    assert "- wrong: WrongResultError: a cost is off by 1" in text
    assert failed.value.status == 1


def test_results_so_far_can_be_read_when_a_run_is_cut_off(tmp_path: Path) -> None:
    kept = tmp_path / "costs-cpu.partial.md"
    seen = []

    def second() -> dict[str, harness.Call]:
        seen.append(kept.read_text())
        if len(seen) == 1:
            raise KeyboardInterrupt
        return {"library": harness.Call(lambda: None)}

    works = [
        harness.Workload("first", "sphere", lambda: {"library": harness.Call(lambda: None)}),
        harness.Workload("second", "sphere", second),
    ]
    options = argparse.Namespace(device=harness.CPU, rounds=1, seconds=0.01, only=[""], list=False)
    options.write = tmp_path / "costs-cpu"
    with pytest.raises(KeyboardInterrupt):
        harness.measure(works, options)
    assert "| first | sphere | 1 |" in kept.read_text()
    assert "| second |" in harness.measure(works, options)
    assert "| first | sphere | 1 |" in seen[1]
    assert not kept.exists()


def test_gpu_run_needs_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"cuDeviceGetCount": 0, "cuDriverGetVersion": 12040}
    monkeypatch.setattr(gpu, "asked_of_driver", known.get)
    assert main(["gpu", "--write", str(tmp_path / "results")]) == 2
    assert "needs a CUDA device" in capsys.readouterr().err
    known["cuDeviceGetCount"] = 1
    assert main(["gpu", "--write", str(tmp_path / "results")]) == 2
    assert "driver R580 or newer" in (said := capsys.readouterr().err)
    assert said.endswith("got one for CUDA 12.4\n")
    assert not [*(tmp_path / "results").iterdir()]


def test_the_driver_that_warp_needs_is_known() -> None:
    """The wheel says what it is built with; `make cuda-device` asks before it is installed."""
    pinned = re.findall(r"^warp-lang==(.*)", (harness.ROOT / "constraints.txt").read_text(), re.M)
    if pinned != [wp.__version__]:
        pytest.skip("another version of Warp than the one that is pinned")
    toolkit = wp.get_cuda_toolkit_version()
    assert toolkit is not None
    assert 1000 * toolkit[0] == gpu.CUDA_OF_WARP


def test_a_device_is_looked_for_before_anything_is_installed() -> None:
    """`make bench-gpu` asks a program that needs no package, and installs after it."""
    command = [sys.executable, "-S", "-E", str(harness.ROOT / "benchmarks" / "gpu.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    reason = gpu.reason_against()
    assert done.returncode == (1 if reason else 0), done.stderr
    assert (reason or "") in done.stderr
    text = (harness.ROOT / "Makefile").read_text()
    (needed,) = re.findall(r"^bench-gpu: \|? ?(.*?) ##", text, re.MULTILINE)
    assert needed.split()[0] == "cuda-device"


@pytest.mark.parametrize("failing", ["pytest", "costs", None])
def test_gpu_run_keeps_going_and_tells_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str | None
) -> None:
    commands = []

    def run(command: list[str], log: Path, _: float) -> int:
        commands.append(command[2:])
        log.write_text("done")
        return int(failing in command)

    monkeypatch.setattr(gpu, "reason_against", lambda: None)
    monkeypatch.setattr(gpu, "run_logged", run)
    assert main(["gpu", "--write", str(tmp_path)]) == (failing is not None)
    started = [command[0] for command in commands]
    assert started == [command[0] for _, command in gpu.STAGES.values()]
    assert commands[-1][-4:] == ["--device", "cuda", "--write", str(tmp_path / "costs")]
    assert sum(share for share, _ in gpu.STAGES.values()) == pytest.approx(1.0)
    written = {f"{stage}.txt" for stage in gpu.STAGES} | ({"gpu.md"} if failing is None else set())
    assert {file.name for file in tmp_path.iterdir()} == written
    commands.clear()
    main(["gpu", "--write", str(tmp_path), "--stages", "costs"])
    assert [command[:2] for command in commands] == [["benchmarks", "costs"]]


def test_gpu_runs_the_tests_that_have_a_device() -> None:
    def item(device: str | None, reason: str = "", folder: str = "cli") -> Any:
        marks = [SimpleNamespace(kwargs={"reason": reason})] if reason else []
        path = Path("tests", folder, "test_it.py")
        known: dict[str, Any] = {"iter_markers": lambda name: marks, "path": path}
        if device:
            known["callspec"] = SimpleNamespace(params={"device": device})
        return SimpleNamespace(**known)

    on_cuda, needs_one = item("cuda"), item(None, "needs a CUDA GPU")
    first = item("cuda", folder="launching")
    others = [item(None), item("cpu"), item(None, "needs pin")]
    items, left_out = [others[0], on_cuda, others[1], needs_one, first, others[2]], []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    gpu.pytest_collection_modifyitems(SimpleNamespace(hook=hook), items)
    assert items == [first, on_cuda, needs_one]
    assert left_out == others


def test_output_of_a_command_is_shown_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", "import sys; print('hello'); sys.exit(3)"]
    assert gpu.run_logged(command, tmp_path / "log.txt") == 3
    assert (tmp_path / "log.txt").read_text() == "hello\n"
    assert "hello" in capsys.readouterr().out


@slow
def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    code = "import time; print('begun', flush=True); time.sleep(600)"
    assert gpu.run_logged([sys.executable, "-c", code], tmp_path / "log.txt", limit=3.0) != 0
    assert (tmp_path / "log.txt").read_text() in ("begun\n", "")  # on a slow machine nothing yet


def test_processes_that_cannot_begin_are_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    """Instead of other ones without end: a library is missing, say."""
    asked = [("shelf", number) for number in range(5)]
    numbers = partial(pool.in_any_order, operator.itemgetter(1), asked=asked, jobs=2)
    assert sorted(numbers(begin=print)) == [*range(5)]
    with pytest.raises(harness.Failed, match="could not begin"):
        [*numbers(begin=partial(importlib.import_module, "nothing"))]
    assert "No module named 'nothing'" in capfd.readouterr().err


def test_downloads_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is there is taken; without what pip has to bring there is none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = tmp_path / "warp-collision" / "known"
    known.mkdir(parents=True)
    given: Any = ({"nothing==1": "0" * 64}, "--no-index", lambda files, folder: None)
    assert downloads.downloaded("known", *given) == known
    with pytest.raises(harness.Failed, match="could not download nothing==1"):
        downloads.downloaded("unknown", *given)
    assert [path.name for path in known.parent.iterdir()] == ["known"]


def test_first_calls_are_of_new_processes(tmp_path: Path) -> None:
    """With a cache of their own; those that fail are told."""
    folder = str(tmp_path)
    call = f"import os; assert os.environ['WARP_CACHE_PATH'] == {folder!r}; sum(range(10**7))"
    assert 0.0 < first_call.first_call("", call, folder) < 10.0
    with pytest.raises(harness.Failed, match="ZeroDivisionError"):
        first_call.first_call("", "1 / 0", folder)


@slow
def test_starts_of_commands_are_measured() -> None:
    text = first_call.starts(1)
    for command in ("check", "plan", "label"):
        assert f"| `warp-collision {command}` |" in text


@slow
def test_users_questions_have_the_same_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Or it would fail; here with a sixteenth of the paths."""
    assert main(["users", "--scale", "0.06", "--only", "5 obstacles", *FEW]) == 0
    text = capsys.readouterr().out
    for question in ("yes or no", "cost and gradient", "swept cost and gradient"):
        assert f"| 5 obstacles, {question} | configuration | 64 |" in text
    assert "drop-in" in text


@slow
def test_a_curve_for_each_thing_that_grows(tmp_path: Path) -> None:
    assert main(["curves", "--scale", "0.3", *FEW, "--write", str(tmp_path)]) == 0
    text = (tmp_path / "curves-cpu.md").read_text()
    for name in CURVES:
        assert f"| {name} " in text
    assert (tmp_path / "curves-cpu.png").stat().st_size > 10_000


@slow
def test_lanes_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lanes", "--scale", "0.02", "--only", "plates, many", *FEW]) == 0
    assert "without lanes" in capsys.readouterr().out


@slow
def test_shapes_beside_spheres(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shape-times", "--scale", "0.2", "--robots", "iiwa", *FEW]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| iiwa")]
    assert len(lines) == 14
    assert all("exact" in line for line in lines)


def test_single_calls_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    """With what their kernels take of that, which is less; the affinity is as before."""
    allowed = os.sched_getaffinity(0)
    assert main(["calls", "--calls", "50", "--only", "RobotChecker", "sphere_cost"]) == 0
    assert os.sched_getaffinity(0) == allowed
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    assert len(lines) == 4
    for line in lines:
        median, *slower, kernels = (float(cell) for cell in line.split("|")[2:-1])
        assert 0.0 < kernels < median <= min(slower)
    assert main(["calls", "--core", "123456"]) == 2


@slow
def test_guards_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    """Parts of a few short episodes: no contact, and goals on free lines are reached."""
    few = ["--robots", "panda", "--episodes", "8", "--seconds", "0.2", "--steps", "500"]
    parts = ["contact", "moving", "goals", "loop", "envs", "memory"]
    assert main(["guard", "--parts", *parts, *few]) == 0
    out = capsys.readouterr().out
    (goals,) = re.findall(r"\| panda \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", out, re.MULTILINE)
    assert int(goals[0]) > 0
    assert (goals[0], goals[2]) == (goals[1], goals[3])
    guarded = re.findall(r"\| MotionGuard[^|]*\| 8 \| (\d+) \| (\d+) \|", out)
    assert guarded == [("0", "0"), ("0", "0")]


def test_kept_episodes_of_guards_make_the_kept_tables() -> None:
    """Those of results/; and nothing that is kept is in contact."""
    report = importlib.import_module("benchmarks.guard").report
    kept = json.loads((RESULTS / "guard.json").read_text())
    assert (RESULTS / "guard.md").read_text().endswith("\n\n" + report(kept).rstrip() + "\n")
    assert sum(row["contacts"] + row.get("hit_moving", 0) for row in kept["contact"]) == 0
    assert [row["hit_moving"] for row in kept["moving"]] == [0] * len(kept["moving"])


@slow
def test_exact_shapes_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both worlds have the same results, or it fails."""
    assert main(["exact-shapes", "--scale", "0.03", *FEW]) == 0
    worlds = exact_shapes.worlds("near a cuboid")
    queries = exact_shapes.queries(exact_shapes.paths("near hills", 1), worlds["library"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "| mesh " in line]
    assert len(lines) == 3 * len(queries)
    worlds["mesh"].set_pose("it", (0, 0, 0.5, 1, 0, 0, 0))
    monkeypatch.setattr(exact_shapes, "worlds", lambda place: worlds)
    assert main(["exact-shapes", "--scale", "0.03", "--only", "inside", *FEW]) == 1
    assert "WrongResultError: the mesh is off" in capsys.readouterr().out


@slow
def test_what_sensors_see_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """Clouds agree with a plain walk, and paths among maps hit nothing, or it fails."""
    assert main(["sensed", "--scale", "0.005", *FEW]) == 0
    text = capsys.readouterr().out
    assert "| 500 points, yes or no | sphere |" in text
    assert "| 10,000 points and 1,920 spheres | frame |" in text
    assert main(["sensed-plan", "--problems", "table_pick_1"]) == 0
    assert "| in voxels never seen | 1 | " in capsys.readouterr().out


@slow
def test_labels_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["label", "--scale", "0.01", *FEW]) == 0
    text = capsys.readouterr().out
    assert "plain loop" in text
    assert "| two workers | path |" in text


def test_labels_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    assert main(["label", "--command", "40"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("40 paths labelled: ")
    assert "0 with errors; " in told
    assert " a second" in told

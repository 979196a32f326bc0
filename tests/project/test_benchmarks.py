"""The benchmarks: workloads build, and every contender is right. No time is looked at."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks import (
    baseline,
    costs,
    exact_shapes,
    free_spheres,
    gpu,
    harness,
    once,
    scenes,
    truth,
    users,
)
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.scenes import ACTIVATION_DISTANCE, WORKLOADS, build

from warp_collision import sphere_cost, swept_sphere_cost

slow = pytest.mark.slow
SMALL = 0.002  # of the spheres of a workload
# The large ones build the same way, and take seconds.
BUILT = [name for name in WORKLOADS if not name.endswith(("10000", "80000"))]
CHECKED = ("near-torus-200", "near-kitchen", "deep-link", "scene-10", "envs", "panda-1", "tiny")
TINY = ("--only", "tiny", "near-torus-200", "--scale", "0.01", "--seconds", "0.01")


@slow
@pytest.mark.parametrize("name", BUILT)
def test_workload_builds(name: str) -> None:
    problem = build(WORKLOADS[name], scale=SMALL)
    assert problem.spheres.dtype == torch.float32
    assert problem.spheres.is_contiguous()
    assert problem.spheres.ndim == 4
    assert (problem.spheres[..., 3] > 0.0).all()
    counts = [len(scene) for scene in problem.content.scenes]
    assert problem.world.n_meshes.tolist() == counts
    assert min(counts) > 0


@slow
def test_workload_is_the_same_every_time() -> None:
    first, second = (build(WORKLOADS["envs"], scale=0.02) for _ in range(2))
    assert torch.equal(first.spheres, second.spheres)
    assert torch.equal(first.world.mesh_from_world, second.world.mesh_from_world)


@slow
def test_deep_spheres_are_inside() -> None:
    problem = build(WORKLOADS["deep-link"], scale=SMALL)
    (placed,) = problem.content.scenes[0]
    points = problem.content.spheres[..., :3].reshape(-1, 3)
    assert (truth.signed_distance(points, placed) < 0.0).all()


@slow
@pytest.mark.parametrize("name", CHECKED)
def test_contenders_agree_with_the_reference(name: str, device: torch.device) -> None:
    problem = build(WORKLOADS[name], device, 0.01)
    contenders = costs.contenders_of(problem, seconds=0.01)
    errors = costs.check_all(problem, contenders)
    assert {"baseline", "library"} <= set(errors)
    assert all(
        error is not None for error in errors.values() if error != errors.get("short search")
    )


@slow
@pytest.mark.parametrize("name", ["near-torus-200", "deep-link", "scene-10", "envs"])
def test_baseline_equals_the_library(name: str, device: torch.device) -> None:
    problem = build(WORKLOADS[name], device, 0.02)
    results = []
    for cost in (baseline.sphere_cost, sphere_cost):
        leaf = problem.spheres.clone().requires_grad_(True)
        value = cost(
            leaf,
            problem.world,
            activation_distance=ACTIVATION_DISTANCE,
            env_index=problem.env_index,
        )
        value.sum().backward()
        assert leaf.grad is not None
        results.append((value.detach(), leaf.grad))
    (cost, gradient), (wanted, wanted_gradient) = results
    assert (wanted > 0.0).any()
    torch.testing.assert_close(cost, wanted, rtol=1e-5, atol=2e-6)
    off = ((gradient - wanted_gradient).abs().amax(dim=-1) > 1e-2).float().mean()
    assert off < 0.02  # at kinks either side is right


@slow
def test_sampled_sweep_is_near_the_certified_one() -> None:
    problem = build(WORKLOADS["panda-swept-1"])
    spheres = problem.spheres[:, :8].contiguous()
    sampled = baseline.swept_sphere_cost(
        spheres, problem.world, activation_distance=ACTIVATION_DISTANCE
    )
    certified = swept_sphere_cost(spheres, problem.world, activation_distance=ACTIVATION_DISTANCE)
    resting = sphere_cost(spheres, problem.world, activation_distance=ACTIVATION_DISTANCE)
    assert (certified > resting + 1e-4).any()
    near = truth.SWEEP_TOLERANCE + baseline.SPACING
    assert (sampled - certified).abs().max() < near


@slow
def test_sampled_sweep_pulls_back_to_the_neighbours() -> None:
    problem = build(WORKLOADS["panda-swept-1"])
    results = []
    for cost in (baseline.swept_sphere_cost, swept_sphere_cost):
        leaf = problem.spheres[:, :8].clone().requires_grad_(True)
        cost(leaf, problem.world, activation_distance=ACTIVATION_DISTANCE).sum().backward()
        assert leaf.grad is not None
        results.append(leaf.grad)
    # The places of the minima differ by up to a millimetre, and some paths run along faces.
    off = ((results[0] - results[1]).abs().amax(dim=-1) > 0.1).float().mean()
    assert (results[1] != 0.0).any()
    assert off < 0.02


@slow
def test_short_search_reads_deep_as_free() -> None:
    problem = build(WORKLOADS["middle-ball-20480"], scale=0.005)
    found = baseline.sphere_cost(problem.spheres, problem.world, limit=0.06)
    assert (found == 0.0).all()
    assert (baseline.sphere_cost(problem.spheres, problem.world) > 0.29).all()


@slow
def test_wrong_results_do_not_count() -> None:
    problem = build(WORKLOADS["deep-link"], scale=SMALL)
    library = costs.contenders_of(problem, 0.01)["library"]
    cost, gradient = library.run()
    truth.check(problem.content, cost, gradient)
    with pytest.raises(harness.WrongResultError, match="cost is off"):
        truth.check(problem.content, cost + 1e-4, gradient)
    with pytest.raises(harness.WrongResultError, match="gradients"):
        truth.check(problem.content, cost, -gradient)
    wrong = library._replace(cost=lambda s: 2.0 * baseline.sphere_cost(s, problem.world))
    with pytest.raises(harness.WrongResultError, match="deep-link, library"):
        costs.check_all(problem, {"library": wrong})


def test_speedup_is_the_median_of_ratios_within_rounds() -> None:
    assert harness.ratio([4.0, 40.0, 8.0], [1.0, 10.0, 4.0]) == 4.0


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


def test_slow_contenders_get_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def make(count: int) -> harness.Call:
        return harness.Call(lambda: rows.append(count), count)

    monkeypatch.setattr(harness, "seconds_of", lambda *_: harness.Taken(0.1 * rows[-1], 0.0))
    assert harness.within(make, 100, 1.0, harness.CPU).items == 5
    assert harness.within(make, 4, 100.0, harness.CPU).items == 4


def test_run_writes_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    results = json.loads((tmp_path / "cpu.json").read_text())
    assert [row["workload"] for row in results["workloads"]] == ["near-torus-200", "tiny"]
    assert [row["target"] for row in results["targets"]] == [
        "tiny, time over two replayed launches"
    ]
    assert "near-torus-200" in printed
    assert "tiny" in (tmp_path / "cpu.md").read_text()
    assert (tmp_path / "cpu-throughput.png").read_bytes().startswith(b"\x89PNG")


def test_commands_are_listed_and_unknown_ones_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in BENCHMARKS)
    assert main(["nonsense"]) == 2
    assert main(["--list"]) == 0
    assert set(WORKLOADS) <= set(capsys.readouterr().out.split())


def test_unknown_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_targets_name_what_is_measured() -> None:
    for target in costs.TARGETS:
        if target.kind in ("speedup", "all threads", "floor"):
            assert target.of in WORKLOADS
        elif target.kind == "pair":
            assert target.of in costs.PAIRS
    assert all(name in WORKLOADS for pair in costs.PAIRS for name in pair)


def test_targets_are_judged_by_their_direction() -> None:
    row = {"workload": "scene-1000", "speedups": {"library": 40.0}}
    results = {
        "device_type": "cpu",
        "workloads": [row],
        "pairs": {"scene-1000 / scene-10": 3.0},
        "once": {"adding 80000 triangles [s]": 0.1},
    }
    met = {found["target"]: found["met"] for found in costs.evaluate(results)}
    assert met == {
        "scene-1000, speed over the baseline": True,
        "scene-1000, time over scene-10": False,
        "adding 80000 triangles [s]": True,
    }


@slow
def test_pairs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--only", "deep-link", "near-link", "--scale", "0.01", "--seconds", "0.01"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "cpu.json").read_text())
    assert results["pairs"]["deep-link / near-link"] > 0.0
    assert "deep-link / near-link" in capsys.readouterr().out


@slow
def test_peers_are_compared() -> None:
    """Those that are installed: signs and distances of whoever knows them are right."""
    rows = {row["peer"]: row for row in costs.compare_peers(rounds=1, scale=0.01)}
    assert {"plain wp.mesh_query_point", "this library"} <= set(rows)
    assert rows["this library"]["wrong_signs"] == 0
    assert rows["this library"]["error"] < 1e-6
    assert all(row["speed"] > 0.0 for row in rows.values())


@slow
def test_what_is_paid_once_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "first_calls", lambda device: {})
    monkeypatch.setattr(once, "memory", lambda device: {})
    found = once.once(harness.CPU)
    assert len(found) == 4
    assert all(value > 0.0 for value in found.values())


@slow
def test_memory_of_a_sphere_and_a_triangle(real_device: torch.device) -> None:
    device = real_device  # of the simulated GPU torch's profiler sees no memory
    found = once.memory(device)
    assert 0.0 <= found["bytes per resting sphere, beyond outputs"] <= 32.0
    assert 24.0 <= found["bytes per moving sphere, beyond outputs"] <= 32.0
    if device.type == "cpu" and once.resident() > 0:
        # Vertices, indices and the tree at least; and no copy of everything for every thread.
        assert 50.0 < found["bytes per triangle, mesh of 80000"] < 1000.0


def test_gpu_run_needs_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "n_devices", lambda: 0)
    assert main(["gpu", "--out", str(tmp_path / "results")]) == 2
    assert "needs a CUDA device" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_device_is_looked_for_before_anything_is_installed() -> None:
    """`make bench-gpu` asks a program that needs no package, and installs after it."""
    command = [sys.executable, "-S", "-E", str(harness.ROOT / "benchmarks" / "gpu.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == (0 if gpu.n_devices() else 1), done.stderr
    assert gpu.n_devices() or gpu.NO_DEVICE in done.stderr
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

    monkeypatch.setattr(gpu, "n_devices", lambda: 1)
    monkeypatch.setattr(gpu, "run_logged", run)
    monkeypatch.setattr(gpu, "describe", lambda: "a GPU")
    assert main(["gpu", "--out", str(tmp_path)]) == (failing is not None)
    assert [command[0] for command in commands] == ["pytest", *["benchmarks"] * 3]
    assert commands[-1][-4:] == ["--device", "cuda", "--out", str(tmp_path)]
    written = {"machine.txt", *(f"{stage}.txt" for stage in gpu.STAGES)}
    assert {file.name for file in tmp_path.iterdir()} == written
    commands.clear()
    main(["gpu", "--out", str(tmp_path), "--stages", "benchmarks"])
    assert [command[:2] for command in commands] == [["benchmarks", "costs"]]


def test_gpu_runs_the_tests_that_have_a_device() -> None:
    def item(device: str | None, reason: str = "") -> Any:
        marks = [SimpleNamespace(kwargs={"reason": reason})] if reason else []
        known: dict[str, Any] = {"iter_markers": lambda name: marks}
        if device:
            known["callspec"] = SimpleNamespace(params={"device": device})
        return SimpleNamespace(**known)

    on_cuda, needs_one = item("cuda"), item(None, "needs a CUDA GPU")
    others = [item(None), item("cpu"), item(None, "needs pin")]
    items, left_out = [others[0], on_cuda, others[1], needs_one, others[2]], []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    gpu.pytest_collection_modifyitems(SimpleNamespace(hook=hook), items)
    assert items == [on_cuda, needs_one]
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


@slow
def test_what_fails_is_told_and_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measure = costs.measure

    def failing(problem: Any, **options: float) -> Any:
        if problem.workload.name == "tiny":
            raise harness.WrongResultError("tiny, library: cost is off by 1")
        return measure(problem, **options)

    monkeypatch.setattr(costs, "measure", failing)
    assert main([*TINY, "--out", str(tmp_path)]) == 1
    assert "WrongResultError: tiny, library: cost is off" in capsys.readouterr().out
    results = json.loads((tmp_path / "cpu.json").read_text())
    assert [row["workload"] for row in results["workloads"]] == ["near-torus-200"]
    assert [what.split(":")[0] for what in results["failed"]] == ["tiny"]
    assert "cost is off" in (tmp_path / "cpu.md").read_text()


def test_programs_to_be_measured_find_what_this_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    code = "import os; print(os.environ['PYTHONPATH'].split(os.pathsep).index('/somewhere'))"
    assert once.in_new_process(code) == 1.0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        once.in_new_process("1 / 0")


@slow
def test_free_spheres(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every figure follows a comparison: free spheres cost nothing, others what is right."""
    monkeypatch.setattr(free_spheres, "FAR", (0, 5))
    monkeypatch.setattr(free_spheres, "AMONG", {5: 1.5})
    assert main(["free-spheres", "--count", "400", "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["far from 0", "far from 5", "in a gap of 5", "prepared, in a gap", "among 5 tori"]
    assert [name for line in lines for name in names if line.startswith(f"| {name}")] == names
    wrong = free_spheres.tori(5)[0]
    wrong.set_enabled(torch.zeros(5, dtype=torch.bool))
    monkeypatch.setattr(free_spheres, "tori", lambda count: (wrong, 0.8))
    with pytest.raises(harness.WrongResultError, match="the library is wrong"):
        free_spheres.among_rows(400, 1)


def test_users_questions_have_the_same_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Yes or no, and costs, of all that answer them."""
    assert main(["users", "--obstacles", "5", "--batch", "2", "--rounds", "1"]) == 0
    cells = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    asked = {"yes or no", "cost and gradient", "swept cost and gradient"}
    assert {row[1] for row in cells if len(row) > 1} == asked
    compared = [row[-1].split()[0] for row in cells if row[1:] and not row[1].startswith("swept")]
    assert len(compared) >= 2
    assert set(compared) == {"0"}
    spheres = torch.from_numpy(scenes.panda(4).spheres)
    answers = users.questions(scenes.panda_among(5), spheres)["yes or no"]
    hit = answers["library"]()
    assert hit.any()
    assert not hit.all()


@slow
def test_exact_shapes_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both worlds have the same results, or it raises."""
    assert main(["exact-shapes", "--rounds", "1", "--batch", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    worlds = exact_shapes.worlds()
    queries = exact_shapes.queries(exact_shapes.paths("near", 1), worlds["exact"])
    assert len([line for line in lines if " ns | " in line]) == 2 * len(queries)
    worlds["mesh"].set_pose("cuboid", (0, 0, 0.5, 1, 0, 0, 0))
    monkeypatch.setattr(exact_shapes, "worlds", lambda: worlds)
    with pytest.raises(harness.WrongResultError, match="sphere_cost"):
        main(["exact-shapes", "--rounds", "1", "--batch", "2"])


@slow
def test_what_sensors_see_is_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Clouds agree with a plain walk, and maps with the truth, or it raises."""
    few = ["--rounds", "1", "--points", "500", "1000", "--frames", "20", "--cells", "20"]
    assert main(["sensed", *few, "--plot", str(tmp_path / "growth.png")]) == 0
    assert (tmp_path / "growth.png").stat().st_size > 10_000
    text = capsys.readouterr().out
    assert "| 500 | yes or no |" in text
    assert "loop, 10,000 points and 1,920 spheres" in text
    assert "| distance | " in text
    few = ["--problems", "cage_2", "--configurations", "40"]
    assert main(["sensed-scenes", *few]) == 0
    assert "| 6 | " in capsys.readouterr().out
    assert main(["sensed-scenes", "--plan", "--problems", "table_pick_1"]) == 0
    assert "| in voxels never seen | 1 | " in capsys.readouterr().out


@slow
def test_parts_of_the_latency_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["floor", "--rounds", "1"]) == 0
    assert "| the library |" in capsys.readouterr().out

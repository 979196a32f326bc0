"""The benchmarks: workloads build, and every contender is right. No time is looked at."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import (
    baseline,
    exact_shapes,
    free_spheres,
    gpu,
    measure,
    once,
    report,
    targets,
    truth,
    users,
)
from benchmarks.__main__ import main, run
from benchmarks.workloads import ACTIVATION_DISTANCE, WORKLOADS, build

from warp_collision import sphere_cost, swept_sphere_cost

SMALL = 0.002  # of the spheres of a workload
# The large ones build the same way, and take seconds.
BUILT = [name for name in WORKLOADS if not name.endswith(("10000", "80000"))]
CHECKED = ("near-torus-200", "near-kitchen", "deep-link", "scene-10", "envs", "panda-1", "tiny")


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


def test_workload_is_the_same_every_time() -> None:
    first, second = (build(WORKLOADS["envs"], scale=0.02) for _ in range(2))
    assert torch.equal(first.spheres, second.spheres)
    assert torch.equal(first.world.mesh_from_world, second.world.mesh_from_world)


def test_deep_spheres_are_inside() -> None:
    problem = build(WORKLOADS["deep-link"], scale=SMALL)
    (placed,) = problem.content.scenes[0]
    points = problem.content.spheres[..., :3].reshape(-1, 3)
    assert (truth.signed_distance(points, placed) < 0.0).all()


@pytest.mark.parametrize("name", CHECKED)
def test_contenders_agree_with_the_reference(name: str, device: torch.device) -> None:
    problem = build(WORKLOADS[name], device, 0.01)
    contenders = measure.contenders_of(problem, seconds=0.01)
    errors = measure.check_all(problem, contenders)
    assert {"baseline", "library"} <= set(errors)
    assert all(
        error is not None for error in errors.values() if error != errors.get("short search")
    )


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


def test_sampled_sweep_is_near_the_certified_one() -> None:
    problem = build(WORKLOADS["panda-swept-1"])
    spheres = problem.spheres[:, :8].contiguous()
    sampled = baseline.swept_sphere_cost(
        spheres, problem.world, activation_distance=ACTIVATION_DISTANCE
    )
    certified = swept_sphere_cost(spheres, problem.world, activation_distance=ACTIVATION_DISTANCE)
    resting = sphere_cost(spheres, problem.world, activation_distance=ACTIVATION_DISTANCE)
    assert (certified > resting + 1e-4).any()
    near = measure.SWEEP_TOLERANCE + baseline.SPACING
    assert (sampled - certified).abs().max() < near


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


def test_short_search_reads_deep_as_free() -> None:
    problem = build(WORKLOADS["middle-ball-20480"], scale=0.005)
    found = baseline.sphere_cost(problem.spheres, problem.world, limit=0.06)
    assert (found == 0.0).all()
    assert (baseline.sphere_cost(problem.spheres, problem.world) > 0.29).all()


def test_wrong_results_do_not_count() -> None:
    problem = build(WORKLOADS["deep-link"], scale=SMALL)
    (library,) = measure.contenders_of(problem, 0.01, ["library"])
    cost, gradient = library.run()
    truth.check(problem, cost, gradient)
    with pytest.raises(truth.WrongResultError, match="cost is off"):
        truth.check(problem, cost + 1e-4, gradient)
    with pytest.raises(truth.WrongResultError, match="gradients"):
        truth.check(problem, cost, -gradient)
    library.cost = lambda spheres: 2.0 * baseline.sphere_cost(spheres, problem.world)
    with pytest.raises(truth.WrongResultError, match="deep-link, library"):
        measure.check_all(problem, [library])


def test_speedup_is_the_median_of_ratios_within_rounds() -> None:
    assert measure.ratio([4.0, 40.0, 8.0], [1.0, 10.0, 4.0]) == 4.0


def test_run_writes_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--only", "near-torus-200", "tiny", "--scale", "0.01", "--seconds", "0.01"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    results = json.loads((tmp_path / "cpu.json").read_text())
    assert [row["workload"] for row in results["workloads"]] == ["near-torus-200", "tiny"]
    assert [row["target"] for row in results["targets"]] == [
        "tiny, time over two replayed launches"
    ]
    assert "near-torus-200" in printed
    assert "tiny" in (tmp_path / "cpu.md").read_text()
    assert (tmp_path / "cpu-throughput.png").read_bytes().startswith(b"\x89PNG")


def test_unknown_workload_is_refused() -> None:
    with pytest.raises(SystemExit, match="nonsense"):
        main(["--only", "nonsense"])


def test_targets_name_what_is_measured() -> None:
    for target in targets.TARGETS:
        if target.kind in ("speedup", "threads", "floor"):
            assert target.of in WORKLOADS
        elif target.kind == "pair":
            assert target.of in targets.PAIRS
    assert all(name in WORKLOADS for pair in targets.PAIRS for name in pair)


def test_targets_are_judged_by_their_direction() -> None:
    row = {"workload": "scene-1000", "speedups": {"library": 40.0}}
    results = {
        "device_type": "cpu",
        "workloads": [row],
        "pairs": {"scene-1000 / scene-10": 3.0},
        "once": {"adding 80000 triangles [s]": 0.1},
    }
    met = {found["target"]: found["met"] for found in targets.evaluate(results)}
    assert met == {
        "scene-1000, speed over the baseline": True,
        "scene-1000, time over scene-10": False,
        "adding 80000 triangles [s]": True,
    }


def test_pairs_are_compared() -> None:
    results = run(
        torch.device("cpu"),
        names=["deep-link", "near-link"],
        scale=0.01,
        seconds=0.01,
        with_peers=False,
        with_once=False,
    )
    assert results["pairs"]["deep-link / near-link"] > 0.0
    assert "deep-link / near-link" in report.markdown({**results, "targets": []})


def test_memory_of_a_sphere_and_a_triangle(device: torch.device) -> None:
    found = once.memory(device)
    assert 0.0 <= found["bytes per resting sphere, beyond outputs"] <= 32.0
    assert 24.0 <= found["bytes per moving sphere, beyond outputs"] <= 32.0
    if device.type == "cpu" and once.resident() > 0:
        # Vertices, indices and the tree at least; and no copy of everything for every thread.
        assert 50.0 < found["bytes per triangle, mesh of 80000"] < 1000.0


def test_gpu_run_needs_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["--gpu", str(tmp_path / "results")]) == 2
    assert "needs a CUDA device" in capsys.readouterr().out
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("failing", ["pytest", "benchmarks", None])
def test_gpu_run_keeps_going_and_tells_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str | None
) -> None:
    commands = []

    def run(command: list[str], log: Path, _: float) -> int:
        commands.append(command[2:])
        log.write_text("done")
        return int(command[2] == failing)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "_run", run)
    monkeypatch.setattr(gpu, "_machine", lambda: "a GPU")
    assert main(["--gpu", str(tmp_path)]) == (failing is not None)
    assert [command[0] for command in commands] == ["pytest", "benchmarks"]
    assert commands[1][-4:] == ["--device", "cuda", "--out", str(tmp_path)]
    assert {file.name for file in tmp_path.iterdir()} == {
        "benchmarks.txt",
        "machine.txt",
        "tests.txt",
    }
    commands.clear()
    main(["--gpu", str(tmp_path), "--stages", "benchmarks"])
    assert [command[0] for command in commands] == ["benchmarks"]


def test_output_of_a_command_is_shown_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", "import sys; print('hello'); sys.exit(3)"]
    assert gpu._run(command, tmp_path / "log.txt") == 3
    assert (tmp_path / "log.txt").read_text() == "hello\n"
    assert "hello" in capsys.readouterr().out


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    code = "import time; print('begun', flush=True); time.sleep(600)"
    assert gpu._run([sys.executable, "-c", code], tmp_path / "log.txt", limit=3.0) != 0
    assert (tmp_path / "log.txt").read_text() in ("begun\n", "")  # on a slow machine nothing yet


def test_what_fails_is_told_and_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(problem: Any, **options: float) -> Any:
        if problem.workload.name == "tiny":
            raise truth.WrongResultError("tiny, library: cost is off by 1")
        return measure.measure(problem, **options)

    monkeypatch.setattr("benchmarks.__main__.measure", failing)
    arguments = ["--only", "tiny", "near-torus-200", "--scale", "0.01", "--seconds", "0.01"]
    assert main([*arguments, "--out", str(tmp_path)]) == 1
    assert "WrongResultError: tiny, library: cost is off" in capsys.readouterr().out
    results = json.loads((tmp_path / "cpu.json").read_text())
    assert [row["workload"] for row in results["workloads"]] == ["near-torus-200"]
    assert [what.split(":")[0] for what in results["failed"]] == ["tiny"]
    assert "cost is off" in (tmp_path / "cpu.md").read_text()


def test_programs_to_be_measured_find_what_this_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    code = "import os; print(os.environ['PYTHONPATH'].split(os.pathsep).index('/somewhere'))"
    assert once._in_new_process(code) == 1.0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        once._in_new_process("1 / 0")


def test_free_spheres(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every figure follows a comparison: free spheres cost nothing, others what is right."""
    monkeypatch.setattr(free_spheres, "FAR", (0, 5))
    monkeypatch.setattr(free_spheres, "AMONG", {5: 1.5})
    assert free_spheres.main(["--count", "400", "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["ns per sphere", "far from 0", "far from 5", "in a gap of 5", "among 5 tori"]
    assert [name for line in lines for name in names[1:] if line.startswith(name)] == names[1:]
    wrong = free_spheres.tori(5)[0]
    wrong.set_enabled(torch.zeros(5, dtype=torch.bool))
    monkeypatch.setattr(free_spheres, "tori", lambda count: (wrong, 0.8))
    with pytest.raises(AssertionError, match="the library is wrong"):
        free_spheres.among_rows(400, 1)


def test_users_questions_have_the_same_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Yes or no, and costs, of all that answer them."""
    assert users.main(["--obstacles", "5", "--batch", "2", "--rounds", "1"]) == 0
    cells = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert {row[1] for row in cells} == {
        "yes or no",
        "cost and gradient",
        "swept cost and gradient",
    }
    compared = [row[-1].split()[0] for row in cells if not row[1].startswith("swept")]
    assert len(compared) >= 2
    assert set(compared) == {"0"}
    placed, spheres = (
        users.foreign.placed_meshes(5),
        users.foreign.make_buffers(users.foreign.panda_spheres(4), users.CPU).spheres,
    )
    hit = users.library_calls(users.world_of(placed), spheres)["yes or no"]()
    assert hit.any()
    assert not hit.all()


def test_exact_shapes_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """All worlds have the same results, or it raises."""
    assert exact_shapes.main(["--rounds", "1", "--batch", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2 * len(exact_shapes.QUERIES)

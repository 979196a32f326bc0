"""Benchmarks of a GPU run, and say that they are right; at a tiny scale."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks import device, functions, harness
from benchmarks.gpu import STAGES

import gpu_stages
import simulated_cuda
from cases import mostly_slow
from gpu_stages import FEW

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "name", mostly_slow(functions.FUNCTIONS, functions.FUNCTIONS.keys() - {"optimize_paths"})
)
def test_functions(name: str, gpu: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", str(gpu), "--scale", "0.06", *FEW]
    assert harness.run_command("functions", [*arguments, "--only", name]) == 0
    assert name in capsys.readouterr().out


def test_users(gpu: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", str(gpu), "--scale", "0.03", *FEW]
    assert harness.run_command("users", [*arguments, "--only", "1 obstacles, c"]) == 0
    assert "| 1 obstacles, cost and gradient |" in capsys.readouterr().out


def test_costs(gpu: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", str(gpu), "--scale", "0.01", *FEW]
    assert harness.run_command("costs", [*arguments, "--only", "tiny"]) == 0
    assert "| tiny |" in capsys.readouterr().out


LINES = ("plan, first", "640", "100 points", "labels", "sphere_cost", "configuration_in")


@pytest.mark.parametrize("line", LINES)
def test_device(line: str, gpu: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--device", str(gpu), "--scale", "0.001", "--calls", "1"]
    assert harness.run_command("device", [*few, "--only", line]) == 0
    assert f"| {line}" in capsys.readouterr().out


def test_lines_of_a_run_that_is_cut_off_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those before the one that never ends."""

    def hang(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(device, "labels", hang)
    few = ["--scale", "0.001", "--calls", "1", "--write", str(tmp_path), "--only", "100", "labels"]
    with pytest.raises(KeyboardInterrupt):
        harness.run_command("device", few)
    assert "| 100 points updated" in (tmp_path / "device-cpu.partial.md").read_text()


@pytest.mark.slow
def test_all_stages_from_a_fresh_clone(gpu: torch.device, tmp_path: Path) -> None:
    """As on a GPU, but for its size, and from the files alone that git knows."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    clone, out = tmp_path / "clone", tmp_path / "out"
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    command = [sys.executable, "tests/support/gpu_stages.py", str(gpu), str(out)]
    folders = [str(clone / folder) for folder in ("src", ".", "tests/support")]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(command, cwd=clone, env=variables, check=False)
    assert done.returncode == 0
    assert (out / "gpu.md").read_text().count("exit status 0") == len(STAGES)
    assert all((out / f"{stage}.txt").is_file() for stage in ("machine", "first-calls", "tests"))
    assert " passed" in (out / "tests.txt").read_text()
    kept = {file.name for folder in out.iterdir() if folder.is_dir() for file in folder.iterdir()}
    assert {f"{name}-{gpu.type}.md" for name in gpu_stages.TINY} <= kept


@pytest.mark.slow
def test_instructions(gpu: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    """Counted on the simulated GPU; translating a kernel takes a minute."""
    if gpu.type != simulated_cuda.NAME:
        pytest.skip("instructions are counted on the simulated GPU")
    assert harness.run_command("instructions", ["--only", "free"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| free |"))
    row = line.split("|")
    assert 100.0 < float(row[3]) < 1000.0
    assert float(row[6]) > 0.99  # threads of free spheres stay together


@pytest.mark.slow
def test_the_stage_of_tests_passes_over_arrays() -> None:
    """Some tests have arrays as parameters, which compare with a name by element."""
    command = [sys.executable, "-m", *STAGES["tests"][1], "--collect-only", "-q", "-p", "no:xdist"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout
    assert "deselected" in done.stdout

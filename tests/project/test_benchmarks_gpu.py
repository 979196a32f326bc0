"""Benchmarks of a GPU run, and say that they are right; at a tiny scale."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks import functions, harness
from benchmarks.gpu import STAGES

import simulated_cuda

FEW = ("--rounds", "1", "--seconds", "0.01")


@pytest.mark.parametrize("name", functions.FUNCTIONS)
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


def test_the_stage_of_tests_passes_over_arrays() -> None:
    """Some tests have arrays as parameters, which compare with a name by element."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", *STAGES["tests"], "--collect-only", "-q", "-p", "no:xdist"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout
    assert "deselected" in done.stdout

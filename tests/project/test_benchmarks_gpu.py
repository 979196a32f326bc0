"""Benchmarks of a GPU run, and say that they are right; at a tiny scale."""

from pathlib import Path

import pytest
import torch
from benchmarks import functions, harness, once

import simulated_cuda


@pytest.mark.parametrize("name", functions.FUNCTIONS)
def test_functions(name: str, gpu: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", str(gpu), "--batch", "2", "--rounds", "1", "--seconds", "0.01"]
    assert harness.run_command("functions", [*arguments, "--only", name]) == 0
    assert name in capsys.readouterr().out


def test_callers_meshes(gpu: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--meshes", "1", "--batch", "1", "--seconds", "0"]
    assert harness.run_command("external", ["--device", str(gpu), *arguments]) == 0
    rows = capsys.readouterr().out.splitlines()[2:4]
    assert [row.split("|")[3].strip() for row in rows] == ["resting", "swept"]


def test_costs(gpu: torch.device, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--only", "tiny", "--scale", "0.01", "--seconds", "0.01"]
    arguments = ["--device", str(gpu), *few, "--out", str(tmp_path)]
    assert harness.run_command("costs", arguments) == 0
    assert "tiny" in capsys.readouterr().out


def test_pose_updates(gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "MESHES", 10)
    assert once.pose_update(gpu) > 0.0


@pytest.mark.slow
def test_instructions(gpu: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    """Counted on the simulated GPU; translating a kernel takes a minute."""
    if gpu.type != simulated_cuda.NAME:
        pytest.skip("instructions are counted on the simulated GPU")
    assert harness.run_command("instructions", ["--only", "free"]) == 0
    row = capsys.readouterr().out.splitlines()[2].split("|")
    assert row[1].strip() == "free"
    assert 100.0 < float(row[3]) < 1000.0
    assert float(row[6]) > 0.99  # threads of free spheres stay together

"""Benchmarks of a GPU run, and say that they are right; at a tiny scale."""

import pytest
import torch
from benchmarks import functions, harness


@pytest.mark.parametrize("name", [name for name in functions.FUNCTIONS if name != "optimize_paths"])
def test_functions(name: str, gpu: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", str(gpu), "--batch", "2", "--rounds", "1", "--seconds", "0.01"]
    assert harness.run_command("functions", [*arguments, "--only", name]) == 0
    assert name in capsys.readouterr().out

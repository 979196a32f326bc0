"""All that a CUDA machine can tell, with one command: `python -m benchmarks --gpu FOLDER`."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]


STAGES = ("tests", "benchmarks")


def run_all(folder: Path, *, stages: Sequence[str] = STAGES, limit: float = math.inf) -> int:
    """Runs the test suite on cuda, then all benchmarks, and keeps what they print.

    Args:
        folder: for `tests.txt`, `benchmarks.txt`, `machine.txt`, and the results of the benchmarks.
        stages: which of the two, in which order.
        limit: seconds after which a stage is ended; the results until then are kept.

    Returns:
        0 if the tests passed and no benchmark computed a wrong result. Each stage runs in any case.
    """
    if not torch.cuda.is_available():
        print("needs a CUDA device that torch can use: torch.cuda.is_available() is False")
        return 2
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machine.txt").write_text(_machine())
    python = [sys.executable, "-m"]
    commands = {
        # The suite's device fixture runs everything on the CPU and on cuda; here only cuda is news.
        # Files that need a package that is missing must not keep the others from running.
        "tests": [
            *("pytest", "-m", "not slow", "-k", "not cpu", "--durations=20"),
            "--continue-on-collection-errors",
        ],
        "benchmarks": ["benchmarks", "--device", "cuda", "--out", str(folder)],
    }
    found = {
        stage: _run([*python, *commands[stage]], folder / f"{stage}.txt", limit) for stage in stages
    }
    told = "; ".join(f"{stage}: exit status {status}" for stage, status in found.items())
    print(f"{told}; see {folder}")
    return next((status for status in found.values() if status), 0)


def _run(command: list[str], log: Path, limit: float = math.inf) -> int:
    """Runs a command in the repository for some seconds, showing and keeping what it prints."""
    print("$", *command[1:], flush=True)
    with (
        log.open("w") as file,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        timer = threading.Timer(min(limit, threading.TIMEOUT_MAX), process.kill)
        timer.start()
        for line in process.stdout:
            print(line, end="", flush=True)
            file.write(line)
            file.flush()
        timer.cancel()
    return process.returncode


def _machine() -> str:
    lines = [f"torch {torch.__version__}, CUDA {torch.version.cuda}"]
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        lines.append(
            f"{found.name}: compute capability {found.major}.{found.minor}, "
            f"{found.total_memory / 2**30:.0f} GiB, {found.multi_processor_count} multiprocessors"
        )
    if shutil.which("nvidia-smi"):
        done = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False)
        lines.append(done.stdout)
    return "\n".join(lines) + "\n"

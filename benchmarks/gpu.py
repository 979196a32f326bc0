"""All that a CUDA machine can tell, with one command: `python -m benchmarks --gpu FOLDER`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]


def run_all(folder: Path) -> int:
    """Runs the test suite on cuda, then all benchmarks, and keeps what they print.

    Args:
        folder: for `tests.txt`, `benchmarks.txt`, `machine.txt`, and the results of the benchmarks.

    Returns:
        0 if the tests passed and no benchmark computed a wrong result. The benchmarks run in any
        case.
    """
    if not torch.cuda.is_available():
        print("needs a CUDA device that torch can use: torch.cuda.is_available() is False")
        return 2
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machine.txt").write_text(_machine())
    python = [sys.executable, "-m"]
    # The suite's device fixture runs everything on the CPU and on cuda; here only cuda is news.
    pytest = [*python, "pytest", "-m", "not slow", "-k", "not cpu", "--durations=20"]
    tests = _run(pytest, folder / "tests.txt")
    benchmarks = _run(
        [*python, "benchmarks", "--device", "cuda", "--out", str(folder)],
        folder / "benchmarks.txt",
    )
    print(f"tests: exit status {tests}; benchmarks: exit status {benchmarks}; see {folder}")
    return tests or benchmarks


def _run(command: list[str], log: Path) -> int:
    """Runs a command in the repository, showing and keeping what it prints."""
    print("$", *command[1:], flush=True)
    with (
        log.open("w") as file,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            file.write(line)
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

"""All stages of `python -m benchmarks gpu` at a tiny scale, on the simulated GPU or a real one.

`python tests/support/gpu_stages.py DEVICE FOLDER` runs them, and ends as the benchmark does.
"""

import sys
from pathlib import Path

from benchmarks import gpu
from benchmarks.__main__ import main as run_benchmark

import simulated_cuda

FEW = ("--rounds", "1", "--seconds", "0.01")
TINY = {
    "device": ("--scale", "0.001", "--calls", "1"),
    "functions": ("--scale", "0.06", *FEW),
    "users": ("--scale", "0.03", *FEW),
    "costs": ("--scale", "0.01", *FEW, "--only", "tiny", "free"),
}
TESTS = ("--simulated", "-p", "no:xdist", "tests/launching/test_captured_updates.py")


def main(device: str, folder: str) -> int:
    """Benchmarks run in this process, as others know no simulated GPU, and only a few tests."""
    ran, logged = [], gpu.run_logged

    def run(command: list[str], log: Path, seconds: float) -> int:
        assert seconds > 0.0
        ran.append(log.stem)
        words = [device if word == "cuda" else word for word in command[2:]]
        if words[0] == "benchmarks" and "--cold" not in words:
            return run_benchmark([*words[1:], *TINY[words[1]]])
        if words[0] == "pytest":
            words += TESTS
        elif "--cold" in words:
            words = ["benchmarks", "device", "--cold", "--device", "cpu"]
        return logged([*command[:2], *words], log)

    gpu.reason_against = lambda: None
    gpu.run_logged = run
    if device.startswith(simulated_cuda.NAME):
        simulated_cuda.install()
    status = run_benchmark(["gpu", "--minutes", "600", "--write", folder])
    assert ran == [*gpu.STAGES]
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

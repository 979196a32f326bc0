"""What a process pays once, in seconds of CPU: kernels in first calls, and starts of commands.

First calls are measured with an empty kernel cache, where kernels are compiled, and with a full
one; imports, worlds and robots are not counted. Commands are measured whole, with a full cache,
less what a process takes that imports torch and ends; a plan is computed too.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.harness import Failed, table

_TIMED = """
import time
{prepare}
begin = time.process_time()
{call}
print(time.process_time() - begin)
"""
_WORLD = """
import torch
from warp_collision import Cuboid, MeshWorld, joint_path_cost, sphere_cost
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths
world = MeshWorld(1, 1, "cpu")
world.add("plate", Cuboid((0.5, 0.02, 0.5)), (0.5, 0, 0.5, 1, 0, 0, 0))
"""
_ENDS = f"""{_WORLD}
robot = load_panda()
ends = torch.tensor([[[-0.9, 0, 0, -1.6, 0, 1.6, 0.8], [0.9, 0, 0, -1.6, 0, 1.6, 0.8]]])
"""
FIRST_CALLS = {
    "`sphere_cost` and its gradient": (
        f"{_WORLD}spheres = torch.full((1, 1, 1, 4), 0.5, requires_grad=True)",
        "sphere_cost(spheres, world).sum().backward()",
    ),
    "`joint_path_cost` and its gradient": (
        f"{_ENDS}ends.requires_grad_()",
        "joint_path_cost(ends, robot, world).sum().backward()",
    ),
    "`optimize_paths`": (_ENDS, "assert optimize_paths(ends[:, 0], ends[:, 1], robot, world).free"),
}
_PATHS = "straight.npz --robot panda.urdf"
COMMANDS = {
    "check": f"check cage.glb {_PATHS}",
    "plan": "plan panda.urdf cage.glb --no-picture --start 0 -0.785 0 -2.356 0 1.571 0.785 "
    "--goal -0.03 0.53 0.02 -1.61 2.89 2.56 -2.16",
    "label": f"label {_PATHS} --world cage.glb --out ",  # a folder that is not there yet
}


def process(
    arguments: Sequence[str], cache: str, expected: Sequence[int] = (0,)
) -> tuple[str, float]:
    """Runs Python: what it printed, and seconds of CPU; another status than expected is told.

    Bytecode is kept between processes, as it is for what pip installs.
    """
    environment = {**os.environ, "WARP_CACHE_PATH": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-W", "ignore", *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in expected:
        raise Failed(f"{' '.join(arguments)[-500:]} failed:\n{done.stderr[-2000:]}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_call(prepare: str, call: str, cache: str) -> float:
    """Seconds of CPU of a call in a process whose kernel cache is a folder."""
    printed, _ = process(["-c", _TIMED.format(prepare=prepare, call=call)], cache)
    return float(printed.split()[-1])


def on_device(prepare: str, call: str, device: str) -> str:
    """A program that prints the seconds of a call on a device, by the clock, until it is done."""
    begin = f'import torch\ntorch.set_default_device("{device}")\n'
    wait = (
        "from warp_collision.devices import synchronize_all\n"
        f'synchronize_all(torch.device("{device}"))'
    )
    prepare = begin + prepare.replace('"cpu"', f'"{device}"')
    clocked = _TIMED.replace("process_time", "perf_counter")
    return clocked.format(prepare=prepare, call=f"{call}\n{wait}")


def first_calls() -> str:
    """The table of first calls."""
    rows = []
    for name, (prepare, call) in FIRST_CALLS.items():
        with tempfile.TemporaryDirectory() as cache:
            empty, *full = (first_call(prepare, call, cache) for _ in range(4))
        rows.append([name, f"{empty:.1f}", f"{min(full):.2f}"])
    return table(["first call, CPU s", "empty kernel cache", "full"], rows)


def starts(repeats: int) -> str:
    """The table of commands, each less the import of torch; all in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in ("torch", *COMMANDS)}
    with tempfile.TemporaryDirectory() as folder:
        cache = f"{folder}/kernels"
        command = ("-m", "warp_collision.cli")
        process([*command, "example", folder], cache)
        for repeat in range(repeats + 1):  # the first one fills the caches
            taken = {"torch": process(["-c", "import torch"], cache)[1]}
            for name, line in COMMANDS.items():
                words = f"{line}{folder}/labels{repeat}" if name == "label" else line
                given = [_in(folder, word) for word in words.split()]
                taken[name] = process([*command, *given], cache, (0, 1))[1]
            for name in taken if repeat else ():
                seconds[name].append(taken[name])
    torch = median(seconds.pop("torch"))
    rows = [
        [f"`warp-collision {name}`", f"{median(of) - torch:.1f}"] for name, of in seconds.items()
    ]
    return table(["command", f"CPU s beside `import torch` ({torch:.1f})"], rows)


def _in(folder: str, word: str) -> str:
    """A word of a command, with the folder of a file of the example."""
    return f"{folder}/{word}" if word.endswith((".glb", ".npz", ".urdf")) else word


def add_options(parser: Any) -> None:
    """How often commands start."""
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="starts (default 5)")


def run(options: Any) -> str:
    """Both tables."""
    return f"{first_calls()}\n\n{starts(options.repeats)}"

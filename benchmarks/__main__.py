"""Runs a benchmark: `python -m benchmarks NAME --help`; without a name, that of the costs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.harness import run_command

BENCHMARKS = {
    "costs": "costs of spheres, against a straightforward exact kernel",
    "users": "the Panda among few obstacles, against what there is",
    "functions": "joint paths, kinematics, self-collision, planner, edits of worlds, graphs",
    "exact-shapes": "what a formula gains over triangles, in every query",
    "sensed": "point clouds beside other structures, their updates, depth images",
    "first-call": "what a process pays once, with an empty kernel cache and a full one",
    "curobo": "cuRobo's own Functions, from a checkout",
    "vamp": "yes or no of a Panda beside VAMP, where it is installed",
    "calls": "one small call at a time: p50, p99 and p99.9 on one core",
    "lanes": "configurations and motions in lanes of vector instructions, and without",
    "curves": "costs over obstacles, triangles, points, spheres, envs and threads, with a picture",
    "label": "labels of many paths in many worlds, against a plain loop",
    "plan": "planning problems, solved and judged",
    "motors": "what becomes of proven paths before motors move them, judged",
    "guard": "what a guard passes on of hostile commands, judged; its times beside other rules",
    "referee": "what planners call free and touches, judged",
    "sensed-plan": "planning problems among what cameras see, judged",
    "cameras": "what spoiled depth images show of a known scene, judged",
    "robots": "robots of other packages: their spheres against their meshes",
    "robot-shapes": "these robots by the shapes of their links against obstacles, judged",
    "shape-times": "what these shapes cost beside spheres alone",
    "registers": "what kernels take of an sm_90 GPU, without one",
    "instructions": "what kernels execute per sphere on a GPU, counted without one",
    "device": "one device: batches of 1 to 65,536, plans, sensing, labels, first calls, memory",
    "gpu": "on a CUDA machine: its tests, then device, functions, users and costs",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; 0 unless something failed, a wrong result say."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments in (["-h"], ["--help"]):
        print(__doc__, *(f"  {k:14s}{v}" for k, v in BENCHMARKS.items()), sep="\n")
        return 0
    if not arguments or arguments[0].startswith("-"):
        arguments.insert(0, "costs")
    if arguments[0] not in BENCHMARKS:
        print(f"{arguments[0]!r} is none of {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    return run_command(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.exit(main())

"""Runs a benchmark: `python -m benchmarks NAME --help`; without a name, that of the costs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.harness import run_command

BENCHMARKS = {
    "costs": "costs of spheres against a straightforward baseline and other libraries",
    "users": "the Panda among few obstacles, against what there is",
    "functions": "joint paths, kinematics, self-collision, planner, pose updates, graphs",
    "free-spheres": "spheres that nothing is near, against the least",
    "external": "meshes that callers made, in the drop-in Functions",
    "exact-shapes": "what a formula gains over the triangles of a cuboid",
    "sensed": "point clouds beside other structures, their updates, maps of depth images",
    "sensed-scenes": "maps of depth images against the truth, and plans among them",
    "floor": "what the latency of a small call consists of",
    "curobo": "cuRobo's own Functions, from a checkout",
    "vamp": "yes or no of a Panda beside VAMP, where it is installed",
    "vamp-plan": "VAMP's planner on the planning problems",
    "plan": "planning problems, solved and judged",
    "label": "labels of many paths in many worlds, against a plain loop",
    "robots": "robots of other packages: spheres against their meshes",
    "overshoots": "spheres of these robots over how far they stick out",
    "published-spheres": "sphere models of others, and fits that stick out as far",
    "registers": "what kernels take of an sm_90 GPU, without one",
    "instructions": "what kernels execute per sphere on a GPU, counted without one",
    "gpu": "on a CUDA machine: its tests, then all benchmarks",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; 0 unless something failed, a wrong result say."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and arguments[0] in BENCHMARKS:
        return run_command(arguments[0], arguments[1:])
    if not arguments or arguments[0].startswith("-"):
        if arguments in (["-h"], ["--help"]):
            print(__doc__, *(f"  {k:14s}{v}" for k, v in BENCHMARKS.items()), sep="\n")
            return 0
        return run_command("costs", arguments)
    print(f"no benchmark {arguments[0]!r}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

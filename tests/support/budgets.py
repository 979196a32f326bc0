"""What every public call takes of a GPU once it is warm, counted on the simulated one.

`python tests/support/budgets.py` writes budgets.json anew, and says what has changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

import public_calls
import simulated_cuda
from problem_sample import ends_of, world_of
from warp_collision.examples import load_panda
from warp_collision.planning import optimize_paths

KEPT = Path(__file__).with_suffix(".json")
# What these may take at most, which no run renews.
PLANS = "most for 64 planning problems"
NAMES = (*public_calls.CALLS, *public_calls.FIRST_CALLS, *public_calls.SENSING)
_WARM = 3
_PLAN = {"launch": "launches", "operator": "operators", "wait": "waits"}


class Budget(NamedTuple):
    """What one call takes.

    Attributes:
        launches: of the library's kernels.
        operators: of torch; about as many kernels, while views are free.
        allocations: from torch's allocator.
        waits: of the host for the device, copies between them included.
    """

    launches: int
    operators: int
    allocations: int
    waits: int


def counted(name: str, operands: public_calls.Operands, cuda: Any) -> Budget:
    """What a call takes after calls that warm it up; a first call, what loads its kernels alone."""
    if name in public_calls.FIRST_CALLS:
        public_calls.FIRST_CALLS[name](operands)()
        call = public_calls.FIRST_CALLS[name](operands)
    else:
        call = (public_calls.CALLS | public_calls.SENSING)[name](operands)
        for _ in range(_WARM):
            call()
    cuda.synchronize()
    before = cuda.counts()
    call()
    after = cuda.counts()
    return Budget(
        *(
            after.get(what, 0) - before.get(what, 0)
            for what in ("launch", "operator", "allocation", "wait")
        )
    )


def plan_counted(
    until: Any, names: Sequence[str], device: torch.device, cuda: Any
) -> dict[str, int]:
    """What planning takes of 64 problems of some names, after a call that warms it up.

    Trees are random: of three generators it is the middle one of each count.
    """
    world, robot = world_of(*names, device=device), load_panda()
    rows = torch.arange(64) % len(names)
    start, goal = (ends[rows].to(device) for ends in ends_of(*names))
    index = rows.int().to(device)
    optimize_paths(start[:2], goal[:2], robot, world, env_index=index[:2], until="first")
    taken: dict[str, list[int]] = {name: [] for name in _PLAN.values()}
    for seed in range(3):
        cuda.synchronize()
        before, generator = cuda.counts(), torch.Generator().manual_seed(seed)
        found = optimize_paths(
            start, goal, robot, world, env_index=index, until=until, generator=generator
        )
        cuda.synchronize()
        assert found.free.all()
        after = cuda.counts()
        for what, name in _PLAN.items():
            taken[name].append(after[what] - before[what])
    return {name: sorted(counts)[1] for name, counts in taken.items()}


def read_kept() -> dict[str, Any]:
    """The version of torch that they are of, and the budgets by the name of the call."""
    kept = json.loads(KEPT.read_text())
    return kept | {"budgets": {name: Budget(*row) for name, row in kept["budgets"].items()}}


def main() -> None:
    """Counts all calls, and keeps what they take."""
    simulated_cuda.install()
    operands = public_calls.Operands(torch.device(simulated_cuda.NAME, 0))
    cuda = torch.get_device_module(simulated_cuda.NAME)
    found = {name: counted(name, operands, cuda) for name in NAMES}
    kept = read_kept()
    old = kept["budgets"]
    for name, budget in found.items():
        if budget != old.get(name):
            print(f"{name}: {tuple(budget)}, was {tuple(old.get(name, ()))}")
    rows = ",\n".join(f"    {json.dumps(name)}: {list(b)}" for name, b in found.items())
    head = f'  "torch": "{torch.__version__.split("+")[0]}",\n'
    head += f'  "columns": {json.dumps(Budget._fields)},\n'
    plans = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(m)}" for name, m in kept[PLANS].items()
    )
    head += f'  "{PLANS}": {{\n{plans}\n  }},\n'
    KEPT.write_text(f'{{\n{head}  "budgets": {{\n{rows}\n  }}\n}}\n')
    print(f"{len(found)} calls in {KEPT.name}")


if __name__ == "__main__":
    sys.exit(main())

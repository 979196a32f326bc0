"""Checks of a Panda in the lanes of vector instructions, beside the kernels without lanes.

Configurations anywhere within the limits, and along motions that are free; proofs of motions, of
all of them and of those that are free, with a clearance, too, and of the pieces of a spline; costs
of resting spheres, and costs and collisions along free motions. Answers are compared first: they
are the same, costs to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

import warp_collision as wc
from benchmarks import baseline, harness, vamp
from benchmarks.harness import CPU, Call, Workload, require
from warp_collision.examples import load_panda
from warp_collision.kernels import joint_path_hit
from warp_collision.queries.query import Query
from warp_collision.queries.sphere_queries import (
    ANY_IN_COLLISION,
    IN_COLLISION,
    SPHERE_COST,
    SWEPT_COST,
)
from warp_collision.robot import JointCurve
from warp_collision.robot.checks import path_operators
from warp_collision.robot.checks.path_operands import PathOperands
from warp_collision.robot.model.sphere_layout import FRAME_POSE, STATE

COUNT, MOTIONS = 4096, 400  # configurations of a scene, and motions of each length
KNOTS, PIECES = 40, 1000  # of a spline
KEPT, ROUNDING = 0.02, 1e-5  # clearance of motions that are asked to keep one, and its rounding [m]


class Case(vamp.Case):
    """The library alone on one scene."""

    def __init__(self, name: str):
        self.robot = load_panda()
        self.world = wc.MeshWorld.from_mapping(vamp.mapping_of(name), device=CPU)
        links = [
            (f"panda_{a}", f"panda_{b}") for a, all in vamp.IGNORED.items() for b in all.split()
        ]
        self.pairs = self.robot.self_collision_pairs(ignore=links)


def _configurations(operands: PathOperands) -> tuple[Any, ...]:
    rows = (*operands.joints.shape[:2], 1)
    return joint_path_hit.configuration_hit, rows, operands.scratch(rows, FRAME_POSE)


def _segments(operands: PathOperands, rows: tuple[int, int], *_: bool) -> tuple[Any, ...]:
    return joint_path_hit.joint_path_hit, (*rows, 1), operands.scratch((*rows, 1), STATE)


def without_lanes(answer: Callable[[], Tensor]) -> Tensor:
    """An answer by the kernels with a thread for each configuration or segment."""
    kernels = {"_of_configurations": _configurations, "_of_segments": _segments}
    with patch.multiple(path_operators, **kernels):
        return answer()


def both(answer: Callable[[Tensor], Tensor], rows: Tensor) -> dict[str, Call]:
    """With and without lanes; their answers are the same."""
    found, expected = answer(rows), without_lanes(lambda: answer(rows))
    require(torch.equal(found, expected), f"{int((found != expected).sum())} answers differ")
    note = f"{int(expected.sum())} of {len(rows)} are True"
    return {
        "library": Call(lambda: answer(rows), len(rows), note=note),
        "without lanes": Call(lambda: without_lanes(lambda: answer(rows)), len(rows)),
    }


def of_spheres(query: Query, case: Case, joints: Tensor) -> dict[str, Call]:
    """Answers of a query, costs with their gradients, with and without lanes, to the bit."""
    spheres = case.robot(joints).contiguous()
    public = getattr(wc, {"swept_cost": "swept_sphere_cost"}.get(query.name, query.name))
    ours = Call(partial(public, spheres, case.world), spheres[..., 0].numel())
    if query.derivative is not None:
        ours = baseline.differentiated(partial(public, world=case.world), spheres)

    def scalar() -> Any:
        with patch.object(query, "in_lanes", None):
            return ours.run()

    require(all(map(torch.equal, ours.run(), scalar())), "other bits")
    return {"library": ours, "without lanes": ours._replace(run=scalar)}


def along_free_motions(case: Case, joints: Tensor) -> Tensor:
    """Configurations of motions that are free, in their order."""
    motions = vamp.random_motions(case, joints, 64, 2.0)
    motions = motions[case.proofs(motions)][:32]
    steps = torch.linspace(0.0, 1.0, 65)[:, None, None]
    return torch.lerp(motions[:, 0], motions[:, 1], steps).transpose(0, 1).flatten(0, 1)


def pieces(case: Case, joints: Tensor, count: int) -> dict[str, Call]:
    """A cubic spline of so many pieces through random configurations at half their distances."""
    knots = joints.reshape(-1, joints.shape[-1])[:KNOTS].double().numpy()
    spline = CubicSpline(np.linspace(0.0, 1.0, KNOTS), 0.5 * (knots + knots.mean(axis=0)))
    times = np.linspace(0.0, 1.0, count + 1)
    curve = JointCurve.from_hermite(times, spline(times), spline(times, 1))
    options = {"self_collision": case.pairs, "tolerance": vamp.TOLERANCE}

    def hits(_: Tensor) -> Tensor:
        return wc.joint_path_in_collision(curve, case.robot, case.world, **options)[0]

    return both(hits, torch.empty(count))


def of_motions(case: Case, motions: Tensor) -> dict[str, Call]:
    """With and without lanes, that they stay 2 cm away from obstacles, and how near they come."""
    options = {"self_collision": case.pairs, "tolerance": vamp.TOLERANCE}
    pairs, given = motions.contiguous(), (case.robot, case.world)

    def keeps() -> Tensor:
        return wc.joint_path_in_collision(pairs, *given, world_clearance=KEPT, **options)[:, 0]

    def how_near() -> wc.JointPathClearance:
        return wc.joint_path_clearance(pairs, *given, **options)

    hits, found = keeps(), how_near()
    require(bool((found.world_upper[:, 0][~hits] > KEPT - ROUNDING).all()), "nearer than proven")
    note = f"{int(hits.sum())} of {len(pairs)} are True"
    return {
        **both(case.proofs, motions),
        "2 cm from obstacles": Call(keeps, len(pairs), note=note),
        "joint_path_clearance": Call(how_near, len(pairs)),
    }


def workloads(options: Any) -> Iterator[Workload]:
    """Those of all scenes."""
    count, n_motions = (max(20, round(n * options.scale)) for n in (COUNT, MOTIONS))
    for name in vamp.SCENES:
        case = Case(name)
        joints = vamp.random_joints(case, count)
        free = along_free_motions(case, joints).contiguous()
        yield Workload(f"{name}, many", "configuration", partial(both, case.hits, joints))
        yield Workload(f"{name}, of free motions", "configuration", partial(both, case.hits, free))
        for query in (SPHERE_COST, SWEPT_COST, IN_COLLISION, ANY_IN_COLLISION):
            rows = joints[None] if query is SPHERE_COST else free.unflatten(0, (-1, 65))
            make = partial(of_spheres, query, case, rows)
            yield Workload(f"{name}, {query.name}", "sphere", make)
        spline = partial(pieces, case, joints, max(20, round(PIECES * options.scale)))
        yield Workload(f"{name}, pieces of a spline", "piece", spline)
        for length in vamp.LENGTHS:
            asked = vamp.random_motions(case, joints, n_motions, length)
            proven = asked[case.proofs(asked)]
            for what, some in (("all", asked), ("free", proven)):
                label = f"{name}, motions of {length} rad, {what}"
                yield Workload(label, "motion", partial(of_motions, case, some))


add_options = harness.timing_options


def run(options: Any) -> str:
    """The table."""
    return harness.measure(workloads(options), options)

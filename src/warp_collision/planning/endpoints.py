"""Starts and goals: which are valid, what is near to them, and the margin that follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.messages import escaped, shell_words
from warp_collision.planning.problems import ROUNDING, Problems
from warp_collision.robot import CollisionReport, RobotSpheres, SelfCollisionPairs
from warp_collision.robot.model.link_pairs import CONSTANT
from warp_collision.world import MeshWorld

# The least margin that is tried [m]: below it the rounding of float32 decides what can be proven.
LEAST_MARGIN = 1.0e-5
_ENDS: tuple[Literal["start", "goal"], ...] = ("start", "goal")


class NearEnd(NamedTuple):
    """What is nearer than the margin at a start or goal that is proven free.

    Attributes:
        problem: the batch row.
        end: "start" or "goal".
        link: a link or attached object.
        obstacle: the obstacle, or the other link.
        with_itself: whether that is a link.
        clearance: of the two [m].
    """

    problem: int
    end: Literal["start", "goal"]
    link: str
    obstacle: str
    with_itself: bool
    clearance: float

    def __str__(self) -> str:
        other = f"link {escaped(self.obstacle, 40)}" if self.with_itself else self.obstacle
        distance = f"{1e3 * self.clearance:.2f} mm"
        return f"{escaped(self.link, 40)} is {distance} from {escaped(other, 45)}"


def endpoint_operands(
    start: Tensor, goal: Tensor, robot: RobotSpheres, world: MeshWorld, must_be_finite: bool
) -> Tensor:
    """Joint values (2, batch, n_joints) float32 of starts and goals, copies without a gradient."""
    for name, value in zip(_ENDS, (start, goal), strict=True):
        robot.check_joints(value, name)
        if value.ndim != 2:
            raise ValueError(
                f"{name} must have shape (batch, n_joints), got {validate.shape_of(value)}"
            )
        validate.require_device(name, value, world.device)
    if start.shape != goal.shape:
        raise ValueError(
            f"goal must have the shape of start {tuple(start.shape)}, got {tuple(goal.shape)}"
        )
    ends = torch.stack((start.detach().float(), goal.detach().float()))
    if must_be_finite and not bool(ends.isfinite().all()):
        end, row, joint = torch.nonzero(~ends.isfinite())[0].tolist()
        raise ValueError(
            f"{_ENDS[end]} must be finite, got {ends[end, row, joint].item()} in batch row {row} "
            f"for {robot.joint_names[joint]}"
        )
    return ends


def with_margins(problems: Problems) -> tuple[Problems, Tensor, Tensor]:
    """The problems, each with a margin that its ends keep.

    The margin of ends that are proven free but nearer is halved until they keep twice of it:
    motions from there may approach a little.

    Returns:
        These problems; which ends (2, batch) are valid; which straight lines (batch,) are free.
    """
    start, goal = problems.start, problems.goal
    ends, n = torch.stack((start, goal)), len(start)
    low, high = problems.widened_limits
    within = ((ends >= low) & (ends <= high)).all(2)  # false for NaN
    every = torch.arange(n, device=ends.device)
    motions = torch.stack((start, start, goal, goal, start, goal), dim=1)
    motions = motions.view(3 * n, 2, start.shape[1])
    free = ~problems.hits(motions, every.repeat_interleave(3)).view(n, 3)
    valid, straight = within & free[:, :2].T, free[:, 2]
    if bool(valid.all()):
        return problems, valid, straight
    rows = torch.nonzero(within.all(0) & ~valid.all(0))[:, 0]
    if len(rows) == 0:
        return problems, valid, straight
    tried = [problems.margin]
    while tried[-1] > LEAST_MARGIN:
        tried.append(max(0.5 * tried[-1], LEAST_MARGIN))
    halves = ends.new_tensor(tried[1:])
    free = _at_rest(problems, ends, rows, halves)
    valid[:, rows] |= free.any(0)
    keeps = free.all(1)  # (m, n), the largest margin first
    found = halves[keeps.long().argmax(0)]
    kept = torch.where(keeps.any(0), (0.5 * found).clamp(min=LEAST_MARGIN), problems.margin)
    margins = problems.margins.expand(len(every)).clone()
    margins[rows] = kept
    problems = replace(problems, margins=margins, has_smaller_margins=True)
    lines = torch.stack((start[rows], goal[rows]), dim=1)
    straight = straight.index_copy(0, rows, problems.is_free(lines, rows))
    return problems, valid, straight


def _at_rest(problems: Problems, ends: Tensor, rows: Tensor, margins: Tensor) -> Tensor:
    """Which ends (2, batch, n_joints) of problems (n,) keep margins (m,), (m, 2, n) bool."""
    n, m = 2 * len(rows), len(margins)
    resting = ends[:, rows].flatten(0, 1)[:, None].repeat(1, 2, 1)
    problem = rows.repeat(2)
    resting, problem = resting.repeat(m, 1, 1), problem.repeat(m)
    hit = problems.hits(resting, problem, margins=margins.repeat_interleave(n))
    return ~hit.view(m, 2, len(rows))


def require_valid(problems: Problems, valid: Tensor) -> None:
    """Requires that all ends (2, batch) are valid."""
    if bool(valid.all()):
        return
    end, row = (~valid).nonzero()[0].tolist()
    joints = (problems.start, problems.goal)[end]
    raise ValueError(
        f"{_ENDS[end]} must be free and within joint limits, got batch row {row}: "
        f"{_reason(problems, joints, row)}"
    )


def near_ends(problems: Problems, valid: Tensor) -> tuple[NearEnd, ...]:
    """What is nearer than the margin at ends of problems that were given a smaller one."""
    if not problems.has_smaller_margins:
        return ()
    is_near = valid.all(0) & (problems.margins < problems.margin)
    rows = torch.nonzero(is_near)[:, 0]
    if len(rows) == 0:
        return ()
    ends = torch.stack((problems.start, problems.goal), dim=1)[rows]
    report = _report(problems, ends, rows)
    numbers = rows.tolist()
    found = [
        NearEnd(numbers[batch], _ENDS[waypoint], link, other, bool(with_itself), -float(depth))
        for batch, waypoint, link, other, with_itself, depth in zip(
            report.batch.tolist(),
            report.waypoint.tolist(),
            report.link,
            report.obstacle,
            report.with_itself,
            report.depth,
            strict=True,
        )
    ]
    found += [
        NearEnd(row, end, link, other, True, clearance)
        for link, other, clearance in _always_near(problems)
        for row in numbers
        for end in _ENDS
    ]
    return tuple(sorted(found, key=lambda near: (near.problem, near.end == "goal", near.clearance)))


def _report(problems: Problems, joints: Tensor, rows: Tensor | slice) -> CollisionReport:
    """What is nearer than the margin at joints (n, horizon, n_joints) of problems (n,)."""
    return problems.robot.report(
        joints,
        problems.world,
        margin=problems.margin,
        shapes=problems.shapes,
        self_collision=problems.self_collision,
        **problems.world_of(rows),
    )


def _always_near(problems: Problems) -> list[tuple[str, str, float]]:
    """Links that are below the margin at all joint values, nearest first, and their clearance."""
    pairs = problems.checked_pairs
    nearest: dict[tuple[str, str], float] = {}
    if isinstance(pairs, SelfCollisionPairs):
        for first, second, clearance in sorted(pairs.constant, key=lambda pair: pair.clearance):
            links = pairs.sphere_links[first], pairs.sphere_links[second]
            if clearance <= problems.margin + CONSTANT:
                nearest.setdefault(links, clearance)
    return [(*links, clearance) for links, clearance in nearest.items()]


def _reason(problems: Problems, ends: Tensor, row: int) -> str:
    """Why a row of ends (batch, n_joints) is not valid."""
    robot, only = problems.robot, slice(row, row + 1)
    for name, value, (low, high) in zip(
        robot.joint_names, ends[row].tolist(), problems.limits.tolist(), strict=True
    ):
        if not low - ROUNDING <= value <= high + ROUNDING:
            return f"{escaped(name)} = {value:.4f} is beyond its limits [{low:.4f}, {high:.4f}]"
    report = _report(problems, ends[only, None], only)
    if len(report.link) == 0:
        always = _always_near(problems)
        if not always:
            return "it cannot be proven free"
        link, other, clearance = always[0]
        return (
            f"{escaped(link)} is {1e3 * clearance:.3f} mm from link {escaped(other)} at all joint "
            f"values, too near for a proof; {_too_large(link, other)}"
        )
    link, other, depth = report.link[0], report.obstacle[0], 1e3 * float(report.depth[0])
    what = f"link {escaped(other)}" if report.with_itself[0] else escaped(other)
    if depth <= 0.0:
        return f"{escaped(link)} is {-depth:.3f} mm from {what}, too near for a proof"
    hint = f"; {_too_large(link, other)}" if report.with_itself[0] else ""
    if report.at_all_values[0] and not report.with_itself[0]:
        pair = f"({escaped(link)!r}, {escaped(other)!r})"
        hint = (
            f", as at all joint values: ignore=[{pair}] allows it, in commands "
            f"--ignore {shell_words(link, other)}"
        )
    return f"{escaped(link)} is in collision with {what}, {depth:.1f} mm deep{hint}"


def _too_large(link: str, other: str) -> str:
    """What to do about two links whose spheres touch."""
    pair = f"({escaped(link)!r}, {escaped(other)!r})"
    return (
        "if they do not touch, their spheres may be too large: leave the pair out by "
        f"self_collision=robot.self_collision_pairs(ignore=[{pair}]), in commands by --ignore "
        f"{shell_words(link, other)}"
    )

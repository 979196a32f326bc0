"""Certified joint paths by batched trajectory optimisation: one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from warp_collision.planning.planned_paths import PlannedPaths
from warp_collision.planning.planner import Planner
from warp_collision.planning.search import PlanningProgress
from warp_collision.planning.terms import Term
from warp_collision.poses import PoseLike
from warp_collision.queries.dispatch import reads_values
from warp_collision.robot import RobotSpheres, SelfCollisionPairs
from warp_collision.world import MeshWorld


@reads_values
def optimize_paths(
    start: Tensor,
    goal: Tensor,
    robot: RobotSpheres,
    world: MeshWorld,
    *,
    env_index: Tensor | None = None,
    until: Literal["first", "converged"] = "converged",
    n_seeds: int = 4,
    horizon: int = 32,
    margin: float = 1e-3,
    preferred_clearance: float = 0.01,
    terms: Sequence[Term] = (),
    limits: Mapping[str, Any] | None = None,
    times: Tensor | None = None,
    poses: Tensor | None = None,
    shapes: Literal["spheres", "exact"] = "spheres",
    self_collision: bool | SelfCollisionPairs = True,
    ignore: Iterable[tuple[str, str]] = (),
    base_pose: PoseLike | None = None,
    max_iterations: int = 2_500,
    max_seconds: float | None = None,
    on_invalid_endpoints: Literal["raise", "mark"] = "raise",
    generator: torch.Generator | None = None,
    progress: Callable[[PlanningProgress], object] | None = None,
) -> PlannedPaths:
    """Plans joint paths from starts to goals, and proves them free.

    An anytime planner. If the straight line is not free, trees of free motions grow from start
    and goal (`RrtConnect`). The path that they find is proven. Shortcuts, each proven free, and
    gradient descent then improve it and the paths of other trees. The descent minimizes
    `CollisionTerm`, `SmoothnessTerm`, `JointLimitsTerm` and the caller's terms, with smoothness as
    its metric. Every few iterations `joint_path_in_collision` checks whether the path is free.
    `progress` receives every better path as it is found.

    Args:
        start: (batch, n_joints) [rad, prismatic: m], on the device of the world.
        goal: (batch, n_joints). Values of continuous joints do not wrap.
        robot: the robot, with what is attached to it.
        world: the obstacles.
        env_index: (batch,) int32, the env of each problem; env 0 for all if None.
        until: "first" returns the first proven path of each problem, as the trees found it, and
            no clearances and costs; "converged" improves paths until nothing improves any more.
        n_seeds: paths of trees for each problem, of which the best are improved.
        horizon: waypoints of a path, including the ends.
        margin: [m], the `tolerance` of `joint_path_in_collision`: paths with a clearance below it
            may be rejected. Starts and goals that are nearer are accepted if they are proven free.
            Their margin is at most half of their clearance. The result names each, a `NearEnd` in
            `PlannedPaths.near_ends`.
        preferred_clearance: [m], of shortcuts. Not a constraint: smaller clearances remain where
            the way around costs more, such as near a goal in a narrow space.
            `has_preferred_clearance` of the result says whether it is kept.
        terms: callables of joints (n, horizon, n_joints) that return (n, horizon) or (n,) and are
            differentiable. A term with a parameter `problem` receives (n,) int64 by that name: the
            batch row that each path is for. Terms are weighed against half the squared joint
            velocity, integrated over unit time; among free paths the cheapest is returned. Values
            and derivatives must be finite, also beyond joint limits, where a descent may pass.
            Without terms the shortest path is returned, where parts nearer than the preferred
            clearance count twice.
        limits: of the motors, `velocity`, `acceleration` and `jerk` as in `timed`. The time is then
            minimized. Shortcuts count seconds instead of radians. In the end the best path of each
            problem and those of other trees become curves, as by `timed`. The fastest one is
            returned, as `motion`, with the path that it was made of. `cost` is its time [s]. Not
            with `terms`.
        times: (k,) of `poses` [s], from 0 on, with `limits` and in a world of one env: plans among
            obstacles that move. Some paths go round these where they stand in the world, others
            ignore them. All wait at their start until their curve is proven in time. The one that
            arrives first is returned: `free` and clearances are of its `motion`, in time, and
            `cost` is its arrival [s]. What happens later is not checked.
        poses: (k, n_obstacles, 7), where obstacles are at these times, see `sphere_cost`. After the
            last time they rest.
        shapes: see `configuration_in_collision`. With "exact" all proofs and the clearances of
            the result are of the shapes, at starts and goals too. Costs stay those of spheres.
        self_collision: whether self-collisions are checked, by the pairs of
            `RobotSpheres.self_collision_pairs`; or the pairs to check.
        ignore: allowed contacts, pairs of a link, or attached object, and an obstacle; see
            `joint_path_in_collision`.
        base_pose: (7,) for all or (batch, 7), pose of the root link in the world, or 4 x 4
            matrices; the origin if None.
        max_iterations: rounds of the trees, after which a problem without a path is given up.
        max_seconds: limit of the search, checked between its steps; no limit if None. With a limit
            results may differ from run to run.
        on_invalid_endpoints: "raise" an error if a start or goal is not proven free, is beyond
            joint limits or is not finite, or "mark" its row as not free.
        generator: generator of the random numbers; a fixed seed in every call if None.
        progress: called regularly with a `PlanningProgress`, and at once with better paths.

    Returns:
        Paths, certificates and costs, see `PlannedPaths`. Where `free` is false no free path was
        found, and `joints` is the straight line.

    Raises:
        TypeError, ValueError: an argument of another type, shape, device or range; a start or goal
            that is not finite or not valid; the message names batch row, link and obstacle. A term
            that is not finite; the message has its name, batch row, waypoint and iteration.
        RuntimeError: inside of a transform of `torch.func`.

    Example:
        >>> import torch
        >>> from warp_collision import Cylinder, MeshWorld
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.planning import optimize_paths
        >>> world = MeshWorld()
        >>> world.add("post", Cylinder(0.05, 1.0), (0.5, 0.0, 0.5, 1, 0, 0, 0))
        0
        >>> start = torch.tensor([[-0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]])
        >>> goal = torch.tensor([[0.9, 0.3, 0.0, -1.6, 0.0, 1.9, 0.8]])
        >>> found = optimize_paths(start, goal, load_panda(), world)
        >>> found.free.tolist(), tuple(found.joints.shape), found.clearance.item() >= 0.0
        ([True], (1, 32, 7), True)
        >>> limits = {"acceleration": 15.0, "jerk": 500.0}  # velocities are those of the URDF
        >>> motion = optimize_paths(start, goal, load_panda(), world, limits=limits).motion
        >>> motion.free.tolist(), bool(motion.jerk_share <= 1.0)
        ([True], True)
        >>> found.has_preferred_clearance.tolist()  # 10 mm by default
        [True]
    """
    planner = Planner(
        robot,
        world,
        until=until,
        n_seeds=n_seeds,
        horizon=horizon,
        margin=margin,
        preferred_clearance=preferred_clearance,
        terms=terms,
        limits=limits,
        times=times,
        poses=poses,
        shapes=shapes,
        self_collision=self_collision,
        ignore=ignore,
        max_iterations=max_iterations,
        max_seconds=max_seconds,
        on_invalid_endpoints=on_invalid_endpoints,
    )
    return planner.plan(
        start,
        goal,
        env_index=env_index,
        base_pose=base_pose,
        generator=generator,
        progress=progress,
    )

"""The derivative of the cost of collisions by joint paths, by launches alone."""

from __future__ import annotations

from torch import Tensor

from warp_collision import validate
from warp_collision.costs import swept_options
from warp_collision.planning.terms import CollisionTerm
from warp_collision.queries.robot_queries import (
    FORWARD_KINEMATICS,
    SELF_COLLISION,
    run_path_cost_vjp,
)
from warp_collision.robot.checks.allowed_contacts import scene_with_contacts
from warp_collision.robot.model.base_pose import root_rows


class CollisionGradient:
    """Derivative of the sum of a `CollisionTerm` by joint paths, again and again.

    Four launches, three without self-collisions: the spheres, their costs against the world and
    against each other, and the products with the Jacobians. Autograd takes as long as the kernels.

    Args:
        term: with one chord for each segment.
        paths: (batch, horizon, n_joints) float32 and contiguous, whose values may change.
        problem: (batch,) int64, which problem each path is of.
    """

    def __init__(self, term: CollisionTerm, paths: Tensor, problem: Tensor):
        robot, options, device = term.robot, term.options, paths.device
        self._paths, self._layout = paths, robot.layout
        self._env_index, base = term.operands(problem)
        scene = scene_with_contacts(options["ignore"], robot, term.world)
        eta, tolerance = options["activation_distance"], options["tolerance"]
        query, parameters, weight = swept_options(device, options["weight"], eta, tolerance)
        self._world = query, scene, (weight, *parameters)
        tables = robot.layout.kinematics.tables(device)
        self._kinematics = *tables, root_rows(base, paths)
        self._tables, self._pairs = tables, None
        if options["self_weight"] != 0.0:
            self._pairs = robot.default_pairs if options["pairs"] is None else options["pairs"]
            scalars = (
                validate.scalar_operand(name, options[f"self_{name}"], device)
                for name in ("weight", "activation_distance")
            )
            self._self_cost = *self._pairs.tables(device), *scalars
            # Of the costs of all spheres.
            self._ones = paths.new_ones((paths[..., 0].numel(), robot.n_spheres))

    def __call__(self) -> Tensor:
        """The derivative (batch, horizon, n_joints) at the paths as they are."""
        flat, rows = self._paths.flatten(0, 1), self._paths.shape[:2]
        placed, frame_poses = FORWARD_KINEMATICS.run(flat, *self._kinematics)
        spheres = self._layout.in_env(placed.unflatten(0, rows), self._env_index)
        query, scene, parameters = self._world
        _, gradient, neighbours = query.run(spheres, scene, self._env_index, parameters)
        by_pairs = None
        if self._pairs is not None:
            inflated = self._pairs.inflate(spheres).flatten(0, 1)
            by_pairs = SELF_COLLISION.run_vjp(self._ones, inflated, *self._self_cost)
            by_pairs = by_pairs.view_as(spheres)
        by_spheres = gradient, neighbours, by_pairs
        frame_poses = frame_poses.unflatten(0, rows)
        return run_path_cost_vjp(self._paths, *by_spheres, frame_poses, *self._tables)

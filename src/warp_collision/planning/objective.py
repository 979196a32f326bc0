"""What a descent of joint paths minimises: a sum of terms, and its derivative."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.costs import swept_options
from warp_collision.kernels.gradient_step import LIMITS_WEIGHT
from warp_collision.planning.terms import CollisionTerm, JointLimitsTerm, SmoothnessTerm, Term
from warp_collision.queries.robot_queries import (
    FORWARD_KINEMATICS,
    SELF_COLLISION,
    run_path_cost_vjp,
)
from warp_collision.robot.checks.allowed_contacts import scene_with_contacts
from warp_collision.robot.model.base_pose import root_rows


def require_callables(terms: Sequence[Term]) -> None:
    """Requires that terms can be called."""
    for term in terms:
        if not callable(term):
            raise TypeError(f"terms must be callables, got {type(term).__name__}")


class CollisionGradient:
    """Derivative of the sum of a `CollisionTerm` by joint paths, again and again; and its value.

    Four launches, three without self-collisions: the spheres, their costs against the world and
    against each other, and the products with the Jacobians. Autograd takes as long as the kernels.
    The value takes a launch less, and half of the time of a call of the term.

    Args:
        term: with one chord for each segment.
        paths: (batch, horizon, n_joints) float32 and contiguous, whose values may change.
        problem: (batch,) int64, which problem each path is of.
    """

    def __init__(self, term: CollisionTerm, paths: Tensor, problem: Tensor):
        robot, options, device = term.robot, term.options, paths.device
        self._paths, self._layout = paths, robot.layout
        self._env_index, base = term.operands(problem)
        scene = scene_with_contacts(options.ignore, robot, term.world)
        query, parameters, weight = swept_options(device, *options[:3])
        self._world = query, scene, (weight, *parameters)
        tables = robot.layout.kinematics.tables(device)
        self._kinematics = *tables, root_rows(base, paths)
        self._tables, self._pairs = tables, None
        if options.self_weight != 0.0:
            self._pairs = robot.default_pairs if options.pairs is None else options.pairs
            weight = validate.scalar_operand("weight", options.self_weight, device)
            eta = options.self_activation_distance
            eta = validate.scalar_operand("activation_distance", eta, device)
            self._self_cost = *self._pairs.tables(device), weight, eta

    def __call__(self) -> Tensor:
        """The derivative (batch, horizon, n_joints) at the paths as they are."""
        spheres, frame_poses = self._placed()
        query, scene, parameters = self._world
        _, gradient, neighbours = query.run(spheres, scene, self._env_index, parameters)
        by_pairs = None
        if self._pairs is not None:
            inflated = self._pairs.inflate(spheres).flatten(0, 1)
            by_pairs = SELF_COLLISION.run_vjp(None, inflated, *self._self_cost)
            by_pairs = by_pairs.view_as(spheres)
        by_spheres = gradient, neighbours, by_pairs
        frame_poses = frame_poses.unflatten(0, spheres.shape[:2])
        return run_path_cost_vjp(None, self._paths, *by_spheres, frame_poses, *self._tables)

    def cost(self) -> Tensor:
        """The cost (batch, horizon) at the paths as they are, with the bits of the term.

        Joints that move no sphere may be NaN here.
        """
        spheres, _ = self._placed()
        query, scene, parameters = self._world
        total = query.run(spheres, scene, self._env_index, parameters, with_gradients=False)[0]
        if self._pairs is not None:
            inflated = self._pairs.inflate(spheres).flatten(0, 1)
            *tables, weight, eta = self._self_cost
            (cost,) = SELF_COLLISION.run(inflated, *tables, torch.ones_like(weight), eta)
            total = total + weight * cost.view_as(total)
        return total.sum(-1)

    def _placed(self) -> tuple[Tensor, Tensor]:
        """The spheres (batch, horizon, n_spheres, 4), and the poses of all frames."""
        flat, rows = self._paths.flatten(0, 1), self._paths.shape[:2]
        placed, frame_poses = FORWARD_KINEMATICS.run(flat, *self._kinematics)
        return self._layout.in_env(placed.unflatten(0, rows), self._env_index), frame_poses


class Objective:
    """The sum of terms, each a number for each path.

    Args:
        terms: callables of joints (batch, horizon, n_joints) that return (batch, horizon) or
            (batch,). One with a parameter `problem` is given (batch,) int64 by that name: which
            problem each path is of.
        collision: a term with one chord for each segment.
        limits: (n_joints, 2) of the joints. If given, `SmoothnessTerm` and `JointLimitsTerm` are
            part of the sum too, but not of its derivative: each step of `PathDescent` adds theirs.
    """

    def __init__(
        self,
        terms: Sequence[Term],
        collision: CollisionTerm | None = None,
        limits: Tensor | None = None,
    ):
        require_callables(terms)
        always: list[tuple[Term, bool]] = [] if collision is None else [(collision, True)]
        if limits is not None:
            always += [(SmoothnessTerm(), False)]
            always += [(JointLimitsTerm(limits, weight=LIMITS_WEIGHT), False)]
        self._collision = collision
        self._differentiated = [(term, _takes_problem(term)) for term in terms]
        self._terms = [*always, *self._differentiated]

    def __call__(self, joints: Tensor, problem: Tensor, when: str | None = "") -> Tensor:
        """The cost (batch,) of paths, each of a problem (batch,).

        Args:
            joints: (batch, horizon, n_joints).
            problem: (batch,) int64.
            when: what an error says of the moment; if None, what is not finite is no error.

        Raises:
            ValueError: a term is of another shape, NaN or infinite; the message names it.
        """
        first, terms = [], self._terms
        if self._collision is not None and not torch.is_grad_enabled():
            first = [CollisionGradient(self._collision, joints.contiguous(), problem).cost()]
            terms = terms[1:]
        costs = first + [_cost_of(term, joints, problem) for term in terms]
        total = _sum_of(costs, joints)
        if when is not None and not bool(total.isfinite().all()):
            for (term, _), cost in zip(self._terms, costs, strict=True):
                _require_finite(cost, _name_of(term), problem, when)
            _require_finite(total, "the sum of all terms", problem, when)
        return total

    def derivative(
        self, joints: Tensor, problem: Tensor
    ) -> Callable[[], tuple[Tensor, Tensor | None]]:
        """A function for the derivative of the cost by paths that change from call to call.

        Args:
            joints: (batch, horizon, n_joints) float32 and contiguous.
            problem: (batch,) int64.

        Returns:
            It returns the derivative by the joints, of their shape, and the cost (batch,) of the
            terms that are not always there, or None. Whether they are finite is not asked.
        """
        collision = self._collision and CollisionGradient(self._collision, joints, problem)

        def evaluate() -> tuple[Tensor, Tensor | None]:
            gradient = torch.zeros_like(joints) if collision is None else collision()
            if not self._differentiated:
                return gradient, None
            by = joints.detach().requires_grad_()
            with torch.enable_grad():
                cost = _sum_of([_cost_of(term, by, problem) for term in self._differentiated], by)
                (by_terms,) = torch.autograd.grad(cost.sum(), by)
            return gradient + by_terms, cost.detach()

        return evaluate

    def require_finite(self, joints: Tensor, problem: Tensor, when: str) -> None:
        """Requires finite costs and derivatives; arguments as for the cost.

        Raises:
            ValueError: as the cost, and where a derivative is NaN or infinite.
        """
        self(joints, problem, when)
        joints = joints.detach().requires_grad_()
        for term in self._terms:
            with torch.enable_grad():
                cost = _cost_of(term, joints, problem).sum()
            if cost.requires_grad:
                (gradient,) = torch.autograd.grad(cost, joints, allow_unused=True)
                name = f"the derivative of {_name_of(term[0])}"
                if gradient is not None:
                    _require_finite(gradient, name, problem, when)
        gradient, _ = self.derivative(joints, problem)()
        _require_finite(gradient, "the derivative of the sum of all terms", problem, when)


def _sum_of(costs: Sequence[Tensor], joints: Tensor) -> Tensor:
    """The sum (batch,) of costs (batch,) or (batch, horizon), also of none."""
    total = 0.0 * joints.sum((1, 2))  # depends on the joints, as not every term does
    for cost in costs:
        total = total + (cost.sum(1) if cost.ndim == 2 else cost)
    return total


def _cost_of(term: tuple[Term, bool], joints: Tensor, problem: Tensor) -> Tensor:
    """The cost (batch,) or (batch, horizon) by a term, which may take the problem."""
    call, takes_problem = term
    cost = call(joints, problem=problem) if takes_problem else call(joints)
    if not isinstance(cost, Tensor) or cost.shape not in (joints.shape[:1], joints.shape[:2]):
        raise ValueError(
            f"terms must return (batch, horizon) or (batch,) for joints {tuple(joints.shape)}, "
            f"got {validate.shape_of(cost)} of {_name_of(call)}"
        )
    return cost


def _require_finite(values: Tensor, name: str, problem: Tensor, when: str) -> None:
    """Requires finite values (batch, ...), the second axis of which are waypoints."""
    finite = values.isfinite()
    if bool(finite.all()):
        return
    where = torch.nonzero(~finite)[0].tolist()
    place = f"batch row {int(problem[where[0]])}"
    if len(where) > 1:
        place += f", waypoint {where[1]}"
    value = values[tuple(where)].item()
    raise ValueError(f"terms must be finite, got {value} of {name} in {place}{when and ', '}{when}")


def _takes_problem(term: Term) -> bool:
    try:
        return "problem" in inspect.signature(term).parameters
    except (TypeError, ValueError):  # of a builtin
        return False


def _name_of(term: Term) -> str:
    return getattr(term, "__name__", type(term).__name__)

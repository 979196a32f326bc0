"""Terms of a planner's objective: callables of joint paths; users can add their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.poses import PoseLike
from warp_collision.robot import RobotSpheres, SelfCollisionPairs, joint_path_cost
from warp_collision.world import MeshWorld

Term = Callable[..., Tensor]

SELF_WEIGHT = 20.0


class CollisionTerm:
    """Collision cost of the robot with the world and with itself, see `joint_path_cost`.

    Args:
        robot: the robot.
        world: the obstacles.
        weight: factor of the cost against the world.
        activation_distance: eta [m] against the world.
        self_weight: factor of the cost of self-collisions; 0.0 for none.
        self_activation_distance: eta [m] of self-collisions.
        substeps: number of chords of each segment, odd.
        tolerance: of the sweep along the chords [m].
        pairs: pairs of spheres for self-collisions; the robot's default pairs if None.
        ignore: allowed contacts, pairs of a link and an obstacle, see `joint_path_cost`.
        env_index: (n_problems,) int32, the env of each problem; env 0 for all if None.
        base_pose: (n_problems, 7), or (7,) for all, pose of the root link in the world, or 4 x 4
            matrices; the origin if None.

    Example:
        >>> import torch
        >>> from warp_collision import Cuboid, MeshWorld
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.planning import CollisionTerm
        >>> world = MeshWorld()
        >>> world.add("block", Cuboid((0.3, 0.3, 0.3)), (0.5, 0.0, 0.5, 1, 0, 0, 0))
        0
        >>> term = CollisionTerm(load_panda(), world)
        >>> bool((term(torch.tensor([[[0, 0.4, 0, -1.6, 0, 2, 0.8]] * 2])) > 0).all())
        True
    """

    def __init__(
        self,
        robot: RobotSpheres,
        world: MeshWorld,
        *,
        weight: float = 20.0,
        activation_distance: float = 0.05,
        self_weight: float = SELF_WEIGHT,
        self_activation_distance: float = 0.02,
        substeps: int = 1,
        tolerance: float = 5e-3,
        pairs: SelfCollisionPairs | None = None,
        ignore: Iterable[tuple[str, str]] = (),
        env_index: Tensor | None = None,
        base_pose: PoseLike | None = None,
    ):
        self.robot, self.world = robot, world
        if not (base_pose is None or isinstance(base_pose, Tensor)):
            base_pose = validate.check_pose("base_pose", base_pose).to(world.device)
        self.env_index, self.base_pose = env_index, base_pose
        # One pose for all has one axis, or two if it is a matrix.
        shape = () if base_pose is None else tuple(base_pose.shape)
        self._has_bases = len(shape) == 3 or (len(shape) == 2 and shape != (4, 4))
        self._options: dict[str, Any] = {
            "weight": weight,
            "activation_distance": activation_distance,
            "self_weight": self_weight,
            "self_activation_distance": self_activation_distance,
            "substeps": substeps,
            "tolerance": tolerance,
            "pairs": pairs,
            "ignore": tuple(ignore),
        }

    def __repr__(self) -> str:
        return f"CollisionTerm({self.robot!r}, {self.world!r})"

    def __call__(self, joints: Tensor, problem: Tensor | None = None) -> Tensor:
        """The cost (batch, horizon) of joint paths (batch, horizon, n_joints).

        Args:
            joints: the paths.
            problem: (batch,) int64, which problem each path is of; the paths themselves if None.
        """
        index, base = self.env_index, self.base_pose
        if index is not None and problem is not None:
            index = index[problem]
        if base is not None and problem is not None and self._has_bases:
            base = base[problem]
        return joint_path_cost(
            joints, self.robot, self.world, env_index=index, base_pose=base, **self._options
        )


class SmoothnessTerm:
    """Half the squared joint velocity, integrated along the path, which takes unit time.

    The cheapest of the paths along one line is that at constant speed: half its squared length.

    Args:
        weight: factor of the cost.

    Example:
        >>> import torch
        >>> from warp_collision.planning import SmoothnessTerm
        >>> SmoothnessTerm()(torch.tensor([[[0.0], [1.0], [2.0]]])).tolist()
        [2.0]
    """

    def __init__(self, weight: float = 1.0):
        self.weight = float(weight)

    def __repr__(self) -> str:
        return f"SmoothnessTerm(weight={self.weight})"

    def __call__(self, joints: Tensor) -> Tensor:
        """The cost (batch,) of joint paths (batch, horizon, n_joints)."""
        steps = joints[:, 1:] - joints[:, :-1]
        return (0.5 * self.weight * (joints.shape[1] - 1)) * steps.square().sum((1, 2))


class JointLimitsTerm:
    """Half the squared distance of joint values beyond their limits.

    Args:
        limits: (n_joints, 2) lower and upper limits [rad or m], such as `robot.joint_limits`.
        weight: factor of the cost.
        buffer: distance to the limits within which a joint value costs [rad or m].

    Example:
        >>> import torch
        >>> from warp_collision.planning import JointLimitsTerm
        >>> term = JointLimitsTerm(torch.tensor([[-1.0, 1.0]]), weight=2.0)
        >>> term(torch.tensor([[[0.0], [1.5]]])).tolist()
        [[0.0, 0.25]]
    """

    def __init__(self, limits: Tensor, *, weight: float = 100.0, buffer: float = 0.0):
        if not isinstance(limits, Tensor) or limits.ndim != 2 or limits.shape[1] != 2:
            raise ValueError(
                f"limits must have shape (n_joints, 2), got {validate.shape_of(limits)}"
            )
        self.lower, self.upper = (limits[:, 0] + buffer, limits[:, 1] - buffer)
        self.weight = float(weight)

    def __repr__(self) -> str:
        return f"JointLimitsTerm({len(self.lower)} joints, weight={self.weight})"

    def __call__(self, joints: Tensor) -> Tensor:
        """The cost (batch, horizon) of joint paths (batch, horizon, n_joints)."""
        if self.lower.device != joints.device:
            self.lower, self.upper = self.lower.to(joints.device), self.upper.to(joints.device)
        beyond = joints - torch.clamp(joints, self.lower, self.upper)
        return 0.5 * self.weight * beyond.square().sum(-1)


class Objective:
    """The sum of terms, each a number for each path.

    Args:
        terms: callables of joints (batch, horizon, n_joints) that return (batch, horizon) or
            (batch,). One with a parameter `problem` is given (batch,) int64 by that name: which
            problem each path is of.
    """

    def __init__(self, terms: Sequence[Term]):
        for term in terms:
            if not callable(term):
                raise TypeError(f"terms must be callables, got {type(term).__name__}")
        self._terms = [(term, _takes_problem(term)) for term in terms]

    def __call__(self, joints: Tensor, problem: Tensor, when: str | None = "") -> Tensor:
        """The cost (batch,) of paths, each of a problem (batch,).

        Args:
            joints: (batch, horizon, n_joints).
            problem: (batch,) int64.
            when: what an error says of the moment; if None, what is not finite is no error.

        Raises:
            ValueError: a term is of another shape, NaN or infinite; the message names it.
        """
        costs = [_cost_of(term, joints, problem) for term in self._terms]
        total = joints.new_zeros(len(joints))
        for cost in costs:
            total = total + (cost.sum(1) if cost.ndim == 2 else cost)
        if when is not None and not bool(total.isfinite().all()):
            for (term, _), cost in zip(self._terms, costs, strict=True):
                _require_finite(cost, _name_of(term), problem, when)
            _require_finite(total, "the sum of all terms", problem, when)
        return total

    def gradient(self, joints: Tensor, problem: Tensor, when: str = "") -> Tensor:
        """Derivative of the cost by the joints, of their shape; arguments as for the cost.

        Raises:
            ValueError: as the cost, and where a derivative is NaN or infinite.
        """
        joints = joints.detach().requires_grad_()
        with torch.enable_grad():
            total = self(joints, problem, None)
            (gradient,) = torch.autograd.grad(total.sum(), joints)
        # The host waits once for both.
        if not bool(total.isfinite().all() & gradient.isfinite().all()):
            self(joints, problem, when)  # names a cost that is not finite
            self._require_finite_gradients(joints, problem, when)
            _require_finite(gradient, "the derivative of the sum of all terms", problem, when)
        return gradient

    def _require_finite_gradients(self, joints: Tensor, problem: Tensor, when: str) -> None:
        for term in self._terms:
            with torch.enable_grad():
                cost = _cost_of(term, joints, problem)
            if cost.requires_grad:
                (gradient,) = torch.autograd.grad(cost.sum(), joints, allow_unused=True)
                name = f"the derivative of {_name_of(term[0])}"
                if gradient is not None:
                    _require_finite(gradient, name, problem, when)


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

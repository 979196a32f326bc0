"""Planning: batched trajectory optimisation whose paths are proven free."""

from warp_collision.planning.optimize import PlannedPaths, optimize_paths
from warp_collision.planning.search import PlanningProgress
from warp_collision.planning.terms import CollisionTerm, JointLimitsTerm, SmoothnessTerm

__all__ = [
    "CollisionTerm",
    "JointLimitsTerm",
    "PlannedPaths",
    "PlanningProgress",
    "SmoothnessTerm",
    "optimize_paths",
]

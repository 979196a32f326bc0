"""Planning: joint paths that are proven free, the first ones soon and better ones after them."""

from warp_collision.planning.endpoints import NearEnd
from warp_collision.planning.guard import GuardedStep, MotionGuard, Refusal
from warp_collision.planning.limit_files import load_motion_limits
from warp_collision.planning.optimize import optimize_paths
from warp_collision.planning.planned_paths import PlannedPaths
from warp_collision.planning.planner import Planner
from warp_collision.planning.search import PlanningProgress
from warp_collision.planning.terms import CollisionTerm, JointLimitsTerm, SmoothnessTerm
from warp_collision.planning.timing import TimedPaths, timed

__all__ = [
    "CollisionTerm",
    "GuardedStep",
    "JointLimitsTerm",
    "MotionGuard",
    "NearEnd",
    "PlannedPaths",
    "Planner",
    "PlanningProgress",
    "Refusal",
    "SmoothnessTerm",
    "TimedPaths",
    "load_motion_limits",
    "optimize_paths",
    "timed",
]

"""GPU collision costs on NVIDIA Warp: signed distance and swept spheres as torch functions."""

from warp_collision import sampling
from warp_collision.collision_cost import CollisionCost, Constraint
from warp_collision.costs import (
    Clearance,
    SignedDistance,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_sphere_cost,
)
from warp_collision.least_squares import (
    GaussNewton,
    clearance_residuals,
    cost_residuals,
    gauss_newton,
)
from warp_collision.obstacles.geometry import MeshReport
from warp_collision.validate import checking
from warp_collision.world import MeshWorld

__all__ = [
    "Clearance",
    "CollisionCost",
    "Constraint",
    "GaussNewton",
    "MeshReport",
    "MeshWorld",
    "SignedDistance",
    "checking",
    "clearance",
    "clearance_residuals",
    "cost_residuals",
    "gauss_newton",
    "in_collision",
    "sampling",
    "signed_distance",
    "sphere_cost",
    "swept_sphere_cost",
]

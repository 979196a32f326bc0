"""GPU collision costs on NVIDIA Warp: signed distance and swept spheres as torch functions.

Words and conventions, the same in code, tests and documentation:

- **signed distance** (sdf) [m] from a point to a closed surface: negative inside, positive outside.
  Its gradient is unit and points outward, where distance grows.
- **clearance** of a sphere: sdf(center) - radius; its penetration is max(0, -clearance).
- **spheres** (batch, horizon, n_spheres, 4) float32: x, y, z, radius in the world frame. A radius
  below 0 disables a sphere: its cost and gradient are 0.
- **pose** (x, y, z, qw, qx, qy, qz) of an obstacle in the world. Transforms are named b_from_a, so
  that they chain by reading; kernels read the inverse, mesh_from_world.
- **env**: one of several parallel scenes; env_index (batch,) says which one each row is for.

The cost of a sphere against one obstacle, with eta the activation distance and
d = radius + eta - sdf(center), is the smoothed hinge

    h(d) = 0 up to d = 0, d^2 / (2 eta) up to eta, d - eta / 2 beyond,

once continuously differentiable and exact at every depth; the costs of all enabled obstacles are
added. The minus sign between a cost and the gradient of a distance appears once, in the cost.

Spheres move on straight lines between waypoints. Waypoint t owns the half segment before it
and the half segment after it, and costs h(radius + eta - m) with m the smallest sdf along them,
certified to a tolerance: the sdf is 1-Lipschitz, so that a sample of value f rules out values below
m within f - m. At rest this is the cost above; reversed in time the costs are reversed.

Values that are not finite give NaN costs and collisions, never free space. Backward is the exact
vector-Jacobian product for any incoming gradient; second derivatives are not defined and raise.

Names are imported when they are first used: torch and Warp take seconds.
"""

import importlib
from typing import TYPE_CHECKING, Any

from warp_collision.notebooks import show_in_notebooks

if TYPE_CHECKING:
    from warp_collision import sampling
    from warp_collision.collision_cost import CollisionCost, Constraint
    from warp_collision.collisions import any_in_collision, in_collision, swept_in_collision
    from warp_collision.costs import (
        Clearance,
        SignedDistance,
        clearance,
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
    from warp_collision.obstacles.camera import Camera, CameraWarning
    from warp_collision.obstacles.depth_options import DepthCounts, DepthOptions
    from warp_collision.obstacles.height_field import HeightField
    from warp_collision.obstacles.mesh_report import MeshReport, OpenMeshWarning
    from warp_collision.obstacles.occupancy_map import OccupancyMap
    from warp_collision.obstacles.point_cloud import PointCloud, thin
    from warp_collision.obstacles.shapes import Capsule, Cone, Cuboid, Cylinder, HalfSpace, Sphere
    from warp_collision.obstacles.units import UnitsWarning
    from warp_collision.obstacles.voxel_grid import VoxelGrid
    from warp_collision.robot import (
        JointPathClearance,
        LinkDistances,
        RobotSpheres,
        SelfClearance,
        SelfCollisionPairs,
        configuration_in_collision,
        joint_path_clearance,
        joint_path_cost,
        joint_path_in_collision,
        link_distances,
        self_clearance,
        self_collision_cost,
    )
    from warp_collision.validate import checking
    from warp_collision.world import MeshWorld

__all__ = [
    "Camera",
    "CameraWarning",
    "Capsule",
    "Clearance",
    "CollisionCost",
    "Cone",
    "Constraint",
    "Cuboid",
    "Cylinder",
    "DepthCounts",
    "DepthOptions",
    "GaussNewton",
    "HalfSpace",
    "HeightField",
    "JointPathClearance",
    "LinkDistances",
    "MeshReport",
    "MeshWorld",
    "OccupancyMap",
    "OpenMeshWarning",
    "PointCloud",
    "RobotSpheres",
    "SelfClearance",
    "SelfCollisionPairs",
    "SignedDistance",
    "Sphere",
    "UnitsWarning",
    "VoxelGrid",
    "any_in_collision",
    "checking",
    "clearance",
    "clearance_residuals",
    "configuration_in_collision",
    "cost_residuals",
    "gauss_newton",
    "in_collision",
    "joint_path_clearance",
    "joint_path_cost",
    "joint_path_in_collision",
    "link_distances",
    "sampling",
    "self_clearance",
    "self_collision_cost",
    "signed_distance",
    "sphere_cost",
    "swept_in_collision",
    "swept_sphere_cost",
    "thin",
]

_MODULES = {
    "collision_cost": ("CollisionCost", "Constraint"),
    "collisions": ("any_in_collision", "in_collision", "swept_in_collision"),
    "costs": (
        "Clearance",
        "SignedDistance",
        "clearance",
        "signed_distance",
        "sphere_cost",
        "swept_sphere_cost",
    ),
    "least_squares": ("GaussNewton", "clearance_residuals", "cost_residuals", "gauss_newton"),
    "obstacles.camera": ("Camera", "CameraWarning"),
    "obstacles.depth_options": ("DepthCounts", "DepthOptions"),
    "obstacles.units": ("UnitsWarning",),
    "obstacles.height_field": ("HeightField",),
    "obstacles.mesh_report": ("MeshReport", "OpenMeshWarning"),
    "obstacles.occupancy_map": ("OccupancyMap",),
    "obstacles.point_cloud": ("PointCloud", "thin"),
    "obstacles.shapes": ("Capsule", "Cone", "Cuboid", "Cylinder", "HalfSpace", "Sphere"),
    "obstacles.voxel_grid": ("VoxelGrid",),
    "robot": (
        "JointPathClearance",
        "LinkDistances",
        "RobotSpheres",
        "SelfClearance",
        "SelfCollisionPairs",
        "configuration_in_collision",
        "joint_path_clearance",
        "joint_path_cost",
        "joint_path_in_collision",
        "link_distances",
        "self_clearance",
        "self_collision_cost",
    ),
    "validate": ("checking",),
    "world": ("MeshWorld",),
}
_SUBPACKAGES = "examples io planning poses robot sampling viewer warp_primitives".split()
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def _notebook_html(value: Any) -> str:
    """The viewer's representation of a value; it is imported when a notebook asks."""
    return importlib.import_module("warp_collision.viewer.notebook").html_of(value)


show_in_notebooks(_notebook_html)


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("warp-collision")
    elif name in _MODULE_OF:
        value = getattr(importlib.import_module(f"warp_collision.{_MODULE_OF[name]}"), name)
    elif name in _SUBPACKAGES:
        value = importlib.import_module(f"warp_collision.{name}")
    else:
        raise AttributeError(f"module 'warp_collision' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, imported or not."""
    return sorted({*globals(), *__all__})

"""The world model: `MeshWorld` with names, slots and errors.

It has a storage of device tables, which kernels read, and an acceleration: the broad phase over the
obstacles' boxes, and the obstacles' own grids, built lazily at the first query.
"""

from warp_collision.world.mesh_world import MeshWorld

__all__ = ["MeshWorld"]

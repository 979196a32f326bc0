"""Files to mappings of obstacles and poses: scenes that trimesh reads, YAML worlds, spheres."""

from warp_collision.io.files import load_spheres, load_world_file
from warp_collision.io.scene import Obstacle, scene_meshes

__all__ = ["Obstacle", "load_spheres", "load_world_file", "scene_meshes"]

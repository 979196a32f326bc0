"""World files to obstacles with poses, and back; arrays of spheres."""

from warp_collision.io.content import LeftOut, LeftOutWarning, Obstacle
from warp_collision.io.files import load_spheres, load_world_file, load_world_mapping
from warp_collision.io.scene import scene_meshes
from warp_collision.io.writing import obstacle_scene, save_world_file

__all__ = [
    "LeftOut",
    "LeftOutWarning",
    "Obstacle",
    "load_spheres",
    "load_world_file",
    "load_world_mapping",
    "obstacle_scene",
    "save_world_file",
    "scene_meshes",
]

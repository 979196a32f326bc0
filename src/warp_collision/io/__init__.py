"""World files to obstacles with poses, and back; arrays of spheres.

Names are imported when they are first used: readers of files import trimesh.
"""

from typing import TYPE_CHECKING

from warp_collision.lazy_names import lazy_names

if TYPE_CHECKING:
    from warp_collision.io.arrays import load_joints, load_spheres
    from warp_collision.io.files import load_world_file, load_world_mapping, save_world_file
    from warp_collision.io.scene import obstacle_scene, scene_meshes
    from warp_collision.io.scene_builder import LeftOut, LeftOutWarning, Obstacle

__all__ = [
    "LeftOut",
    "LeftOutWarning",
    "Obstacle",
    "load_joints",
    "load_spheres",
    "load_world_file",
    "load_world_mapping",
    "obstacle_scene",
    "save_world_file",
    "scene_meshes",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "scene_builder": ("LeftOut", "LeftOutWarning", "Obstacle"),
        "arrays": ("load_joints", "load_spheres"),
        "files": ("load_world_file", "load_world_mapping", "save_world_file"),
        "scene": ("obstacle_scene", "scene_meshes"),
    },
)

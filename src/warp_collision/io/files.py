"""Files to obstacles and spheres: scenes that trimesh reads, YAML worlds, NumPy arrays."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from warp_collision.formats.mesh_files import is_file
from warp_collision.formats.numpy_arrays import read_spheres
from warp_collision.io.scene import Obstacle, obstacle, read_parts
from warp_collision.io.yaml_world import read_yaml_world
from warp_collision.messages import escaped

_YAML_SUFFIXES = (".yaml", ".yml")


def load_world_file(path: str | os.PathLike[str]) -> dict[str, Obstacle]:
    """Reads the obstacles of a world file, ready for `MeshWorld.load`.

    Two kinds of files are read; both are in metres unless the file declares another unit.

    **A mesh or scene that trimesh reads** (.glb, .gltf, .obj, .stl, .ply, .off, .dae, ...). Every
    node of the scene graph that has a mesh becomes an obstacle under the node's name, so that
    instances of one geometry have names of their own; a file of a single mesh gives one obstacle
    named as the file without its ending. The rigid part of a node's transform becomes the pose;
    scale, shear and mirroring are baked into the vertices. Axes stay as the file has them: a
    Y-up file gives a Y-up world.

    **YAML** (.yaml, .yml), with any of these keys, and names that are unique in the whole file::

        mesh:     {shelf: {file_path: shelf.stl, pose: [0, 0, 0, 1, 0, 0, 0], scale: 0.001}}
        cuboid:   {table: {dims: [1.0, 0.6, 0.04], pose: [0.5, 0, 0.4, 1, 0, 0, 0]}}
        cylinder: {can: {radius: 0.03, height: 0.14, pose: [0.5, 0, 0.49, 1, 0, 0, 0]}}
        sphere:   {ball: {radius: 0.05, position: [0.5, 0.2, 0.47]}}
        capsule:  {arm: {radius: 0.05, base: [0, 0, 0], tip: [0, 0, 0.3], pose: [...]}}

    `pose` is x, y, z, qw, qx, qy, qz of the obstacle in the world; the quaternion may have any
    length but 0. `file_path` is relative to the YAML file; a file of several parts becomes one
    mesh. `scale` (optional) is one positive number or three. A cuboid is centered on its pose, and
    so is a cylinder, whose axis is z. A sphere takes `position` or `pose`. The axis of a capsule
    goes from `base` to `tip`, in the frame of its pose. `color` is ignored.

    Shapes are exact, see `warp_collision.Cuboid`, `Cylinder`, `Sphere` and `Capsule`.

    **Limits.** Whatever a file holds and this function would have to leave out is an error: a
    truncated list of faces, a part that is no triangle mesh, sparse or compressed glTF accessors,
    a skinned mesh, an archive. Files that a mesh file refers to lie in its folder or below. A file
    has at most 50 million faces, all instances counted, and coordinates below 1e9; YAML at most
    8 MiB, 500,000 values with aliases and merges expanded, and 32 levels; XML at most 256 MiB, 100
    levels, and no document type, so no entities.

    Args:
        path: the file.

    Returns:
        Name to (mesh or shape, pose), in the order of the file; at least one.

    Raises:
        FileNotFoundError: the file, or a mesh file that it names, does not exist.
        ImportError: a YAML file, and PyYAML is not installed.
        ValueError: anything else that is wrong with the file: unreadable, an unknown or missing
            key, a name used twice, a bad number, no obstacle at all. It names the file, the key,
            the rule and the value.

    Example:
        >>> import tempfile
        >>> from warp_collision.io import load_world_file
        >>> text = "cuboid: {table: {dims: [1, 1, 0.1], pose: [0, 0, 0.5, 1, 0, 0, 0]}}"
        >>> with tempfile.NamedTemporaryFile("w+", suffix=".yaml") as file:
        ...     print(text, file=file, flush=True)
        ...     list(load_world_file(file.name))
        ['table']
    """
    path = _existing(path)
    if path.suffix.lower() in _YAML_SUFFIXES:
        obstacles = read_yaml_world(path)
    else:
        found = read_parts(path)
        names = [path.stem] if len(found) == 1 else [part.name for part in found]
        obstacles = {name: obstacle(part) for name, part in zip(names, found, strict=True)}
    if not obstacles:
        raise ValueError(
            f"{escaped(str(path))}: holds no obstacle, so every check against it would be free"
        )
    return obstacles


def load_spheres(path: str | os.PathLike[str]) -> torch.Tensor:
    """Reads spheres from a NumPy file.

    Args:
        path: a .npy file, or an .npz file with an array `spheres` or with a single array, stored or
            deflated, of at most 1 GiB if it is compressed. The array holds x, y, z, radius in
            metres along its last axis, with shape (n_spheres, 4), (horizon, n_spheres, 4) or
            (batch, horizon, n_spheres, 4); integers and other floats are converted to float32. A
            negative radius disables a sphere.

    Returns:
        (batch, horizon, n_spheres, 4) float32 on the CPU; missing leading axes have length 1.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is no such file, or damaged, or the array has another shape, no spheres,
            another kind of values, or values that are not finite.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from warp_collision.io import load_spheres
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file.name, np.ones((32, 59, 4)))
        ...     load_spheres(file.name).shape
        torch.Size([1, 32, 59, 4])
    """
    path = _existing(path)
    array = read_spheres(path)
    with np.errstate(over="ignore"):  # a double beyond float32 becomes inf, refused below
        spheres = array.astype(np.float32)
    bad = np.argwhere(~np.isfinite(spheres).all(axis=-1))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"{escaped(str(path))}: spheres must be finite, got {array[index]} at index {index}"
        )
    return torch.from_numpy(spheres.reshape((1,) * (4 - spheres.ndim) + spheres.shape))


def _existing(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    if not is_file(path):
        raise FileNotFoundError(f"{escaped(str(path))}: no such file")
    return path

"""Files to obstacles and spheres: scenes that trimesh reads, YAML worlds, NumPy arrays."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import torch

from warp_collision.io.scene import Obstacle, obstacle, one_line, read_parts
from warp_collision.io.yaml_world import read_yaml_world

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

    `pose` is x, y, z, qw, qx, qy, qz of the obstacle in the world; the quaternion may have any
    length but 0. `file_path` is relative to the YAML file; a file of several parts becomes one
    mesh. `scale` (optional) is one positive number or three. A cuboid is centered on its pose, and
    so is a cylinder, whose axis is z. A sphere takes `position` or `pose`. `color` is ignored.

    Cylinders and spheres are tessellated from the **outside**: the mesh contains the exact body, so
    clearance is never overestimated. Vertices stick out by at most 0.031 % of the radius for a
    cylinder (128 sides) and 0.12 % for a sphere (5,120 triangles).

    Args:
        path: the file.

    Returns:
        Name to (mesh, pose), in the order of the file; at least one.

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
        raise ValueError(f"{path}: holds no obstacle, so every check against it would be free")
    return obstacles


def load_spheres(path: str | os.PathLike[str]) -> torch.Tensor:
    """Reads spheres from a NumPy file.

    Args:
        path: a .npy file, or an .npz file with an array `spheres` or with a single array. The array
            holds x, y, z, radius in metres along its last axis, with shape (n_spheres, 4),
            (horizon, n_spheres, 4) or (batch, horizon, n_spheres, 4); integers and other floats are
            converted to float32. A negative radius disables a sphere.

    Returns:
        (batch, horizon, n_spheres, 4) float32 on the CPU; missing leading axes have length 1.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is no such file, or the array has another shape, no spheres, another kind of
            values, or values that are not finite.

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
    array = _read_array(path)
    if not np.issubdtype(array.dtype, np.floating) and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{path}: spheres must be numbers, got dtype {array.dtype}")
    if array.ndim not in (2, 3, 4) or array.shape[-1] != 4:
        raise ValueError(
            f"{path}: spheres must have shape (n_spheres, 4), (horizon, n_spheres, 4) or "
            f"(batch, horizon, n_spheres, 4), got {array.shape}"
        )
    if array.size == 0:
        raise ValueError(f"{path}: holds no spheres, got shape {array.shape}")
    with np.errstate(over="ignore"):  # a double beyond float32 becomes inf, refused below
        spheres = array.astype(np.float32)
    bad = np.argwhere(~np.isfinite(spheres).all(axis=-1))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        raise ValueError(f"{path}: spheres must be finite, got {array[index]} at index {index}")
    return torch.from_numpy(spheres.reshape((1,) * (4 - spheres.ndim) + spheres.shape))


def _existing(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    return path


def _read_array(path: Path) -> np.ndarray:
    if path.suffix.lower() not in (".npy", ".npz"):
        raise ValueError(f"{path}: spheres must be a .npy or .npz file, got {path.suffix!r}")
    try:
        with path.open("rb") as file:  # np.load by path leaves a broken .npz open
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            keys = list(loaded.files)
            if "spheres" not in keys and len(keys) != 1:
                raise ValueError(f"must hold an array 'spheres' or a single array, got {keys}")
            return loaded["spheres" if "spheres" in keys else keys[0]]
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: {one_line(error)}") from error

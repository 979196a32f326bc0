"""MuJoCo models as scenes: MJCF files as MuJoCo compiles them, at their initial positions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from warp_collision.formats.extras import import_extra
from warp_collision.formats.limits import MAX_COORDINATE
from warp_collision.formats.mjcf_document import check_mjcf
from warp_collision.io.content import PLANE, Content, Obstacle, errors_begin_with
from warp_collision.io.placing import matrix_from, place_mesh, place_shape
from warp_collision.io.solids import height_field
from warp_collision.messages import escaped
from warp_collision.obstacles.shapes import Capsule, Cuboid, Cylinder, Sphere

_VISUAL = "it collides with nothing: contype and conaffinity are 0, and no contact pair names it"
_PLUGIN = "a signed distance of a plugin"


def add_mjcf(content: Content, path: Path) -> None:
    """Adds the geoms of an MJCF file, where bodies stand at the model's start (`qpos0`).

    A geom has its name; without one that of its body, if it is the only one there, else `body/0`,
    `body/1` and so on. Meshes are as they are, where MuJoCo collides with their convex hulls.
    Height fields are closed meshes of MuJoCo's own triangles, down to their bases.

    Raises:
        ImportError: mujoco is not installed.
        ValueError: MuJoCo cannot compile it; it names the file.
    """
    mujoco = import_extra("mujoco", f"{content.where}: reading MJCF", "mujoco", "mujoco")
    with errors_begin_with(content.where):
        check_mjcf(path)
        with _no_log_file(mujoco):
            spec = mujoco.MjSpec.from_file(str(path))
            _drop_textures(spec)
            _clear_cache(mujoco)
            model = spec.compile()
        frames = _body_frames(model)
    names = _names(model)
    pairs = {*np.ravel(model.pair_geom1).tolist(), *np.ravel(model.pair_geom2).tolist()}
    for geom in range(model.ngeom):
        kind, name = mujoco.mjtGeom(int(model.geom_type[geom])).name, names[geom]
        entry = f"geom {escaped(name)!r}"
        collides = model.geom_contype[geom] or model.geom_conaffinity[geom] or geom in pairs
        if not collides:
            content.leave_out(entry, _VISUAL)
        elif kind == "mjGEOM_PLANE":
            content.leave_out(entry, PLANE)
        elif kind == "mjGEOM_SDF" and model.geom_plugin[geom] >= 0:
            content.leave_out(entry, _PLUGIN)
        else:
            with errors_begin_with(f"{content.where}: {entry}"):
                own = _matrix(model.geom_pos[geom], model.geom_quat[geom])
                matrix = frames[model.geom_bodyid[geom]] @ own
                obstacle = _obstacle(model, geom, kind, matrix)
            content.add(name, obstacle)
    for index in range(model.nflex):
        content.leave_out(f"flex {model.flex(index).name!r}", "a body that deforms")


@contextlib.contextmanager
def _no_log_file(mujoco: Any) -> Iterator[None]:
    """Keeps MuJoCo's warnings out of a log file; a warning of NaN is an error."""
    said: list[str] = []
    previous = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(said.append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(previous)
    for warning in said:
        if "nan" in warning.lower():
            raise ValueError(f"numbers must be finite: {escaped(warning.strip(), 100)}")


def _obstacle(model: Any, geom: int, kind: str, matrix: np.ndarray) -> Obstacle:
    x, y, z = (float(size) for size in model.geom_size[geom])
    if kind == "mjGEOM_BOX":
        return place_shape(Cuboid((2.0 * x, 2.0 * y, 2.0 * z)), matrix)
    if kind == "mjGEOM_SPHERE":
        return place_shape(Sphere(x), matrix)
    if kind == "mjGEOM_CAPSULE":
        return place_shape(Capsule(radius=x, length=2.0 * y), matrix)
    if kind == "mjGEOM_CYLINDER":
        return place_shape(Cylinder(radius=x, height=2.0 * y), matrix)
    if kind == "mjGEOM_ELLIPSOID":
        stretch = np.diag([x, y, z, 1.0])
        return place_shape(Sphere(1.0), matrix @ stretch)
    if kind == "mjGEOM_HFIELD":
        return place_mesh(_height_field(model, int(model.geom_dataid[geom])), matrix)
    if kind not in ("mjGEOM_MESH", "mjGEOM_SDF"):
        raise ValueError(f"a geom of this type is not known, got {kind}")
    return place_mesh(_mesh(model, int(model.geom_dataid[geom])), matrix)


def _height_field(model: Any, index: int) -> trimesh.Trimesh:
    shape = int(model.hfield_nrow[index]), int(model.hfield_ncol[index])
    first = int(model.hfield_adr[index])
    heights = np.array(model.hfield_data[first : first + shape[0] * shape[1]], np.float64)
    half_x, half_y, top, base = (float(size) for size in model.hfield_size[index])
    if not (np.isfinite(heights).all() and max(half_x, half_y, top, base) < MAX_COORDINATE):
        raise ValueError("a height field must have finite heights and sizes below 1e9")
    return height_field(top * heights.reshape(shape), half_x, half_y, base)


def _mesh(model: Any, index: int) -> trimesh.Trimesh:
    first, count = int(model.mesh_vertadr[index]), int(model.mesh_vertnum[index])
    vertices = np.array(model.mesh_vert[first : first + count], np.float64)
    first, count = int(model.mesh_faceadr[index]), int(model.mesh_facenum[index])
    faces = np.array(model.mesh_face[first : first + count], np.int64)
    if count == 0:
        raise ValueError("a mesh must have faces, got none")
    return trimesh.Trimesh(vertices, faces, process=False)


def _drop_textures(spec: Any) -> None:
    """Removes textures, whose files are not needed."""
    for material in list(spec.materials):
        material.textures = [""] * len(material.textures)
    for texture in list(spec.textures):
        if hasattr(spec, "delete"):
            spec.delete(texture)
        else:  # before MuJoCo 3.3.3
            texture.delete()


def _clear_cache(mujoco: Any) -> None:
    """Clears MuJoCo's cache, which confuses files of one name that were written in one second."""
    if hasattr(mujoco, "mj_clearCache"):  # not in every release
        mujoco.mj_clearCache(mujoco.mj_getCache())


def _body_frames(model: Any) -> list[np.ndarray]:
    """The frame (4, 4) of each body in the world, where every joint is at its start."""
    frames: list[np.ndarray] = []
    for body in range(model.nbody):
        own = _matrix(model.body_pos[body], model.body_quat[body])
        parent = int(model.body_parentid[body])
        frames.append(frames[parent] @ own if body else own)
    return frames


def _matrix(position: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
    # MuJoCo lets infinity pass; products must not overflow, and worlds have a limit of their own.
    if not (np.abs([*position, *quaternion]) < 1e100).all():
        raise ValueError(
            f"positions and quaternions must be finite and below 1e100, got {position.tolist()} "
            f"and {quaternion.tolist()}"
        )
    return matrix_from((*position, *quaternion))


def _names(model: Any) -> list[str]:
    """The name of each geom."""
    names = []
    for geom in range(model.ngeom):
        name = model.geom(geom).name
        if not name:
            body = int(model.geom_bodyid[geom])
            name = model.body(body).name or f"body{body}"
            if model.body_geomnum[body] > 1:
                name = f"{name}/{geom - int(model.body_geomadr[body])}"
        names.append(name)
    return names

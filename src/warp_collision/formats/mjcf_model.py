"""MJCF files as MuJoCo compiles them, as plain values; MuJoCo runs in the worker process."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warp_collision.formats.files import is_file, read_xml
from warp_collision.formats.joint_values import joint_value, require_joint_names
from warp_collision.formats.worker import allow, run_limited
from warp_collision.messages import escaped


class MjcfGeom(NamedTuple):
    """A geom.

    Attributes:
        name: its own; without one that of its body, if it is the only one there, else `body/0`,
            `body/1` and so on.
        kind: "box", "sphere", "mesh" and so on, as in `mjtGeom`.
        body: index of its body.
        pose: x, y, z, qw, qx, qy, qz in the frame of its body, not checked.
        sizes: (3,) as MuJoCo has them.
        collides: whether it collides with anything.
        is_plugin: it is computed by a plugin.
        data: index of its mesh or height field, or -1.
    """

    name: str
    kind: str
    body: int
    pose: np.ndarray
    sizes: np.ndarray
    collides: bool
    is_plugin: bool
    data: int


class MjcfModel(NamedTuple):
    """What a model has of geometry, where joints are at their start (`qpos0`) or at given values.

    Attributes:
        bodies: of each body the one in whose frame its pose is, and that pose; the world first.
        geoms: in the order of the model.
        meshes: vertices (n, 3) and faces (n, 3) of each.
        height_fields: heights (n_rows, n_columns) from 0 to 1, and half x, half y, top and base.
        flexes: names of deformable bodies.
    """

    bodies: list[tuple[int, np.ndarray]]
    geoms: list[MjcfGeom]
    meshes: list[tuple[np.ndarray, np.ndarray]]
    height_fields: list[tuple[np.ndarray, np.ndarray]]
    flexes: list[str]


def read_model(path: Path, values: Mapping[str, float]) -> MjcfModel:
    """Compiles an MJCF file, with its hinges and slides at values [rad, m].

    Raises:
        ValueError: MuJoCo cannot compile it, or not within the limits of the worker; an unknown
            joint, or a value beyond its range.
    """
    path_and_values = os.path.abspath(path), dict(values)
    return run_limited(_read, *path_and_values, library="MuJoCo", imports=("mujoco",))


def _find_included(path: Path, folder: Path) -> None:
    """Looks for the files that a model includes, so that `found_files` has them."""
    is_file(path)
    for element in read_xml(path).iter("include"):
        _find_included(folder / element.attrib["file"], folder)


def _read(path: str, values: dict[str, float]) -> MjcfModel:
    mujoco: Any = importlib.import_module("mujoco")
    warnings: list[str] = []
    mujoco.set_mju_user_warning(warnings.append)
    _clear_cache(mujoco)
    allow(os.path.getsize(path))
    spec: Any = mujoco.MjSpec.from_file(path)
    with contextlib.suppress(ValueError):  # XML that MuJoCo alone reads
        _find_included(Path(path), Path(path).parent)
    _drop_textures(spec)
    for asset in (*spec.meshes, *spec.hfields):
        file = Path(path).parent / spec.meshdir / asset.file
        if asset.file and is_file(file):
            allow(file.stat().st_size)
    model: Any = spec.compile()
    for warning in warnings:
        if "nan" in warning.lower():
            raise ValueError(f"numbers must be finite: {escaped(warning.strip(), 100)}")
    pairs = {*np.ravel(model.pair_geom1).tolist(), *np.ravel(model.pair_geom2).tolist()}
    body_poses = np.concatenate((model.body_pos, model.body_quat), axis=1)
    parents = model.body_parentid.tolist()
    if values:  # then poses are in the world
        body_poses, parents = _moved(mujoco, model, values), [0] * model.nbody
    poses = np.concatenate((model.geom_pos, model.geom_quat), axis=1)
    return MjcfModel(
        list(zip(parents, body_poses, strict=True)),
        [
            MjcfGeom(
                name=_name(model, geom),
                kind=mujoco.mjtGeom(int(model.geom_type[geom]))
                .name.removeprefix("mjGEOM_")
                .lower(),
                body=int(model.geom_bodyid[geom]),
                pose=poses[geom],
                sizes=model.geom_size[geom].copy(),
                collides=bool(model.geom_contype[geom] or model.geom_conaffinity[geom])
                or geom in pairs,
                is_plugin=bool(model.geom_plugin[geom] >= 0),
                data=int(model.geom_dataid[geom]),
            )
            for geom in range(model.ngeom)
        ],
        [_mesh(model, index) for index in range(model.nmesh)],
        [_height_field(model, index) for index in range(model.nhfield)],
        [model.flex(index).name for index in range(model.nflex)],
    )


def _moved(mujoco: Any, model: Any, values: Mapping[str, float]) -> np.ndarray:
    """Poses (n_bodies, 7) in the world with joints at values."""
    kinds = {int(mujoco.mjtJoint.mjJNT_HINGE): False, int(mujoco.mjtJoint.mjJNT_SLIDE): True}
    slides = {
        model.joint(index).name: kinds[int(kind)]
        for index, kind in enumerate(model.jnt_type)
        if int(kind) in kinds and model.joint(index).name
    }
    data = mujoco.MjData(model)
    for name, value in require_joint_names("joints", values, slides).items():
        joint = model.joint(name)
        low, high = joint.range.tolist() if joint.limited else (-np.inf, np.inf)
        where = f"joints[{name!r}]"
        number = joint_value(where, value, (low, high), slides=slides[name])
        data.qpos[joint.qposadr] = number
    mujoco.mj_kinematics(model, data)
    return np.concatenate((data.xpos, data.xquat), axis=1)


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


def _name(model: Any, geom: int) -> str:
    name = model.geom(geom).name
    if not name:
        body = int(model.geom_bodyid[geom])
        name = model.body(body).name or f"body{body}"
        if model.body_geomnum[body] > 1:
            name = f"{name}/{geom - int(model.body_geomadr[body])}"
    return name


def _mesh(model: Any, index: int) -> tuple[np.ndarray, np.ndarray]:
    first, count = int(model.mesh_vertadr[index]), int(model.mesh_vertnum[index])
    vertices = np.array(model.mesh_vert[first : first + count], np.float64)
    first, count = int(model.mesh_faceadr[index]), int(model.mesh_facenum[index])
    return vertices, np.array(model.mesh_face[first : first + count], np.int64)


def _height_field(model: Any, index: int) -> tuple[np.ndarray, np.ndarray]:
    shape = int(model.hfield_nrow[index]), int(model.hfield_ncol[index])
    first = int(model.hfield_adr[index])
    heights = np.array(model.hfield_data[first : first + shape[0] * shape[1]], np.float64)
    return heights.reshape(shape), model.hfield_size[index].copy()

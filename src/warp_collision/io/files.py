"""Files to obstacles and back, by the endings of their names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from warp_collision.extras import require_extra
from warp_collision.formats.files import existing_file
from warp_collision.formats.joint_values import finite_values
from warp_collision.formats.mesh_files import mesh_endings
from warp_collision.formats.yaml_values import read_yaml
from warp_collision.io.moveit_scene import add_planning_scene, is_planning_scene
from warp_collision.io.scene import obstacle_scene, obstacles_of, read_nodes
from warp_collision.io.scene_builder import Obstacle, SceneBuilder, warn_of_millimetres
from warp_collision.io.urdf_scene import add_urdf
from warp_collision.io.yaml_world import ENTRIES, add_mapping
from warp_collision.messages import escaped, short_repr
from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.shapes import mesh_of
from warp_collision.validate import require_number

_YAML = (".yaml", ".yml")
_URDF = (".urdf",)
_XML = (".xml",)
_GLTF = (".glb", ".gltf")
_UNNAMED = re.compile(r"(geometry_)?[0-9]+")  # what trimesh calls a node without a name
_WORD = re.compile("[A-Za-z_][A-Za-z_0-9/]*")
_USD = (".usd", ".usda", ".usdc", ".usdz")


def load_world_file(
    path: str | os.PathLike[str],
    *,
    strict: bool = False,
    package_dirs: Sequence[str | os.PathLike[str]] = (),
    up: str | None = None,
    scale: float | None = None,
    joints: Mapping[str, float] | None = None,
) -> dict[str, Obstacle]:
    """Reads the obstacles of a world file, ready for `MeshWorld.load`.

    The ending of the name decides the kind of file. All lengths become metres. Boxes, spheres,
    capsules, cylinders and cones become exact shapes. A mesh that contains the exact body replaces
    tapered capsules and cylinders, and what a transform makes of a shape, such as an ellipsoid.
    Prisms become meshes that are the exact body.

    **YAML in cuRobo's layout** (.yaml, .yml), names unique in the whole file::

        mesh:     {shelf: {file_path: shelf.stl, pose: [0, 0, 0, 1, 0, 0, 0], scale: 0.001}}
        cuboid:   {table: {dims: [1.0, 0.6, 0.04], pose: [0.5, 0, 0.4, 1, 0, 0, 0]}}
        cylinder: {can: {radius: 0.03, height: 0.14, pose: [0.5, 0, 0.49, 1, 0, 0, 0]}}
        sphere:   {ball: {radius: 0.05, position: [0.5, 0.2, 0.47]}}
        capsule:
          arm: {radius: 0.05, base: [0, 0, 0], tip: [0, 0, 0.3], pose: [0.5, 0, 0, 1, 0, 0, 0]}
        cone: {pylon: {radius: 0.15, height: 0.5, pose: [0.5, 0.4, 0.25, 1, 0, 0, 0]}}
        half_space: {floor: {normal: [0, 0, 1], offset: -0.01}}

    `pose` is x, y, z, qw, qx, qy, qz of the obstacle in the world; the quaternion may have any
    length but 0. `file_path` is relative to the YAML file; a file of several parts becomes one
    mesh; `vertices` and `faces` may stand in its place. `scale` (optional) is one positive number
    or three; `sign` (optional) is that of `MeshWorld.add`, as "sheet" for a surface without an
    inside. A cuboid is centered on its pose, and so are a cylinder and a cone, whose axes are z.
    The tip of a cone is up. Base and tip of a capsule are points in the frame of its pose. A sphere
    takes `position` or `pose`. cuRobo has no cones and no half spaces. A half space is all below a
    plane; its `pose` and `offset` may be left out. Any obstacle may have `padding` [m] and
    `enabled`. Colours, textures and materials are ignored.

    `voxel: {map: {dims: [2, 2, 1], voxel_size: 0.02, pose: [...], feature_tensor: [...]}}`, a grid
    of distances of cuRobo, is an `EsdfGrid`; `file_path`, an .npz file of one array, may have the
    values. The version of cuRobo follows from their number. Up to 0.7 a side of `dims` has
    1 + floor(side / voxel_size) voxels, and values are positive inside. From 0.8 on it has
    round(side / voxel_size), and values are negative inside. `inside: positive` or `negative`
    decides where the number does not. `error` [m] is that of `VoxelGrid.from_esdf`; without it half
    the diagonal of a voxel is taken, as of distances between centers. It grows by as much as
    cuRobo's own list of centers is off from where its kernels look.

    **MoveIt planning scenes** (.yaml, .yml), with a `world` of `collision_objects`; objects of
    several parts become `id/0`, `id/1` and so on. The polygon of a prism may be concave, its edges
    must not cross.

    **URDF** (.urdf): the collision shapes of all links, at joint values 0 or at `joints`.

    **MJCF** (.xml; needs the extra `mujoco`): the geoms as MuJoCo compiles them, where the
    model starts, or with hinges and slides at `joints`. Geoms whose contype and conaffinity are 0
    collide with nothing and are left out, with a warning. Meshes are as they are, not their convex
    hulls. Height fields are MuJoCo's own triangles, closed by sides and a bottom.

    **USD** (.usd, .usda, .usdc, .usdz; needs the extra `usd`): shapes and meshes of the stage, with
    z up. If anything has a collision API, only what has one is an obstacle; else all that is
    visible is, but guides. Instances of a PointInstancer are `instancer/0`, `instancer/1` and so
    on; native instances have their paths. Sublayers, references and payloads lie in the folder of
    the file or below, or in `package_dirs`.

    **A mesh or scene that trimesh reads** (.glb, .gltf, .obj, .stl, .ply, .off, .dae, ...). Every
    node of the scene graph that has a mesh becomes an obstacle under the node's name. So instances
    of one geometry have names of their own. A file of a single mesh gives one obstacle, named as
    the file without its ending. A glTF file that names its node keeps that name. The rigid part of
    a node's transform becomes the pose. Scale, shear and mirroring are baked into the vertices.
    By its definition, glTF is in metres with y up, and is turned to z up. Pass ``up="z"`` for a
    file whose writer did not turn it, such as trimesh. Other formats have no definition. They are
    read with z up, in the unit that the file declares or in metres. A `UnitsWarning` names a mesh
    longer than 100 m, which may be in millimetres. What `MeshWorld.save` wrote is read as it was.

    **Limits.** What a world cannot hold (MoveIt's planes, voxels without values, octomaps, curves,
    deformable bodies, links without a collision shape) is named in a `LeftOutWarning`. Whatever
    else a file holds and this function would have to leave out is an error: a truncated list of
    faces, a part that is no triangle mesh, sparse or compressed glTF accessors, a skinned mesh, an
    archive.
    Files that a mesh file refers to lie in its folder or below. A file has at most 50 million
    faces, all instances counted, 100,000 obstacles, and coordinates below 1e9. YAML has at most 8
    MiB, 500,000 values with aliases and merges expanded, and 32 levels. USD has at most 1 GiB and
    10,000 layers, with all that is referred to. A worker process reads MJCF, USD, COLLADA and all
    other formats of more than arrays and lines of numbers, because wrong bytes can crash their
    parsers, or keep them busy without end. It has 3 s of one CPU thread and 1 GiB of memory, and
    more for large files. It is started with the first such file, which takes 0.1 s and the import
    of the parser, and is kept.

    Args:
        path: the file.
        strict: raise where there would be a warning of something left out.
        package_dirs: folders in which the packages of ``package://`` names in URDF files are, and
            in which layers of USD files may be, too.
        up: "y" or "z", the axis of a mesh file that points up; None for y in glTF, z in others.
        scale: metres in a unit of a mesh file, 0.001 for millimetres; None for what it declares.
        joints: values [rad, m] of joints of a URDF, MJCF or USD file, as of a door that is open.
            Other joints have their start values, and joints that mimic one of a URDF follow it. In
            USD a joint is named by its prim, or by its path if several prims have this name.

    Returns:
        Name to `Obstacle` (geometry, pose, padding, enabled), in the order of the file; at least
        one.

    Raises:
        TypeError: a scale, or a joint value, that is no number.
        FileNotFoundError: the file, or a mesh file that it names, does not exist.
        ImportError: the library that the kind of file needs is not installed.
        ValueError: anything else that is wrong with the file: unreadable, an unknown or missing
            key, a name used twice, a bad number, no obstacle at all. It names the file, the entry,
            the rule and the value.

    Example:
        >>> import tempfile
        >>> from warp_collision.io import load_world_file
        >>> text = "cuboid: {table: {dims: [1, 1, 0.1], pose: [0, 0, 0.5, 1, 0, 0, 0]}}"
        >>> with tempfile.NamedTemporaryFile("w+", suffix=".yaml") as file:
        ...     print(text, file=file, flush=True)
        ...     load_world_file(file.name)["table"].geometry
        Cuboid(dims=(1.0, 1.0, 0.1))
    """
    path = existing_file(path)
    suffix = path.suffix.lower()
    builder = SceneBuilder(escaped(str(path)))
    is_mesh = suffix.removeprefix(".") in mesh_endings()
    if up not in (None, "y", "z"):
        raise ValueError(f"up must be 'y' or 'z', got {short_repr(up)}")
    if scale is not None:
        require_number("scale", scale, positive=True)
    if not is_mesh and not (up is None and scale is None):
        raise ValueError(f"{builder.where}: up and scale must be None, as it is no mesh file")
    if joints is not None and suffix not in (*_URDF, *_XML, *_USD):
        raise ValueError(
            f"{builder.where}: joints must be None, as it is no URDF, MJCF or USD file"
        )
    values = {} if joints is None else finite_values("joints", joints)
    if suffix in _YAML:
        _add_document(builder, read_yaml(path), path.parent)
    elif suffix in _URDF:
        add_urdf(builder, path, [Path(folder) for folder in package_dirs], values)
    elif suffix in _XML:
        from warp_collision.io.mjcf_scene import add_mjcf

        add_mjcf(builder, path, values)
    elif suffix in _USD:
        from warp_collision.io.usd_scene import add_usd

        add_usd(builder, path, [Path(folder) for folder in package_dirs], values)
    elif not is_mesh:
        endings = ", ".join(
            sorted({*(e[1:] for e in (*_YAML, *_URDF, *_XML, *_USD)), *mesh_endings()})
        )
        raise ValueError(
            f"{builder.where}: the name must end in one of {endings}; got {short_repr(suffix[1:])}"
        )
    else:
        nodes = read_nodes(path, up or ("y" if suffix in _GLTF else "z"), scale)
        named = suffix in _GLTF and not _UNNAMED.fullmatch(nodes[0].name)
        for name, obstacle in obstacles_of(nodes, None if named else path.stem).items():
            builder.add(name, obstacle)
            warn_of_millimetres(
                f"{builder.where}: {escaped(name)}", obstacle.geometry, "scale=0.001"
            )
    return builder.finish(strict)


def load_world_mapping(
    document: Mapping[str, Any],
    *,
    folder: str | os.PathLike[str] = ".",
    strict: bool = False,
) -> dict[str, Obstacle]:
    """Reads obstacles from a Python mapping with the content of a YAML world.

    Args:
        document: kinds to names to values as `load_world_file` has them; numbers may be NumPy's,
            lists may be tuples, arrays or tensors. Or a planning scene of MoveIt.
        folder: what relative paths of mesh files start from.
        strict: raise where there would be a warning of something left out.

    Returns:
        Name to `Obstacle`, as `load_world_file`.

    Raises:
        FileNotFoundError: a mesh file does not exist.
        ValueError: anything that is wrong; it names the key, the rule and the value.

    Example:
        >>> from warp_collision.io import load_world_mapping
        >>> ball = {"radius": 0.1, "position": (0.0, 0.0, 0.5)}
        >>> load_world_mapping({"sphere": {"ball": ball}})["ball"].geometry
        Sphere(radius=0.1)
    """
    builder = SceneBuilder("mapping")
    _add_document(builder, document, Path(folder))
    return builder.finish(strict)


def _add_document(builder: SceneBuilder, document: object, folder: Path) -> None:
    if isinstance(document, dict) and is_planning_scene(document):
        add_planning_scene(builder, document, folder)
    else:
        add_mapping(builder, document, folder)


def save_world_file(path: str | os.PathLike[str], obstacles: Mapping[str, Obstacle]) -> None:
    """Writes obstacles so that `load_world_file` gives back the same.

    Args:
        path: .yaml or .yml for cuRobo's layout, which groups obstacles by kind; meshes, and what
            sensors saw, are written beside it, into a folder of its name and `_meshes`. Or .glb for
            a glTF scene, y up. Other programs read an exact shape there as a mesh around it. Height
            fields become meshes; clouds and grids cannot be written. Existing files are replaced.
        obstacles: at least one, by name.

    Raises:
        ImportError: a YAML file, and PyYAML is not installed.
        ValueError: another ending, or no obstacle.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from warp_collision import Sphere
        >>> from warp_collision.io import Obstacle, load_world_file, save_world_file
        >>> ball = Obstacle(Sphere(0.1), (0, 0, 0.5, 1, 0, 0, 0), padding=0.01)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "world.glb"
        ...     save_world_file(path, {"ball": ball})
        ...     load_world_file(path)["ball"].geometry
        Sphere(radius=0.1)
    """
    path = Path(path)
    where = escaped(str(path))
    if not obstacles:
        raise ValueError(f"{where}: obstacles must be at least one, got none")
    ending = path.suffix.lower()
    if ending in _YAML:
        _write_yaml(path, obstacles)
    elif ending == ".glb":
        for name, obstacle in obstacles.items():
            geometry = obstacle.geometry
            if isinstance(geometry, Sensed) and not geometry.is_its_mesh:
                raise ValueError(
                    f"{where}: a .glb has no place for {short_repr(name)}, a "
                    f"{type(geometry).__name__}; write a .yaml"
                )
            if isinstance(geometry, Sensed):
                obstacles = {**obstacles, name: obstacle._replace(geometry=mesh_of(geometry))}
        exported: Any = obstacle_scene(obstacles, up="y").export(file_type="glb")
        path.write_bytes(exported)
    else:
        raise ValueError(
            f"{where}: the name must end in .yaml, .yml or .glb, got {short_repr(ending)}"
        )


def _write_yaml(path: Path, obstacles: Mapping[str, Obstacle]) -> None:
    require_extra("yaml", f"{path}: writing YAML")
    import yaml

    document: dict[str, dict[str, Any]] = {kind: {} for kind in (*ENTRIES, "mesh")}
    files: dict[int, str] = {}
    for name, obstacle in obstacles.items():
        geometry = obstacle.geometry
        if isinstance(geometry, trimesh.Trimesh):
            kind = "mesh"
            if id(geometry) not in files:
                files[id(geometry)] = _write_mesh(path, name, len(files), geometry)
            values: dict[str, Any] = {"file_path": files[id(geometry)]}
        else:
            kind = geometry.kind.name.lower()
            values = ENTRIES[kind].write(geometry)
        if isinstance(geometry, Sensed):
            if id(geometry) not in files:
                file = _file_beside(path, name, len(files), ".npz")
                arrays: dict[str, Any] = geometry.arrays()
                np.savez(file, **arrays)
                files[id(geometry)] = f"{file.parent.name}/{file.name}"
            values["file_path"] = files[id(geometry)]
        values["pose"] = [float(value) for value in obstacle.pose]
        if obstacle.padding:
            values["padding"] = obstacle.padding
        if not obstacle.enabled:
            values["enabled"] = False
        if obstacle.sign != "auto":
            values["sign"] = obstacle.sign
        document[kind][name] = values
    filled = {kind: named for kind, named in document.items() if named}

    class Dumper(yaml.SafeDumper):
        """Quotes all but plain words: readers differ in what they parse as a number."""

        def represent_str(self, data: str) -> Any:
            style = None if _WORD.fullmatch(data) else '"'
            return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(str, Dumper.represent_str)
    text = yaml.dump(
        filled, None, Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True
    )
    path.write_text(text, encoding="utf-8")


def _write_mesh(path: Path, name: str, index: int, mesh: trimesh.Trimesh) -> str:
    """Writes a mesh beside a YAML file; returns its path from there."""
    file = _file_beside(path, name, index, ".ply")
    bare: Any = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
    file.write_bytes(bare.export(file_type="ply"))
    return f"{file.parent.name}/{file.name}"


def _file_beside(path: Path, name: str, index: int, ending: str) -> Path:
    """A new file for an obstacle, in the folder beside a YAML file."""
    folder = path.parent / f"{path.stem}_meshes"
    folder.mkdir(exist_ok=True)
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]
    return folder / f"{index:03d}_{plain}{ending}"

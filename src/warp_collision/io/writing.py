"""Obstacles to files that are read back as they were: YAML in cuRobo's layout, and GLB."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

from warp_collision.formats.files import require_extra
from warp_collision.io.scene import obstacle_scene
from warp_collision.io.scene_builder import Obstacle
from warp_collision.io.yaml_world import ENTRIES
from warp_collision.messages import escaped, short_repr
from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.shapes import mesh_of

_WORD = re.compile("[A-Za-z_][A-Za-z_0-9/]*")


def save_world_file(path: str | os.PathLike[str], obstacles: Mapping[str, Obstacle]) -> None:
    """Writes obstacles so that `load_world_file` gives back the same.

    Args:
        path: .yaml or .yml for cuRobo's layout, which groups obstacles by kind; meshes, and what
            sensors saw, are written beside it, into a folder of its name and `_meshes`. Or .glb for
            a glTF scene, y up, in which exact shapes are meshes around them for everyone else,
            height fields become meshes, and what else sensors saw has no place. Existing files are
            replaced.
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
    if ending in (".yaml", ".yml"):
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
    require_extra("yaml", f"{path}: writing YAML", "PyYAML", "io")
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

"""Robots with their spheres and pairs in one file, which is read within milliseconds.

The file is YAML, and JSON but for its first line, which is faster to read. Joints and shapes stay
in the URDF, whose path and hash the file has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warp_collision.formats.files import existing_file, is_file
from warp_collision.formats.yaml_values import read_yaml
from warp_collision.messages import any_error_at, escaped, short_repr
from warp_collision.robot.fitting.coverage import Coverage
from warp_collision.robot.fitting.sphere_arrays import sphere_array
from warp_collision.robot.model.convex_pieces import piece_from, row_of
from warp_collision.robot.model.kinematic_tree import check_locks, kinematic_tree, with_locked
from warp_collision.robot.model.link_pairs import (
    ConstantPair,
    LeftOutPair,
    SelfCollisionPairs,
    overshoots,
    with_lengths,
)
from warp_collision.robot.model.link_shapes import shapes_of_links
from warp_collision.robot.model.robot_description import RobotDescription, links_not_checked
from warp_collision.robot.model.self_contacts import Contact
from warp_collision.robot.model.sphere_model import Body, SphereModel, require_links
from warp_collision.robot.model.urdf_model import PathLike, read_urdf_model

_FORMAT, _KEY = 2, "warp_collision_robot"
_HEAD = "# Written by RobotSpheres.save: for RobotSpheres.from_file, and --robot in the shell.\n"


def write_robot(
    path: PathLike, robot: RobotDescription, pairs: SelfCollisionPairs, names: Sequence[str]
) -> None:
    """Writes a robot; see `RobotSpheres.save`.

    Args:
        path: of the file.
        robot: what is written.
        pairs: of links, that are checked by default.
        names: of the bodies, in the order of the spheres of the pairs.
    """
    path, urdf = Path(path), robot.urdf.absolute()
    folder = path.absolute().parent
    bodies = {name: robot.spheres.bodies[name] for name in names}
    content = {
        _KEY: _FORMAT,
        "urdf": str(urdf.relative_to(folder) if urdf.is_relative_to(folder) else urdf),
        "urdf_sha256": _digest(urdf),
        "package_dirs": [str(Path(folder).absolute()) for folder in robot.package_dirs],
        "joints": robot.tree.joint_names,
        "locked_joints": robot.locked,
        "named_states": robot.named_states,
        "spheres": {name: body.spheres.tolist() for name, body in bodies.items()},
        "links_of": {name: body.link for name, body in bodies.items() if body.link != name},
        "pieces": {
            name: [row_of(piece) for piece in body.pieces]
            for name, body in bodies.items()
            if body.pieces
        },
        "self_collision_buffer": robot.spheres.buffers,
        "coverage": robot.fits,
        "neutral_contacts": robot.neutral_contacts,
        "not_checked": pairs.left_out,
        "checked": pairs.link_pairs,
        "touching_spheres": pairs.touching.tolist(),
        "constant_spheres": pairs.constant,
    }
    path.write_text(f"{_HEAD}{_lines(content)}\n", encoding="utf-8")


def read_robot_file(path: PathLike, package_dirs: Sequence[PathLike] = ()) -> RobotDescription:
    """Reads what `write_robot` wrote; see `RobotSpheres.from_file` for arguments and errors."""
    path = existing_file(path)
    where = escaped(str(path))
    content = _content(path)
    if not isinstance(content, dict) or content.get(_KEY) != _FORMAT:
        raise ValueError(
            f"{where} must be a robot that RobotSpheres.save or `warp-collision robot --save` "
            f"wrote, with {_KEY}: {_FORMAT}, got {short_repr(content)}"
        )
    with any_error_at(f"{where}: the path of the URDF"):
        urdf = path.parent / content["urdf"]
        digest = content["urdf_sha256"]
        folders = [*package_dirs, *content["package_dirs"]]
    if not is_file(urdf):
        raise FileNotFoundError(f"{where}: its URDF must exist, got {short_repr(str(urdf))}")
    if _digest(urdf) != digest:
        raise ValueError(
            f"{where} must be of the same URDF, but {escaped(str(urdf))} was changed since: save "
            f"it again, with `warp-collision robot {escaped(str(urdf))} --save {where}` or "
            "RobotSpheres(urdf).save(path)"
        )
    model = read_urdf_model(urdf, folders)
    with any_error_at(where):
        locked = content["locked_joints"]
        check_locks(locked, model.joints)
        tree = kinematic_tree(model.link_names, with_locked(model.joints, locked))
        if list(tree.joint_names) != content["joints"]:
            names = short_repr([*tree.joint_names])
            raise ValueError(f"joints must be {names}, got {short_repr(content['joints'])}")
        spheres = _spheres(content, model.link_names)
        fits = _coverages(content, where)
        pairs = _pairs(content, spheres, fits)
    return RobotDescription(
        link_names=model.link_names,
        tree=tree,
        spheres=spheres,
        left_out=pairs.left_out,
        link_meshes=model.visuals,
        fits=fits,
        shapes=shapes_of_links(model),
        links_without_spheres=links_not_checked(model, spheres.bodies.values()),
        locked=locked,
        neutral_contacts=_contacts(content, where),
        named_states=content.get("named_states", {}),
        urdf=urdf,
        package_dirs=tuple(map(Path, folders)),
        pairs=pairs,
    )


def _content(path: Path) -> Any:
    """Of the file: as it was written, or as somebody edited it."""
    try:
        return json.loads(path.read_text(encoding="utf-8").removeprefix(_HEAD))
    except (ValueError, RecursionError):
        return read_yaml(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _spheres(content: Mapping[str, Any], links: Sequence[str]) -> SphereModel:
    rows, link_of = content["spheres"], content["links_of"]
    require_links("spheres", [link_of.get(name, name) for name in rows], links)
    pieces = {name: tuple(map(piece_from, some)) for name, some in content["pieces"].items()}
    bodies = {
        name: Body(
            link_of.get(name, name),
            sphere_array(f"spheres[{name!r}]", some),
            pieces.get(name, ()),
        )
        for name, some in rows.items()
    }
    require_links("pieces", pieces, [*rows])
    buffers = {str(name): float(b) for name, b in content["self_collision_buffer"].items()}
    return SphereModel(bodies, buffers=buffers)


def _pairs(
    content: Mapping[str, Any], spheres: SphereModel, fits: Mapping[str, Sequence[Coverage]]
) -> SelfCollisionPairs:
    names = [name for name, body in spheres.bodies.items() for _ in body.spheres]
    left_out = tuple(LeftOutPair(*map(str, pair)) for pair in content["not_checked"])
    checked = tuple((one, other) for one, other in content["checked"])
    constant = tuple(
        ConstantPair(int(one), int(other), float(gap))
        for one, other, gap in content["constant_spheres"]
    )
    touching = np.array(content["touching_spheres"], dtype=np.int64).reshape(-1, 2)
    indices = np.array([pair[:2] for pair in constant], dtype=np.int64).reshape(-1, 2)
    indices = np.concatenate([touching, indices])
    if not ((indices >= 0) & (indices < len(names))).all():
        raise ValueError(f"pairs of spheres must be below {len(names)}, got {indices.max()}")
    for one, other in checked:
        require_links("checked", [one, other], [*spheres.bodies])
    pairs = SelfCollisionPairs(tuple(names), checked, left_out, touching, constant)
    return with_lengths(pairs, spheres.buffers, overshoots(fits))


def _coverages(content: Mapping[str, Any], where: str) -> dict[str, tuple[Coverage, ...]]:
    with any_error_at(f"{where}: coverage"):
        return {
            link: tuple(Coverage(*values) for values in some)
            for link, some in content["coverage"].items()
        }


def _contacts(content: Mapping[str, Any], where: str) -> tuple[Contact, ...]:
    with any_error_at(f"{where}: neutral_contacts"):
        return tuple(Contact(*values) for values in content["neutral_contacts"])


def _lines(value: Any, indent: str = "") -> str:
    """JSON with a line for each innermost list."""
    deeper = f"{indent}  "
    if isinstance(value, Mapping):
        parts = [f"{_lines(str(key))}: {_lines(item, deeper)}" for key, item in value.items()]
        is_nested = len(parts) > 0
    elif isinstance(value, tuple | list):
        parts = [_lines(item, deeper) for item in value]
        is_nested = any(isinstance(item, tuple | list | Mapping) for item in value)
    else:
        return json.dumps(value, ensure_ascii=False)
    begin, end = "{}" if isinstance(value, Mapping) else "[]"
    if not is_nested:
        return f"{begin}{', '.join(parts)}{end}"
    return f"{begin}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{end}"

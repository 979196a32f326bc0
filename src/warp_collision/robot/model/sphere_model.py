"""Spheres of a robot's links: from a mapping or a robot file of cuRobo, and written to one."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from warp_collision import validate
from warp_collision.formats.files import MAX_COORDINATE, is_file
from warp_collision.formats.urdf_joints import Joint
from warp_collision.formats.yaml_values import read_yaml
from warp_collision.io.placing import matrix_from
from warp_collision.messages import MAX_REPR, errors_at, escaped, known_names, short_repr
from warp_collision.robot.fitting.sphere_arrays import inflated, moved, sphere_array
from warp_collision.robot.model.convex_pieces import ConvexPiece
from warp_collision.robot.model.kinematic_tree import check_locks
from warp_collision.robot.model.link_surface import LinkSurface

# cuRobo's sphere for objects to attach, which is disabled.
_UNUSED = (0.0, 0.0, 0.0, -100.0)


@dataclass(frozen=True, eq=False)
class Body:
    """Spheres that move with a link.

    Attributes:
        link: the link that they move with.
        spheres: (n, 4) float64 x, y, z in the frame of the link, radius [m]; below 0: disabled.
        pieces: convex pieces in the same frame that cover the shapes that the spheres cover; none
            if the spheres were given.
        envs: in which they are; None for all.
        surface: what decides where pieces touch; None if all pieces follow their shapes.
    """

    link: str
    spheres: np.ndarray
    pieces: tuple[ConvexPiece, ...] = ()
    envs: frozenset[int] | None = None
    surface: LinkSurface | None = None

    def widened(self, length: float) -> Body:
        """With a length added to all radii [m]."""
        return replace(
            self,
            spheres=inflated(self.spheres, length),
            pieces=tuple(p._replace(radius=p.radius + length) for p in self.pieces),
            surface=self.surface and self.surface.widened(length),
        )

    def moved(self, pose: np.ndarray) -> Body:
        """At a pose (4, 4) in the frame of the link."""
        pieces = self.pieces and tuple(self.pieces_in(pose))
        surface = self.surface and self.surface.moved(pose)
        return replace(self, spheres=moved(self.spheres, pose), pieces=pieces, surface=surface)

    def pieces_in(self, frame_from_link: np.ndarray) -> list[ConvexPiece]:
        """The pieces in another frame: the spheres where there are no others."""
        balls = [ConvexPiece(row[None, :3], row[3]) for row in self.spheres if not row[3] < 0.0]
        return [piece.moved(frame_from_link) for piece in self.pieces or balls]


@dataclass(frozen=True, eq=False)
class SphereModel:
    """All spheres of a robot.

    Attributes:
        bodies: by name: links, and links fixed to one.
        ignored: pairs of bodies that may touch.
        buffers: added to the radii of a body for self-collision [m].
        locked: values of locked joints [rad, prismatic: m].
        base_link: base link of a robot file, if it has one.
        joint_names: joints in the order of a robot file, if it has one.
    """

    bodies: dict[str, Body]
    ignored: tuple[tuple[str, str], ...] = ()
    buffers: dict[str, float] = field(default_factory=dict)
    locked: dict[str, float] = field(default_factory=dict)
    base_link: Any = None
    joint_names: tuple[str, ...] = ()


def require_links(where: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Requires names of links of the robot."""
    unknown = [name for name in names if name not in known]
    if unknown:
        choice = known_names(unknown[0], known)
        raise ValueError(
            f"{where} must be links of the robot, got {short_repr(unknown)}; there is {choice}"
        )


def read_spheres(spheres: Any, links: Sequence[str], joints: Sequence[Joint]) -> SphereModel:
    """Spheres from a robot file, or from a mapping of links to rows x, y, z, radius."""
    if isinstance(spheres, str | os.PathLike):
        return _read_file(Path(spheres), links, joints)
    validate.require_mapping("spheres", spheres, "a path or a mapping of links to spheres")
    require_links("keys of spheres", spheres, links)
    bodies = {
        link: Body(link, sphere_array(f"spheres[{link!r}]", rows)) for link, rows in spheres.items()
    }
    return SphereModel({name: body for name, body in bodies.items() if len(body.spheres)})


def write_spheres(path: str | os.PathLike[str], model: SphereModel) -> None:
    """Writes the spheres of links as the `collision_spheres` of a robot file of cuRobo.

    They are read back to the same bits.

    Raises:
        ValueError: the spheres came from a robot file that says more than spheres of links, which
            would be lost.
    """
    more = {
        "pairs that are ignored": bool(model.ignored),
        "buffers": any(model.buffers.values()),
        "locked joints": bool(model.locked),
        "a base link": model.base_link is not None,
        "an order of joints": bool(model.joint_names),
        "additional links": any(name != body.link for name, body in model.bodies.items()),
    }
    lost = [what for what, has in more.items() if has]
    if lost:
        raise ValueError(
            f"the spheres must be those of links alone, got {', '.join(lost)} too: use the robot "
            "file that they came from"
        )
    lines = ["# x, y, z, radius in the frame of the link [m]", "collision_spheres:"]
    for name, body in model.bodies.items():
        lines.append(f"  {json.dumps(name, ensure_ascii=False)}:")
        lines += [
            f"  - {{center: [{x!r}, {y!r}, {z!r}], radius: {radius!r}}}"
            for x, y, z, radius in body.spheres.tolist()
        ]
    Path(path).write_text("\n".join([*lines, ""]), encoding="utf-8")


# -- robot files of cuRobo ------------------------------------------------------------------------


def _read_file(path: Path, links: Sequence[str], joints: Sequence[Joint]) -> SphereModel:
    if not is_file(path):
        raise FileNotFoundError(f"spheres must be an existing file, got {short_repr(str(path))}")
    document = read_yaml(path)
    where = escaped(str(path))
    for key in ("robot_cfg", "kinematics"):
        if isinstance(document, dict) and key in document:
            document = document[key]
    values = _mapping(where, document)
    if "collision_spheres" not in values:
        raise ValueError(
            f"{where} must have the key 'collision_spheres', got {short_repr([*values])}"
        )
    with errors_at(where, (TypeError, ValueError)):
        locks = _locks(values.get("lock_joints"), joints)
        names = _list("cspace.joint_names", _mapping_of(values, "cspace").get("joint_names") or [])
        model = _from_curobo(values, path.parent, links)
        order = tuple(str(name) for name in names)
        return replace(model, locked=locks, base_link=values.get("base_link"), joint_names=order)


def _from_curobo(values: dict, folder: Path, links: Sequence[str]) -> SphereModel:
    poses = _extra_links(values.get("extra_links"), links)
    rows = _collision_spheres(values["collision_spheres"], folder)
    names = values.get("collision_link_names")
    if names is not None:
        for name in _list("collision_link_names", names):
            if name not in rows and name not in _mapping_of(values, "extra_collision_spheres"):
                raise ValueError(
                    f"collision_spheres must have the link {short_repr(name)}, got none"
                )
        rows = {name: spheres for name, spheres in rows.items() if name in names}
    buffer = _per_link("collision_sphere_buffer", values.get("collision_sphere_buffer", 0.0))
    rows = {name: inflated(spheres, buffer(name)) for name, spheres in rows.items()}
    for name, count in _mapping_of(values, "extra_collision_spheres").items():
        validate.require_count(f"extra_collision_spheres[{name!r}]", count)
        before = rows.get(name, np.empty((0, 4)))
        rows[name] = np.concatenate([before, np.tile(_UNUSED, (count, 1))])
    require_links("keys of collision_spheres", rows, [*links, *poses])
    bodies = {name: Body(name, spheres) for name, spheres in rows.items() if len(spheres)}
    for name, (parent, parent_from_link) in poses.items():
        if name in bodies:
            bodies[name] = Body(parent, moved(rows[name], parent_from_link))
    ignored = [
        (one, other)
        for one, others in _mapping_of(values, "self_collision_ignore").items()
        for other in _list(f"self_collision_ignore[{one!r}]", others)
    ]
    require_links("self_collision_ignore", itertools.chain(*ignored), [*links, *poses])
    inflation = _per_link("self_collision_buffer", values.get("self_collision_buffer") or 0.0)
    for name, body in bodies.items():
        inflated(body.spheres, inflation(name))  # raises where a radius would become negative
    return SphereModel(bodies, tuple(ignored), {name: inflation(name) for name in bodies})


def _locks(value: Any, joints: Sequence[Joint]) -> dict[str, float]:
    """Values of the joints that a file locks; None is not allowed there."""
    values = {}
    for name, position in check_locks({} if value is None else value, joints).items():
        if position is None:
            raise TypeError(f"lock_joints[{short_repr(name)}] must be a number, got None")
        values[name] = position
    return values


def _collision_spheres(value: Any, folder: Path) -> dict[str, np.ndarray]:
    """Spheres of each link, inline or from another file."""
    if isinstance(value, str):
        path = folder / value
        if not is_file(path):
            raise ValueError(
                f"collision_spheres must be an existing file, got {short_repr(str(path))}"
            )
        document = _mapping(escaped(str(path)), read_yaml(path))
        value = document.get("collision_spheres", document)
    spheres = {}
    for link, entries in _mapping("collision_spheres", value).items():
        where = f"collision_spheres[{short_repr(link)}]"
        rows = []
        for entry in _list(where, entries):
            if not isinstance(entry, dict) or not {"center", "radius"} <= entry.keys():
                raise ValueError(
                    f"{where} must have a center and a radius, got {short_repr(entry)}"
                )
            center = entry["center"]
            rows.append([*(center if isinstance(center, list) else [center]), entry["radius"]])
        spheres[link] = sphere_array(where, rows)
    return spheres


def _extra_links(value: Any, links: Sequence[str]) -> dict[str, tuple[str, np.ndarray]]:
    """For each additional link: the URDF link that it is fixed to, and its pose there."""
    poses = {}
    for name, entry in _mapping("extra_links", {} if value is None else value).items():
        where = f"extra_links[{short_repr(name)}]"
        entry = _mapping(where, entry)
        if entry.get("joint_type", "FIXED") != "FIXED":
            raise ValueError(
                f"{where}.joint_type must be FIXED, got {short_repr(entry['joint_type'])}"
            )
        parent = str(entry.get("parent_link_name"))
        require_links(f"{where}.parent_link_name", [parent], links)
        pose = entry.get("fixed_transform", [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
        pose = validate.check_pose(f"{where}.fixed_transform", pose).tolist()
        poses[name] = parent, matrix_from(pose)
    return poses


def _per_link(where: str, value: Any) -> Callable[[str], float]:
    """A number for each link, from one for all or a mapping for some."""
    numbers = value if isinstance(value, Mapping) else {"": value}
    for number in numbers.values():
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not abs(number) < MAX_COORDINATE:
            raise ValueError(f"{where} must be finite numbers [m], got {short_repr(number)}")
    rest = 0.0 if isinstance(value, Mapping) else float(value)
    return lambda link: float(numbers.get(link, rest))


def _mapping_of(values: dict, key: str) -> dict:
    value = values.get(key)
    return _mapping(key, {} if value is None else value)


def _mapping(where: str, value: Any) -> dict:
    if not isinstance(value, dict):
        raise ValueError(f"{escaped(where, MAX_REPR)} must be a mapping, got {short_repr(value)}")
    return value


def _list(where: str, value: Any) -> list:
    if not isinstance(value, list):
        raise ValueError(f"{where} must be a list, got {short_repr(value)}")
    return value

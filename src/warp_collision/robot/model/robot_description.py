"""Reads a robot from its files: links and joints, spheres, and pairs that are not checked.

A robot may be in one file with its spheres and pairs, which is read within milliseconds. That is
YAML, and JSON but for its first line, which is faster to read. Joints and shapes stay in the URDF,
whose path and hash the file has.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warp_collision.formats.files import existing_file, is_file
from warp_collision.formats.yaml_values import read_yaml
from warp_collision.messages import any_error_at, errors_at, escaped, short_repr
from warp_collision.robot.fitting.coverage import Coverage
from warp_collision.robot.fitting.sphere_arrays import sphere_array
from warp_collision.robot.model.convex_pieces import piece_from, row_of
from warp_collision.robot.model.kinematic_tree import (
    KinematicTree,
    check_locks,
    kinematic_tree,
    with_locked,
)
from warp_collision.robot.model.link_pairs import (
    ADJACENT,
    OF_ROBOT_FILE,
    ConstantPair,
    LeftOutPair,
    SelfCollisionPairs,
)
from warp_collision.robot.model.link_shapes import (
    Overshoot,
    Progress,
    padded,
    shapes_of_links,
    spheres_of_shapes,
)
from warp_collision.robot.model.link_surface import LinkSurface
from warp_collision.robot.model.sampled_pairs import NeutralContact, neutral_contacts
from warp_collision.robot.model.sphere_model import (
    Body,
    SphereModel,
    read_spheres,
    require_links,
)
from warp_collision.robot.model.srdf import Srdf
from warp_collision.robot.model.urdf_model import (
    LinkMesh,
    LinkShape,
    PathLike,
    UrdfModel,
    read_urdf_model,
)

_ROUNDING = 1e-9  # of the entries of transforms
_FORMAT, _KEY = 4, "warp_collision_robot"
_SAVED = (".yaml", ".yml")  # endings of such files
_HEAD = "# Written by RobotSpheres.save: for RobotSpheres.from_file, and --robot in the shell.\n"


@dataclass(frozen=True, eq=False)
class RobotDescription:
    """The content of a robot's files; see `RobotSpheres`.

    Attributes:
        link_names: in the order of the file.
        tree: the moving frames.
        spheres: of the links.
        left_out: pairs of links that are not checked: adjacent ones, and those of a file.
        link_meshes: visual meshes.
        fits: for each link with fitted shapes a `Coverage` of each.
        shapes: of each link, the shapes that its spheres approximate.
        links_without_spheres: links that have shapes of any kind, but no enabled spheres.
        locked: locked joints and their values.
        neutral_contacts: links in contact at the neutral configuration.
        named_states: of an SRDF.
        urdf: path of the URDF.
        package_dirs: where its packages were looked for.
        pairs: of links, that are checked by default; None if they are not known yet.
        links_without_shapes: links that have no shape of any kind.
        shapes_of: "collision", or "visual" where these stand in; see `RobotSpheres`.
    """

    link_names: tuple[str, ...]
    tree: KinematicTree
    spheres: SphereModel
    left_out: tuple[LeftOutPair, ...]
    link_meshes: tuple[LinkMesh, ...] = ()
    fits: dict[str, tuple[Coverage, ...]] = field(default_factory=dict)
    shapes: dict[str, list[LinkShape | LinkMesh]] = field(default_factory=dict)
    links_without_spheres: tuple[str, ...] = ()
    locked: dict[str, float] = field(default_factory=dict)
    neutral_contacts: tuple[NeutralContact, ...] = ()
    named_states: dict[str, dict[str, float]] = field(default_factory=dict)
    urdf: Path = Path()
    package_dirs: tuple[Path, ...] = ()
    pairs: SelfCollisionPairs | None = None
    links_without_shapes: tuple[str, ...] = ()
    shapes_of: str = "collision"

    @property
    def real_contacts(self) -> list[NeutralContact]:
        """Links in contact at the neutral configuration that are checked."""
        left_out = {frozenset(pair[:2]) for pair in self.left_out}
        return [
            contact for contact in self.neutral_contacts if frozenset(contact[:2]) not in left_out
        ]


class RobotJoints(NamedTuple):
    """The content of a robot's files before spheres are fitted.

    Attributes:
        urdf: the content of the URDF.
        spheres: those that are given, if any.
        locked: locked joints and their values.
        tree: the moving frames.
        srdf: the semantic file, which may be none.
        path: of the URDF.
        package_dirs: where its packages are looked for.
    """

    urdf: UrdfModel
    spheres: SphereModel | None
    locked: dict[str, float]
    tree: KinematicTree
    srdf: Srdf
    path: Path
    package_dirs: tuple[Path, ...]

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints with a value, in order."""
        return self.tree.joint_names


def read_robot_joints(
    urdf: PathLike,
    spheres: PathLike | Mapping[str, Any] | None,
    package_dirs: Sequence[PathLike],
    lock_joints: Mapping[str, float | None],
    srdf: Srdf,
    shapes: str = "collision",
) -> RobotJoints:
    """Reads links and joints, within milliseconds; see `RobotSpheres` for arguments and errors."""
    model = read_urdf_model(urdf, package_dirs, shapes)
    links, joints = model.link_names, model.joints
    given = None if spheres is None else read_spheres(spheres, links, joints)
    of_file = {} if given is None else given.locked
    held = check_locks(srdf.held_joints(joints), joints)
    chosen = of_file | held | check_locks(lock_joints, joints)
    locked = {name: value for name, value in chosen.items() if value is not None}
    with errors_at(escaped(str(urdf))):
        tree = kinematic_tree(links, with_locked(joints, locked))
    return RobotJoints(model, given, locked, tree, srdf, Path(urdf), (*map(Path, package_dirs),))


def read_robot(
    urdf: PathLike,
    spheres: PathLike | Mapping[str, Any] | None,
    srdf: Srdf,
    package_dirs: Sequence[PathLike],
    max_overshoot: Overshoot,
    piece_overshoot: float | None,
    padding: float | Mapping[str, float],
    lock_joints: Mapping[str, float | None],
    progress: Progress | None,
    shapes: str = "collision",
) -> RobotDescription:
    """Reads a robot; see `RobotSpheres` for arguments and errors."""
    if Path(urdf).suffix.lower() in _SAVED:
        _require_nothing_else(
            urdf,
            spheres=spheres,
            srdf=srdf.path,
            group=srdf.group,
            state=srdf.state,
            max_overshoot=max_overshoot,
            piece_overshoot=piece_overshoot,
            padding=padding or None,
            lock_joints=lock_joints or None,
            shapes=None if shapes == "collision" else shapes,
        )
        return read_robot_file(urdf, package_dirs)
    joints = read_robot_joints(urdf, spheres, package_dirs, lock_joints, srdf, shapes)
    return with_spheres(joints, max_overshoot, piece_overshoot, padding, progress)


def with_spheres(
    joints: RobotJoints,
    max_overshoot: Overshoot = None,
    piece_overshoot: float | None = None,
    padding: float | Mapping[str, float] = 0.0,
    progress: Progress | None = None,
) -> RobotDescription:
    """A robot whose files are read, with spheres fitted where none are given."""
    model, spheres_given, locked, tree, srdf, path, package_dirs = joints
    links = model.link_names
    disabled = srdf.left_out(links)  # before fits take their time
    if spheres_given is None:
        with errors_at(escaped(str(path))):
            sphere_model, fits = spheres_of_shapes(model, max_overshoot, piece_overshoot, progress)
            if not sphere_model.bodies:
                raise ValueError(_no_shapes(model))
    else:
        sphere_model, fits = spheres_given, {}
    _check_base(sphere_model.base_link, tree)
    _check_joint_order(sphere_model.joint_names, tree)
    if not sphere_model.bodies:
        raise ValueError("spheres must not be empty, got none")
    tree.require_free_root({body.link for body in sphere_model.bodies.values()})
    left_out = [LeftOutPair(joint.parent, joint.child, ADJACENT) for joint in model.joints]
    left_out += [LeftOutPair(*pair, OF_ROBOT_FILE) for pair in sphere_model.ignored]
    left_out += disabled
    is_automatic = srdf.path is None and not sphere_model.ignored
    contacts = neutral_contacts(tree, sphere_model, left_out)
    if is_automatic:
        left_out += [contact.left_out() for contact in contacts if contact.is_ordinary]
    return RobotDescription(
        links,
        tree,
        padded(sphere_model, padding, links),
        tuple(left_out),
        model.visuals,
        fits,
        shapes_of_links(model),
        links_not_checked(model, sphere_model.bodies.values()),
        locked,
        contacts,
        srdf.named_states(),
        path,
        package_dirs,
        links_without_shapes=_without_shapes(model),
        shapes_of=model.shapes,
    )


def _no_shapes(model: UrdfModel) -> str:
    """The error for a robot that no check would see, and what to give."""
    rule = "links must have collision shapes, got none"
    if model.shapes == "visual" or not model.shaped_links:
        return f"{rule}: give spheres="
    return (
        f'{rule}, but visuals: give shapes="visual", --shapes visual in the shell, which takes '
        "these, or spheres="
    )


def _without_shapes(model: UrdfModel) -> tuple[str, ...]:
    return tuple(link for link in model.link_names if link not in model.shaped_links)


def _require_nothing_else(path: PathLike, **given: object) -> None:
    """Requires that no argument is given that a saved robot has already."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} must be given with a URDF, got the saved robot {escaped(str(path))}"
            )


def links_not_checked(model: UrdfModel, bodies: Iterable[Body]) -> tuple[str, ...]:
    """Links that have shapes of any kind, but no enabled spheres."""
    checked = {body.link for body in bodies if (body.spheres[:, 3] >= 0.0).any()}
    return tuple(link for link in model.link_names if link in model.shaped_links - checked)


def _check_base(base_link: Any, tree: KinematicTree) -> None:
    """Requires the base frame of a robot file to be the frame of the root link.

    Args:
        base_link: the base link of the file; None if it has none.
        tree: of the URDF.

    Raises:
        ValueError: an unknown link, one that is not fixed to the root, or one with another frame.
    """
    if base_link is None:
        return
    root = next(iter(tree.link_frame))
    rule = f"base_link must be the root link {short_repr(root)}, or fixed to it with its frame"
    if base_link not in tree.link_frame or tree.link_frame[base_link] != 0:
        raise ValueError(f"{rule}, got {short_repr(base_link)}")
    offset = np.abs(tree.frame_from_link[base_link] - np.eye(4)).max()
    if offset > _ROUNDING:
        raise ValueError(
            f"{rule}, got {short_repr(base_link)}, whose frame differs by {offset:.3g}"
        )


def _check_joint_order(joint_names: Sequence[str], tree: KinematicTree) -> None:
    """Warns if the order of joints in a robot file is not that of the URDF.

    Args:
        joint_names: `cspace.joint_names` of the file; empty if it has none.
        tree: of the URDF; the names may include locked joints, which have no value.
    """
    order = tuple(name for name in joint_names if name in tree.joint_names)
    if joint_names and order != tree.joint_names:
        warnings.warn(
            f"joint values are those of {', '.join(tree.joint_names)}, in this order, which is "
            f"not that of cspace.joint_names, {short_repr(list(order))}",
            UserWarning,
            stacklevel=5,  # where the robot is made
        )


# -- robots in one file ---------------------------------------------------------------------------


def write_robot(path: PathLike, robot: RobotDescription, pairs: SelfCollisionPairs) -> None:
    """Writes a robot; see `RobotSpheres.save`.

    Args:
        path: of the file.
        robot: what is written.
        pairs: of links, that are checked by default.
    """
    path, urdf = Path(path), robot.urdf.absolute()
    folder = path.absolute().parent
    bodies = {name: robot.spheres.bodies[name] for name in dict.fromkeys(pairs.sphere_links)}
    content = {
        _KEY: _FORMAT,
        "urdf": str(urdf.relative_to(folder) if urdf.is_relative_to(folder) else urdf),
        "urdf_sha256": _digest(urdf),
        "package_dirs": [str(Path(folder).absolute()) for folder in robot.package_dirs],
        "joints": robot.tree.joint_names,
        "locked_joints": robot.locked,
        "named_states": robot.named_states,
        "shapes": robot.shapes_of,
        "spheres": {name: body.spheres.tolist() for name, body in bodies.items()},
        "links_of": {name: body.link for name, body in bodies.items() if body.link != name},
        "pieces": {
            name: [row_of(piece) for piece in body.pieces]
            for name, body in bodies.items()
            if body.pieces
        },
        "surfaces": {name: body.surface.packed() for name, body in bodies.items() if body.surface},
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
    if path.suffix.lower() == ".urdf":
        raise ValueError(f"{where} must be a saved robot, got a URDF, which RobotSpheres reads")
    content = _content(path)
    if not isinstance(content, dict) or content.get(_KEY) != _FORMAT:
        of = isinstance(content, dict) and content.get(_KEY)
        found = short_repr(of) if of else "a file without this entry"
        raise ValueError(
            f"{where} must be a robot that RobotSpheres.save or `warp-collision robot --save` "
            f"wrote, with {_KEY}: {_FORMAT}, got {found}"
        )
    with any_error_at(f"{where}: the path of the URDF"):
        urdf = path.parent / content["urdf"]
        digest, shapes = content["urdf_sha256"], content.get("shapes", "collision")
        folders = [*package_dirs, *content["package_dirs"]]
    if not is_file(urdf):
        raise FileNotFoundError(f"{where}: its URDF must exist, got {short_repr(str(urdf))}")
    if _digest(urdf) != digest:
        raise ValueError(
            f"{where} must be of the same URDF, but {escaped(str(urdf))} was changed since: save "
            f"it again, with `warp-collision robot {escaped(str(urdf))} --save {where}` or "
            "RobotSpheres(urdf).save(path)"
        )
    model = read_urdf_model(urdf, folders, shapes)
    with any_error_at(where):
        locked = content["locked_joints"]
        check_locks(locked, model.joints)
        tree = kinematic_tree(model.link_names, with_locked(model.joints, locked))
        if list(tree.joint_names) != content["joints"]:
            names = short_repr([*tree.joint_names])
            raise ValueError(f"joints must be {names}, got {short_repr(content['joints'])}")
        spheres = _spheres(content, model.link_names)
        fits = _coverages(content)
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
        links_without_shapes=_without_shapes(model),
        shapes_of=shapes,
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
    surfaces = {
        name: LinkSurface.unpacked(part) for name, part in content.get("surfaces", {}).items()
    }
    bodies = {
        name: Body(
            link_of.get(name, name),
            sphere_array(f"spheres[{name!r}]", some),
            pieces.get(name, ()),
            surface=surfaces.get(name),
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
    return pairs.with_lengths(spheres.buffers, fits)


def _coverages(content: Mapping[str, Any]) -> dict[str, tuple[Coverage, ...]]:
    with any_error_at("coverage"):
        return {
            link: tuple(Coverage(*values) for values in some)
            for link, some in content["coverage"].items()
        }


def _contacts(content: Mapping[str, Any], where: str) -> tuple[NeutralContact, ...]:
    with any_error_at(f"{where}: neutral_contacts"):
        return tuple(NeutralContact(*values) for values in content["neutral_contacts"])


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

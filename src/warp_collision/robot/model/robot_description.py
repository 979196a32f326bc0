"""Reads a robot from its files: links and joints, spheres, and pairs that are not checked."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warp_collision.messages import errors_at, escaped, short_repr
from warp_collision.robot.fitting.coverage import Coverage
from warp_collision.robot.model.kinematic_tree import (
    KinematicTree,
    check_locks,
    kinematic_tree,
    with_locked,
)
from warp_collision.robot.model.link_pairs import LeftOutPair, SelfCollisionPairs
from warp_collision.robot.model.link_shapes import (
    Overshoot,
    Progress,
    padded,
    shapes_of_links,
    spheres_of_shapes,
)
from warp_collision.robot.model.pair_rules import ADJACENT, OF_ROBOT_FILE
from warp_collision.robot.model.planning_groups import NONE_HELD, HeldJoints
from warp_collision.robot.model.self_contacts import Contact, neutral_contacts
from warp_collision.robot.model.sphere_model import Body, SphereModel, read_spheres
from warp_collision.robot.model.srdf import read_srdf
from warp_collision.robot.model.urdf_model import (
    LinkMesh,
    LinkShape,
    PathLike,
    UrdfModel,
    read_urdf_model,
)

_ROUNDING = 1e-9  # of the entries of transforms


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
    neutral_contacts: tuple[Contact, ...] = ()
    named_states: dict[str, dict[str, float]] = field(default_factory=dict)
    urdf: Path = Path()
    package_dirs: tuple[Path, ...] = ()
    pairs: SelfCollisionPairs | None = None

    @property
    def real_contacts(self) -> list[Contact]:
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
    """

    urdf: UrdfModel
    spheres: SphereModel | None
    locked: dict[str, float]
    tree: KinematicTree


def read_robot_joints(
    urdf: PathLike,
    spheres: PathLike | Mapping[str, Any] | None,
    package_dirs: Sequence[PathLike],
    lock_joints: Mapping[str, float | None],
    held: HeldJoints = NONE_HELD,
) -> RobotJoints:
    """Reads links and joints, within milliseconds; see `RobotSpheres` for arguments and errors."""
    model = read_urdf_model(urdf, package_dirs)
    links, joints = model.link_names, model.joints
    given = None if spheres is None else read_spheres(spheres, links, joints)
    of_file = {} if given is None else given.locked
    chosen = of_file | check_locks(held.values(joints), joints) | check_locks(lock_joints, joints)
    locked = {name: value for name, value in chosen.items() if value is not None}
    with errors_at(escaped(str(urdf))):
        tree = kinematic_tree(links, with_locked(joints, locked))
    return RobotJoints(model, given, locked, tree)


def read_robot(
    urdf: PathLike,
    spheres: PathLike | Mapping[str, Any] | None,
    srdf: PathLike | None,
    package_dirs: Sequence[PathLike],
    max_overshoot: Overshoot,
    padding: float | Mapping[str, float],
    lock_joints: Mapping[str, float | None],
    progress: Progress | None,
    held: HeldJoints = NONE_HELD,
) -> RobotDescription:
    """Reads a robot; see `RobotSpheres` for arguments and errors."""
    model, spheres_given, locked, tree = read_robot_joints(
        urdf, spheres, package_dirs, lock_joints, held
    )
    links = model.link_names
    disabled = () if srdf is None else read_srdf(srdf, links)  # before fits take their time
    if spheres_given is None:
        with errors_at(escaped(str(urdf))):
            fitted = spheres_of_shapes(model, max_overshoot, progress)
            sphere_model = fitted.model
            if not sphere_model.bodies:
                raise ValueError("links must have collision shapes, got none")
    else:
        sphere_model, fitted = spheres_given, None
    _check_base(sphere_model.base_link, tree)
    _check_joint_order(sphere_model.joint_names, tree)
    if not sphere_model.bodies:
        raise ValueError("spheres must not be empty, got none")
    tree.require_free_root({body.link for body in sphere_model.bodies.values()})
    left_out = [LeftOutPair(joint.parent, joint.child, ADJACENT) for joint in model.joints]
    left_out += [LeftOutPair(*pair, OF_ROBOT_FILE) for pair in sphere_model.ignored]
    left_out += disabled
    is_automatic = srdf is None and not sphere_model.ignored
    contacts = neutral_contacts(tree, sphere_model, left_out)
    if is_automatic:
        left_out += [contact.left_out() for contact in contacts if contact.is_ordinary]
    return RobotDescription(
        links,
        tree,
        padded(sphere_model, padding, links),
        tuple(left_out),
        model.visuals,
        {} if fitted is None else fitted.fits,
        shapes_of_links(model),
        links_not_checked(model, sphere_model.bodies.values()),
        locked,
        contacts,
        held.named_states(),
        Path(urdf),
        tuple(map(Path, package_dirs)),
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
            stacklevel=4,  # where the robot is made
        )

"""Reads a robot from its files: links and joints, spheres, and pairs that are not checked."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from warp_collision.robot.model.link_shapes import (
    Overshoot,
    Progress,
    padded,
    shapes_of_links,
    spheres_of_shapes,
)
from warp_collision.robot.model.sphere_model import SphereModel, read_spheres
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
        ignored_pairs: pairs of links that are adjacent, or that a file disables.
        link_meshes: visual meshes.
        fits: for each link with fitted shapes a `Coverage` of each.
        shapes: of each link, the shapes that its spheres approximate.
        links_without_spheres: links that have shapes of any kind, but no enabled spheres.
        locked: locked joints and their values.
    """

    link_names: tuple[str, ...]
    tree: KinematicTree
    spheres: SphereModel
    ignored_pairs: tuple[tuple[str, str], ...]
    link_meshes: tuple[LinkMesh, ...] = ()
    fits: dict[str, tuple[Coverage, ...]] = field(default_factory=dict)
    shapes: dict[str, list[LinkShape | LinkMesh]] = field(default_factory=dict)
    links_without_spheres: tuple[str, ...] = ()
    locked: dict[str, float] = field(default_factory=dict)


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
) -> RobotJoints:
    """Reads links and joints, within milliseconds; see `RobotSpheres` for arguments and errors."""
    model = read_urdf_model(urdf, package_dirs)
    links, joints = model.link_names, model.joints
    given = None if spheres is None else read_spheres(spheres, links, joints)
    of_file = {} if given is None else given.locked
    chosen = of_file | check_locks(lock_joints, joints)
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
) -> RobotDescription:
    """Reads a robot; see `RobotSpheres` for arguments and errors."""
    model, spheres_given, locked, tree = read_robot_joints(urdf, spheres, package_dirs, lock_joints)
    links = model.link_names
    disabled = () if srdf is None else read_srdf(srdf, links)  # before fits take their time
    if spheres_given is None:
        with errors_at(escaped(str(urdf))):
            sphere_model, fits = spheres_of_shapes(model, max_overshoot, progress)
            if not sphere_model.bodies:
                raise ValueError("links must have collision shapes, got none")
    else:
        sphere_model, fits = spheres_given, {}
    _check_base(sphere_model.base_link, tree)
    _check_joint_order(sphere_model.joint_names, tree)
    bodies = sphere_model.bodies.values()
    if not bodies:
        raise ValueError("spheres must not be empty, got none")
    tree.require_free_root({body.link for body in bodies})
    adjacent = ((joint.parent, joint.child) for joint in model.joints)
    # Spheres that are all disabled check nothing.
    checked = {body.link for body in bodies if (body.spheres[:, 3] >= 0.0).any()}
    return RobotDescription(
        links,
        tree,
        padded(sphere_model, padding, links),
        (*adjacent, *sphere_model.ignored, *disabled),
        model.visuals,
        fits,
        shapes_of_links(model),
        tuple(link for link in links if link in model.shaped_links - checked),
        locked,
    )


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

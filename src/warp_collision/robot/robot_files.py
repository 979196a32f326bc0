"""Reads a robot from its files: links and joints, spheres, and pairs that are not checked."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from warp_collision.messages import errors_at, escaped, shown
from warp_collision.robot.chain import Chain, fold_chain
from warp_collision.robot.coverage import Coverage
from warp_collision.robot.description import (
    Description,
    LinkMesh,
    LinkShape,
    PathLike,
    read_description,
)
from warp_collision.robot.link_shapes import padded, shapes_of_links, spheres_of_shapes
from warp_collision.robot.locked_joints import check_locks, with_locked
from warp_collision.robot.sphere_models import SphereModel, read_spheres
from warp_collision.robot.srdf import read_srdf

_ROUNDING = 1e-9  # of the entries of transforms


@dataclass(frozen=True, eq=False)
class RobotFiles:
    """What the files of a robot contain; see `RobotSpheres`.

    Attributes:
        link_names: in the order of the file.
        chain: the moving frames.
        spheres: of the links.
        ignored_pairs: pairs of links that are adjacent, or that a file disables.
        link_meshes: visual meshes.
        fits: for each link with fitted shapes a `Coverage` of each.
        shapes: of each link, the shapes that its spheres approximate.
        links_without_spheres: links that have shapes of any kind, but no enabled spheres.
        locked: locked joints and their values.
    """

    link_names: tuple[str, ...]
    chain: Chain
    spheres: SphereModel
    ignored_pairs: tuple[tuple[str, str], ...]
    link_meshes: tuple[LinkMesh, ...] = ()
    fits: dict[str, tuple[Coverage, ...]] = field(default_factory=dict)
    shapes: dict[str, list[LinkShape | LinkMesh]] = field(default_factory=dict)
    links_without_spheres: tuple[str, ...] = ()
    locked: dict[str, float] = field(default_factory=dict)


class RobotJoints(NamedTuple):
    """What is known of a robot before spheres are fitted.

    Attributes:
        description: the content of the URDF.
        spheres: those that are given, if any.
        locked: locked joints and their values.
        chain: the moving frames.
    """

    description: Description
    spheres: SphereModel | None
    locked: dict[str, float]
    chain: Chain


def read_robot_joints(
    urdf: PathLike,
    spheres: PathLike | Mapping[str, Any] | None,
    package_dirs: Sequence[PathLike],
    lock_joints: Mapping[str, float | None],
) -> RobotJoints:
    """Reads links and joints, within milliseconds; see `RobotSpheres` for arguments and errors."""
    description = read_description(urdf, package_dirs)
    links = description.link_names
    model = None if spheres is None else read_spheres(spheres, links, description.joints)
    of_file = {} if model is None else model.locked
    chosen = of_file | check_locks(lock_joints, description.joints)
    locked = {name: value for name, value in chosen.items() if value is not None}
    with errors_at(escaped(str(urdf))):
        chain = fold_chain(links, with_locked(description.joints, locked))
    return RobotJoints(description, model, locked, chain)


def read_robot(
    urdf: PathLike,
    spheres: PathLike | Mapping[str, Any] | None,
    srdf: PathLike | None,
    package_dirs: Sequence[PathLike],
    max_overshoot: float,
    padding: float | Mapping[str, float],
    lock_joints: Mapping[str, float | None],
) -> RobotFiles:
    """Reads a robot; see `RobotSpheres` for arguments and errors."""
    read = read_robot_joints(urdf, spheres, package_dirs, lock_joints)
    description, model, locked, chain = read
    links = description.link_names
    disabled = () if srdf is None else read_srdf(srdf, links)  # before fits take their time
    fits: dict[str, tuple[Coverage, ...]] = {}
    with errors_at(escaped(str(urdf))):
        if model is None:
            model, fits = spheres_of_shapes(description, max_overshoot)
            if not model.bodies:
                raise ValueError("links must have collision shapes, got none")
    _check_base(model.base_link, chain)
    _check_joint_order(model.joint_names, chain)
    if not model.bodies:
        raise ValueError("spheres must not be empty, got none")
    carriers = {body.link for body in model.bodies.values()}
    chain.require_free_root(carriers)
    shapes = shapes_of_links(description)
    adjacent = ((joint.parent, joint.child) for joint in description.joints)
    # Spheres that are all disabled check nothing.
    checked = {body.link for body in model.bodies.values() if (body.spheres[:, 3] >= 0.0).any()}
    return RobotFiles(
        links,
        chain,
        padded(model, padding, links),
        (*adjacent, *model.ignored, *disabled),
        description.visuals,
        fits,
        shapes,
        tuple(link for link in links if link in description.shaped_links - checked),
        locked,
    )


def _check_base(base_link: Any, chain: Chain) -> None:
    """Requires the base frame of a robot file to be the frame of the root link.

    Args:
        base_link: the base link of the file; None if it has none.
        chain: of the URDF.

    Raises:
        ValueError: an unknown link, one that is not fixed to the root, or one with another frame.
    """
    if base_link is None:
        return
    root = next(iter(chain.link_frame))
    rule = f"base_link must be the root link {shown(root)}, or fixed to it with its frame"
    if base_link not in chain.link_frame or chain.link_frame[base_link] != 0:
        raise ValueError(f"{rule}, got {shown(base_link)}")
    offset = np.abs(chain.frame_from_link[base_link] - np.eye(4)).max()
    if offset > _ROUNDING:
        raise ValueError(f"{rule}, got {shown(base_link)}, whose frame differs by {offset:.3g}")


def _check_joint_order(joint_names: Sequence[str], chain: Chain) -> None:
    """Warns if the order of joints in a robot file is not that of the URDF.

    Args:
        joint_names: `cspace.joint_names` of the file; empty if it has none.
        chain: of the URDF; the names may include locked joints, which have no value.
    """
    order = tuple(name for name in joint_names if name in chain.joint_names)
    if joint_names and order != chain.joint_names:
        warnings.warn(
            f"joint values are those of {', '.join(chain.joint_names)}, in this order, which is "
            f"not that of cspace.joint_names, {shown(list(order))}",
            UserWarning,
            stacklevel=4,  # where the robot is made
        )

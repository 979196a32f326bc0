"""Whether a robot file of cuRobo and a URDF mean the same base and the same joint values."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from warp_collision.messages import shown
from warp_collision.robot.chain import Chain

_ROUNDING = 1e-9  # of an entry of a transform


def check_base(base_link: Any, chain: Chain) -> None:
    """Requires the base of a robot file to be where the root link is.

    Args:
        base_link: a link, whose frame is the robot's there; None if the file has none.
        chain: of the URDF, whose root link is the robot's frame here.

    Raises:
        ValueError: an unknown link, or one that is not fixed to the root, in its place.
    """
    if base_link is None:
        return
    root = next(iter(chain.link_frame))
    rule = f"base_link must be the root link {shown(root)}, or fixed to it with its frame"
    if base_link not in chain.link_frame or chain.link_frame[base_link] != 0:
        raise ValueError(f"{rule}, got {shown(base_link)}")
    offset = np.abs(chain.frame_from_link[base_link] - np.eye(4)).max()
    if offset > _ROUNDING:
        raise ValueError(f"{rule}, got {shown(base_link)}, which is elsewhere by {offset:.3g}")


def check_joint_order(joint_names: Sequence[str], chain: Chain) -> None:
    """Warns if a robot file has its joint values in another order than the URDF.

    Args:
        joint_names: `cspace.joint_names` of the file; empty if it has none.
        chain: of the URDF; locked joints, which have no value, may be among the names.
    """
    order = tuple(name for name in joint_names if name in chain.joint_names)
    if joint_names and order != chain.joint_names:
        warnings.warn(
            f"joint values are those of {', '.join(chain.joint_names)}, in this order, which is "
            f"not that of cspace.joint_names, {shown(list(order))}",
            UserWarning,
            stacklevel=5,
        )

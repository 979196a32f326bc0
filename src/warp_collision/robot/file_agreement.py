"""Checks that a robot file of cuRobo and a URDF agree on the base and the order of joints."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from warp_collision.messages import shown
from warp_collision.robot.chain import Chain

_ROUNDING = 1e-9  # of the entries of transforms


def check_base(base_link: Any, chain: Chain) -> None:
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


def check_joint_order(joint_names: Sequence[str], chain: Chain) -> None:
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
            stacklevel=5,
        )

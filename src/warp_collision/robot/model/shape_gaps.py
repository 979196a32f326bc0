"""Which links of a robot touch at joint values: by their spheres, and by their convex pieces."""

from __future__ import annotations

import torch
from torch import Tensor

from warp_collision.kernels.piece_gaps import piece_gaps
from warp_collision.launching.launch import launch
from warp_collision.robot.model.link_pairs import SelfCollisionPairs
from warp_collision.robot.model.robot_tables import FRAME_POSE
from warp_collision.robot.model.sphere_layout import SphereLayout


def shape_gaps(
    joints: Tensor, layout: SphereLayout, pairs: SelfCollisionPairs, margin: float
) -> Tensor | None:
    """Clearance (n, n_pairs) float32 [m] of pairs of links by their convex pieces.

    A lower bound, found to rounding below the margin; far below 0 where they touch or one of them
    has none. None if the robot has none.

    Args:
        joints: (n, n_joints).
        layout: the bodies.
        pairs: of links.
        margin: [m].
    """
    device = joints.device
    robot, (body_pairs, _) = layout.tables(device), layout.pair_tables(pairs, device)
    if len(robot.pieces) == 0:
        return None
    values = joints.detach().float().contiguous()
    gaps = values.new_empty((len(values), len(pairs)))
    frame_poses = values.new_empty((len(values), len(robot.frames), FRAME_POSE))
    limit = torch.full((1,), margin, device=device)
    operands = values, robot, body_pairs, limit, frame_poses, gaps
    launch(piece_gaps, values.shape[:1], *operands, device=device, items=64 * gaps.numel())
    return gaps


def touching_links(
    joints: Tensor, layout: SphereLayout, pairs: SelfCollisionPairs, margin: float = 0.0
) -> Tensor:
    """Which pairs of links are nearer than a margin [m]: (n, n_pairs) bool.

    Args:
        joints: (n, n_joints).
        layout: the bodies.
        pairs: of links.
        margin: [m].
    """
    with torch.no_grad():
        spheres = pairs.inflate(layout.kinematics.forward(joints))
    found = torch.zeros((len(joints), len(pairs)), dtype=torch.bool, device=joints.device)
    for k, rows, gaps in pairs.near(spheres, margin):
        found[rows, k] = (gaps < margin).flatten(1).any(1)
    by_shapes = shape_gaps(joints, layout, pairs, margin)
    return found if by_shapes is None else found & ~(by_shapes >= margin)

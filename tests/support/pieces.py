"""Which points are inside of meshes, and which of them convex pieces leave out."""

from collections.abc import Iterable

import numpy as np
import torch
import trimesh
from scipy.spatial import ConvexHull

from warp_collision import MeshWorld, signed_distance
from warp_collision.robot.model.convex_pieces import ConvexPiece


def inside_of(mesh: trimesh.Trimesh, points: np.ndarray) -> np.ndarray:
    """Of points (n, 3) those inside of a closed mesh, further than coordinates are rounded."""
    world = MeshWorld(device="cpu", grid_cells=0)
    world.add("mesh", (mesh.vertices, mesh.faces))
    distance = signed_distance(torch.from_numpy(points).float(), world).distance
    return points[distance.numpy() < -1e-5]


def outside_of(pieces: Iterable[ConvexPiece], points: np.ndarray) -> np.ndarray:
    """Of points (n, 3) those that are in no piece. Flat pieces have no inside."""
    is_in = np.zeros(len(points), dtype=bool)
    for piece in pieces:
        if len(piece.points) < 4 or np.ptp(piece.points, axis=0).min() < 1e-6:
            if len(piece.points) == 1:
                is_in |= np.linalg.norm(points - piece.points[0], axis=1) <= piece.radius
            continue
        planes = ConvexHull(piece.points).equations
        is_in |= (points @ planes[:, :3].T + planes[:, 3]).max(axis=1) <= piece.radius
    return points[~is_in]

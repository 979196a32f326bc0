"""What a picture says of a path and of a world: curves of clearance, labels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from warp_collision.io import Obstacle
from warp_collision.messages import escaped
from warp_collision.viewer.camera import Camera
from warp_collision.viewer.colors import Theme
from warp_collision.viewer.labels import Label
from warp_collision.viewer.path_facts import PathFacts
from warp_collision.viewer.picture import Curve, anchor_of
from warp_collision.viewer.ray_tracer import SAMPLES
from warp_collision.viewer.triangles import of_obstacle

_LABELLED = 6  # obstacles of a world without a robot
_NAME = 40  # characters of a name in a label


def curve_of(name: str, facts: PathFacts, theme: Theme) -> Curve:
    """Returns the certified clearance of a path, to obstacles and to itself."""
    steps = torch.linalg.vector_norm(facts.joints[1:] - facts.joints[:-1], dim=-1)
    ends = np.concatenate([[0.0], steps.double().cumsum(0).cpu().numpy()])
    ends = ends / ends[-1] if ends[-1] > 0.0 else np.linspace(0.0, 1.0, len(ends))
    lower, upper, own = (
        column.double().numpy()
        for column in (facts.motion.lower, facts.motion.upper, facts.motion.self_lower)
    )
    return Curve(ends, lower, upper, own, name or "to obstacles", theme.accent(facts.is_free))


def path_labels(facts: PathFacts, camera: Camera) -> list[Label]:
    """Returns labels of the worst contacts, and of start and goal."""
    labels = []
    for contact in facts.worst(2):
        if contact.is_blocked or not labels:
            point = facts.closest_points(contact)[1]
            text = escaped(str(contact), 2 * _NAME)
            labels.append(Label(text, anchor_of(camera, point, SAMPLES), contact.is_blocked))
    if facts.n_segments:
        for text, waypoint in (("start", 0), ("goal", -1)):
            tip = facts.spheres[waypoint, -1, :3]
            labels.append(Label(text, anchor_of(camera, tip, SAMPLES)))
    return labels


def world_labels(obstacles: Mapping[str, Obstacle], camera: Camera) -> list[Label]:
    """Returns labels of the largest obstacles."""
    boxes = {name: of_obstacle(obstacle).vertices for name, obstacle in obstacles.items()}
    sizes = {name: float(np.ptp(v, axis=0).max()) for name, v in boxes.items()}
    largest = sorted(boxes, key=lambda name: -sizes[name])[:_LABELLED]
    return [
        Label(
            escaped(name, _NAME),
            anchor_of(camera, 0.5 * (boxes[name].min(0) + boxes[name].max(0)), SAMPLES),
        )
        for name in largest
    ]

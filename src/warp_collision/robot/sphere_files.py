"""Writes the spheres of links to a YAML file that robots are read with."""

from __future__ import annotations

import json
import os
from pathlib import Path

from warp_collision.robot.sphere_models import SphereModel


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
    found = [what for what, has in more.items() if has]
    if found:
        raise ValueError(
            f"the spheres must be those of links alone, got {', '.join(found)} too: use the robot "
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

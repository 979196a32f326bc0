"""The robots of the problem sets, as the library has them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from warp_collision.robot import RobotSpheres

# Pairs of links that touch at all joint values, and that the SRDF leaves out under a name which the
# URDF with spheres does not have: the UR5's force sensor is screwed to its wrist.
ALWAYS_TOUCHING = {"ur5": (("fts_robotside", "wrist_2_link"),)}


def load_robot(folder: Path, robot: str) -> RobotSpheres:
    """A robot from its URDF with spheres, its pairs for self-collision from its SRDF.

    The URDF fixes all joints that no problem moves. The SRDF is of the robot's whole model, with
    links that the URDF with spheres lacks: the library refuses those, so that they are left out.
    """
    urdf = folder / f"{robot}_spherized.urdf"
    return RobotSpheres(urdf, srdf=_fitting_srdf(folder, robot))


def _fitting_srdf(folder: Path, robot: str) -> Path:
    """Writes an SRDF of the links that the URDF with spheres has."""
    urdf = ET.parse(folder / f"{robot}_spherized.urdf").getroot()
    links = {link.get("name") for link in urdf.iter("link")}
    fitting = ET.Element("robot", name=str(urdf.get("name")))
    disabled = ET.parse(folder / f"{robot}.srdf").getroot().iter("disable_collisions")
    pairs = [(str(entry.get("link1")), str(entry.get("link2"))) for entry in disabled]
    for link1, link2 in (*pairs, *ALWAYS_TOUCHING.get(robot, ())):
        if link1 in links and link2 in links:
            ET.SubElement(fitting, "disable_collisions", link1=link1, link2=link2)
    path = folder / f"{robot}_fitting.srdf"
    text = ET.tostring(fitting, encoding="unicode")
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path

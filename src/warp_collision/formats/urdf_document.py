"""URDF documents, validated: no link, joint or collision shape is dropped silently."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from warp_collision.formats.files import read_xml
from warp_collision.messages import errors_at, escaped, short_repr

# Extensions: links and joints in them belong to other programs.
_EXTENSIONS = ("gazebo", "transmission", "ros2_control")
_PARENTS = {"link": "robot", "joint": "robot", "collision": "link", "visual": "link"}
_AT_MOST_ONE = {
    "collision": ("origin", "geometry"),
    "visual": ("origin", "geometry"),
    "joint": ("origin", "parent", "child", "axis", "limit", "mimic"),
}


def read_urdf(path: Path) -> Element:
    """Reads the <robot> of a URDF file.

    Raises:
        ValueError: no well-formed XML (as in `read_xml`), another root, macros that are not
            expanded, a link, joint or shape inside another element than its own, or twice what
            stands once. It names the file and the link or joint.
    """
    with errors_at(escaped(str(path))):
        robot = read_xml(path)
        if robot.tag != "robot":
            raise ValueError(f"must have the root element <robot>, got <{escaped(robot.tag, 100)}>")
        for element, parent, named in _walk(robot):
            _check(element, parent, named)
    return robot


def _walk(robot: Element) -> Iterator[tuple[Element, Element, str]]:
    """Elements outside of extensions, with their parent and the link or joint that they are in."""
    stack = [(child, robot, "the robot") for child in reversed(robot)]
    while stack:
        element, parent, named = stack.pop()
        if element.tag in ("link", "joint"):
            named = f"{element.tag} {short_repr(element.get('name'))}"
        yield element, parent, named
        if element.tag not in _EXTENSIONS:
            stack.extend((child, element, named) for child in reversed(element))


def _check(element: Element, parent: Element, named: str) -> None:
    tag = element.tag
    if "xacro" in tag:
        raise ValueError(
            f"{named} must have its macros expanded, got <{escaped(tag, 100)}>: run xacro on the "
            "file first"
        )
    if parent.tag != _PARENTS.get(tag, parent.tag):
        raise ValueError(
            f"{named}: <{tag}> must stand in <{_PARENTS[tag]}>, got <{escaped(parent.tag, 100)}>"
        )
    for once in _AT_MOST_ONE.get(tag, ()):
        if len(element.findall(once)) > 1:
            raise ValueError(f"{named}: <{tag}> must have one <{once}>, got more")
    if tag == "geometry" and parent.tag in ("collision", "visual") and len(element) != 1:
        shapes = [shape.tag for shape in element]
        raise ValueError(f"{named}: <geometry> must hold one shape, got {short_repr(shapes)}")

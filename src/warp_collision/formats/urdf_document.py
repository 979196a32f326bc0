"""URDF documents, validated: no link, joint or collision shape is dropped silently."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from warp_collision.formats.files import read_xml_leniently
from warp_collision.messages import depth_of_caller, errors_at, escaped, short_repr

# Extensions: links and joints in them belong to other programs.
_EXTENSIONS = ("gazebo", "transmission", "ros2_control")
_MOST_NAMED = 10  # in a warning
_PARENTS = {"link": "robot", "joint": "robot", "collision": "link", "visual": "link"}
_AT_MOST_ONE = {
    "collision": ("origin", "geometry"),
    "visual": ("origin", "geometry"),
    "joint": ("origin", "parent", "child", "axis", "limit", "mimic"),
}


def read_urdf(path: Path, *, planes: bool = False) -> Element:
    """Reads the <robot> of a URDF file.

    Some files that other readers take are read with a warning, which names what is left out:
    attributes with undeclared prefixes, <material> in <geometry>, all but the first <axis>, and
    shapes that are a <plane>, unless `planes` are kept.

    Raises:
        ValueError: no well-formed XML (as in `read_xml`), another root, or macros that are not
            expanded. A link, joint or shape is misplaced, or an element is there twice. It names
            the file and the link or joint.
    """
    with errors_at(escaped(str(path))):
        robot, prefixed = read_xml_leniently(path)
        if robot.tag != "robot":
            raise ValueError(f"must have the root element <robot>, got <{escaped(robot.tag, 100)}>")
        left_out = [f"<{name}> or {name}=, of an undeclared prefix" for name in prefixed]
        for element, parent, named in _walk(robot):
            left_out += [f"{named}: {what}" for what in _leave_out(element, parent, planes)]
            _check(element, parent, named)
    if left_out:
        more = f" and {len(left_out) - _MOST_NAMED} more" if len(left_out) > _MOST_NAMED else ""
        text = "; ".join(escaped(entry, 200) for entry in left_out[:_MOST_NAMED])
        warnings.warn(
            f"{escaped(str(path))} is read without {text}{more}", stacklevel=depth_of_caller()
        )
    return robot


def _leave_out(element: Element, parent: Element, planes: bool) -> list[str]:
    """Removes what other readers leave out too, and says what it was."""
    found = []
    if element.tag == "joint" and parent.tag == "robot":
        found = [(element, axis, "a second <axis>") for axis in element.findall("axis")[1:]]
    elif element.tag == "geometry" and len(element) > 1:
        inside = element.findall("material")
        found = [(element, material, "<material> in <geometry>") for material in inside]
    elif element.tag == "link" and not planes:
        found = [
            (element, shape, f"a <{shape.tag}> that is a <plane>")
            for kind in ("collision", "visual")
            for shape in element.findall(kind)
            if shape.find("geometry/plane") is not None
        ]
    for owner, child, _ in found:
        owner.remove(child)
    return [what for _, _, what in found]


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

"""COLLADA files: their geometry alone, bounded by the size of the text."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from warp_collision.formats.xml_file import read_xml
from warp_collision.messages import MAX_SHOWN, escaped, shown

MAX_INSTANCES = 10_000
MAX_EXPANDED = 64 << 20  # characters of the geometry of all instances, where it stands for more

# Irrelevant to collisions, and the part that is most often broken.
_APPEARANCE = frozenset(
    "library_images library_effects library_materials library_lights library_cameras "
    "library_animations library_animation_clips bind_material instance_light instance_camera "
    "extra".split()
)


def read_collada(path: Path) -> bytes:
    """The file as plain XML without materials, textures, lights and cameras.

    Raises:
        ValueError: no well-formed XML, numbers that are not finite, a skinned mesh, or nodes that
            hold one another, or instantiate more than 10,000 geometries or 64 MiB of text that
            is not there as often.
    """
    root = read_xml(path)
    if _name(root) != "COLLADA":
        raise ValueError(f"the root element must be <COLLADA>, got <{escaped(root.tag, 50)}>")
    _strip(root)
    for element in root.iter():
        name = _name(element)
        if name == "float_array":
            _check_numbers(element)
        elif name == "instance_controller":  # trimesh leaves it out
            raise ValueError("meshes must not be skinned, got an <instance_controller>")
    _check_instances(root)
    return ElementTree.tostring(root)


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _strip(element: Element) -> None:
    for child in list(element):
        if _name(child) in _APPEARANCE:
            element.remove(child)
        else:
            _strip(child)


def _check_numbers(element: Element) -> None:
    text = element.text or ""
    with np.errstate(over="ignore"):
        numbers = np.array(text.split(), dtype=np.float64).astype(np.float32)
    if not np.isfinite(numbers).all():
        raise ValueError(
            f"<float_array> {shown(element.get('id'))} must hold finite numbers, got "
            f"{escaped(text.split()[int(np.flatnonzero(~np.isfinite(numbers))[0])], MAX_SHOWN)}"
        )


def _check_instances(root: Element) -> None:
    """Counts the expanded instances of nodes and geometries, before anything is built."""
    nodes = {n.get("id"): n for n in root.iter() if _name(n) == "node"}
    sizes = {
        g.get("id"): sum(len(e.text or "") for e in g.iter())
        for g in root.iter()
        if _name(g) == "geometry"
    }
    most = max(MAX_EXPANDED, sum(sizes.values()))
    known: dict[str | None, tuple[int, int] | None] = {}

    def count(element: Element) -> tuple[int, int]:
        instances = size = 0
        for child in element:
            name, target = _name(child), (child.get("url") or "").removeprefix("#")
            if name == "instance_geometry":
                found = 1, sizes.get(target, 0)
            elif name == "instance_node" and target in nodes:
                found = of_node(target)
            elif name == "node":
                found = count(child)
            else:
                continue
            instances, size = instances + found[0], size + found[1]
        if instances > MAX_INSTANCES or size > most:
            raise ValueError(
                f"nodes must instantiate at most {MAX_INSTANCES} geometries and {most} "
                f"characters, got {instances} and {size}"
            )
        return instances, size

    def of_node(key: str) -> tuple[int, int]:
        if key not in known:
            known[key] = None
            known[key] = count(nodes[key])
        found = known[key]
        if found is None:
            raise ValueError(f"nodes must not instantiate themselves, got {shown(key)}")
        return found

    for scene in root.iter():
        if _name(scene) == "visual_scene":
            count(scene)

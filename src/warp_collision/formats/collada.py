"""COLLADA files without what is irrelevant to collisions, and without silent losses."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from warp_collision.formats.files import read_xml
from warp_collision.messages import MAX_REPR, escaped, short_repr

# Irrelevant to collisions, and the part that is most often broken.
_APPEARANCE = frozenset(
    "library_images library_effects library_materials library_lights library_cameras "
    "library_animations library_animation_clips bind_material instance_light instance_camera "
    "extra".split()
)


def read_collada(path: Path) -> bytes:
    """The file as plain XML without materials, textures, lights and cameras.

    Raises:
        ValueError: no well-formed XML, or what trimesh leaves out: numbers that are not finite, a
            skinned mesh.
    """
    root = read_xml(path)
    _strip(root)
    return ElementTree.tostring(root)


def _strip(element: Element) -> None:
    for child in list(element):
        name = child.tag.rpartition("}")[2]
        if name == "instance_controller":
            raise ValueError("meshes must not be skinned, got an <instance_controller>")
        if name == "float_array":
            _check_numbers(child)
        if name in _APPEARANCE:
            element.remove(child)
        else:
            _strip(child)


def _check_numbers(element: Element) -> None:
    words = (element.text or "").split()
    with np.errstate(over="ignore"):
        numbers = np.array(words, dtype=np.float64).astype(np.float32)
    if not np.isfinite(numbers).all():
        first = words[int(np.flatnonzero(~np.isfinite(numbers))[0])]
        raise ValueError(
            f"<float_array> {short_repr(element.get('id'))} must hold finite numbers, got "
            f"{escaped(first, MAX_REPR)}"
        )

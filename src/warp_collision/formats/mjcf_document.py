"""MJCF documents, bounded before MuJoCo's parser sees them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from warp_collision.formats.mesh_files import is_file
from warp_collision.formats.png_size import check_png
from warp_collision.formats.xml_file import read_xml
from warp_collision.messages import errors_at, escaped, shown

MAX_FILES = 1_000
MAX_ELEMENTS = 200_000  # repeated ones counted
MAX_PLACES = 10_000  # in which files of height fields are looked for
MAX_NUMBERS = 10_000_000  # that attributes ask for without writing them

# Attributes of an element that say how often something is repeated, or how many numbers it has.
_COPIES = {"replicate": ("count",), "composite": ("count",), "flexcomp": ("count",)}
_NUMBERS = {
    "hfield": ("nrow", "ncol"),
    "numeric": ("size",),
    "user": ("dim",),
    "size": ("nuserdata", "nkey", "nstack", "njmax", "nconmax"),
}
_MAX_USER = 1_000  # numbers of each element of a kind
_FILES = ("include", "model")


def check_mjcf(path: Path) -> None:
    """Raises unless MuJoCo can compile an MJCF file and its includes in bounded time.

    Raises:
        ValueError: no well-formed XML, as in `read_xml`, another root, an included file that does
            not exist, or more elements, numbers or pixels of height fields than the bounds of this
            module allow.
    """
    root = read_xml(path)
    if root.tag != "mujoco":
        raise ValueError(f"the root element must be <mujoco>, got <{escaped(root.tag, 50)}>")
    seen, folders = {path.resolve()}, {path.parent}
    documents = [root]
    budget = _Budget()
    for document in documents:  # grows
        budget.take(document, 1)
        for element in document.iter():
            name = element.get("file")
            if element.tag not in _FILES or name is None:
                continue
            file = path.parent / name  # MuJoCo looks there whichever file includes it
            if not is_file(file):
                raise ValueError(f"an included file must exist, got {shown(name)}")
            if file.resolve() in seen or len(seen) > MAX_FILES:
                raise ValueError(f"a file must be included once, got {shown(name)} again")
            seen.add(file.resolve())
            folders.add(file.parent)
            with errors_at(f"included file {shown(name)}"):
                documents.append(read_xml(file))
            if element.tag == "model" and next(documents[-1].iter("attach"), None) is not None:
                raise ValueError(f"a model that is attached must not attach, got {shown(name)}")
    for pixels in _images_of_height_fields(documents, folders):
        budget.take_numbers(pixels, "hfield")


def _images_of_height_fields(documents: list[Element], folders: set[Path]) -> Iterator[int]:
    """Numbers of pixels of the images that MuJoCo may read as height fields."""
    compilers = [c for document in documents for c in document.iter("compiler")]
    below = {"", *(c.get(key, "") for c in compilers for key in ("meshdir", "assetdir"))}
    names = {
        name
        for document in documents
        for element in document.iter("hfield")
        for given in [element.get("file")]
        if given is not None
        for name in (given, Path(given).name)  # for strippath
    }
    if len(folders) * len(below) * len(names) > MAX_PLACES:
        raise ValueError(f"height fields must be looked for in {MAX_PLACES} places, got more")
    seen: set[Path] = set()
    for folder, middle, name in itertools.product(folders, below, names):
        file = folder / middle / name
        if not is_file(file) or file.resolve() in seen:
            continue
        seen.add(file.resolve())
        with errors_at(f"height field {shown(name)}"):
            pixels = check_png(file, MAX_NUMBERS)
        yield pixels


class _Budget:
    """Counts the elements and numbers of documents, after expansion."""

    def __init__(self) -> None:
        self._elements = self._numbers = 0

    def take(self, element: Element, copies: int) -> None:
        """Counts an element and its descendants, whose depth `read_xml` bounds."""
        self._elements += copies
        if element.tag in _COPIES:
            copies *= _product(element, _COPIES[element.tag])
            self._elements += copies
        self.take_numbers(
            copies * (_product(element, _NUMBERS.get(element.tag, ())) - 1), element.tag
        )
        for key in element.keys():  # elements are no mappings
            if key.startswith("nuser_") and _product(element, (key,)) > _MAX_USER:
                raise ValueError(f"{key} must be at most {_MAX_USER}, got {element.get(key)}")
        for child in element:
            self.take(child, copies)

    def take_numbers(self, count: int, tag: str) -> None:
        """Counts numbers of an element with this tag."""
        self._numbers += count
        if self._elements > MAX_ELEMENTS or self._numbers > MAX_NUMBERS:
            raise ValueError(
                f"must come to at most {MAX_ELEMENTS} elements and {MAX_NUMBERS} numbers, got "
                f"more at <{escaped(tag, 50)}>"
            )


def _product(element: Element, keys: tuple[str, ...]) -> int:
    words = " ".join(element.get(key, "") for key in keys).split()
    try:
        return math.prod(max(1, int(float(word))) for word in words)
    except (ValueError, OverflowError) as error:
        where = f"{' and '.join(keys)} of <{element.tag}>"
        raise ValueError(f"{where} must be whole numbers, got {shown(' '.join(words))}") from error

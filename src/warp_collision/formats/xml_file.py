"""XML files to elements, without document types, entities and deep nesting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from warp_collision.messages import escaped, one_line

MAX_BYTES = 256 << 20
MAX_DEPTH = 100
_COMMENT, _NOT_ASCII = re.compile(rb"<!--.*?-->", re.DOTALL), re.compile(rb"[\x80-\xff]")


def read_xml(path: Path) -> Element:
    """Reads the root element of an XML file of at most 256 MiB, nested at most 100 deep.

    Comments may be in another encoding than the file, whose names and values must be in its own.

    Raises:
        ValueError: no well-formed XML, beyond these bounds, an encoding that is not known, or a
            document type: entities can expand without bound and read other files. The caller
            names the file.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise _Refused(f"must have at most {MAX_BYTES} bytes, got {size}")
        parser = ElementTree.XMLParser(target=_Builder())
        parser.feed(_with_readable_comments(path.read_bytes()))
        return parser.close()
    except _Refused as error:
        raise ValueError(str(error)) from None
    except Exception as error:  # ParseError, LookupError and ValueError of an odd encoding
        raise ValueError(f"must be well-formed XML: {one_line(error)}") from error


def _with_readable_comments(content: bytes) -> bytes:
    """The content, with question marks in comments for what is not UTF-8 in it."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return _COMMENT.sub(lambda comment: _NOT_ASCII.sub(b"?", comment[0]), content)
    return content


class _Refused(Exception):
    """Well-formed XML that is not allowed."""


class _Builder(ElementTree.TreeBuilder):
    """Builds elements; refuses a document type, and nesting too deep for recursive code."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def start(self, tag: Any, attrs: Any, /) -> Element:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Refused(f"elements must be nested at most {MAX_DEPTH} deep, got more")
        return super().start(tag, attrs)

    def end(self, tag: Any, /) -> Element:
        self._depth -= 1
        return super().end(tag)

    def doctype(self, name: str, *_: Any) -> None:
        """Called where a document type begins, before what it declares is read."""
        raise _Refused(f"must not declare a document type, got <!DOCTYPE {escaped(name, 50)}>")

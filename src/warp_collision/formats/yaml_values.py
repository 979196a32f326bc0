"""YAML text to plain Python values, within stated bounds of size, nesting and expansion.

PyYAML itself bounds neither nesting nor merges, lets the last of equal keys win, and takes twice as
long to build values by way of nodes.
"""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any

from warp_collision.extras import require_extra
from warp_collision.messages import any_error_at, escaped, short_repr

MAX_BYTES = 8 << 20
MAX_DEPTH = 32
MAX_VALUES = 500_000  # with every alias and merge expanded

_TAG = "tag:yaml.org,2002:"
_SCALARS = tuple(_TAG + kind for kind in ("null", "bool", "int", "float", "str"))
_MERGE = _TAG + "merge"
# Dates and the key `=` mean nothing here: they stay text.
_UNUSED = (_TAG + "timestamp", _TAG + "value")
# PyYAML follows YAML 1.1, where 1e-3 (no dot) and 1.5e3 (no sign) are text.
_DECIMAL = re.compile(r"[-+]?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?\Z")
_EXPONENT = re.compile(r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")


def read_yaml(path: Path) -> object:
    """Reads the only document of a YAML file.

    Mappings, sequences, text, numbers, booleans and null become their Python counterparts; aliases
    and merges (``<<``) are followed. A file has at most 8 MiB and, with every alias and merge
    expanded, 500,000 values, nested at most 32 levels deep.

    Raises:
        ImportError: PyYAML is not installed.
        ValueError: no valid YAML, beyond these bounds, another tag, or a key that stands twice; it
            names the file and the line.
    """
    require_extra("yaml", f"{path}: reading YAML")
    yaml: Any = importlib.import_module("yaml")
    # PyYAML raises more than YAMLError at odd characters and numbers.
    with any_error_at(f"{escaped(str(path))}: no valid YAML"):
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ValueError(f"a file must have at most {MAX_BYTES} bytes, got {size}")
        loader = _loader_class(yaml)(path.read_bytes().decode("utf-8-sig"))
        return _Document(yaml, loader).read()


@functools.cache
def _loader_class(yaml: Any) -> Any:
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        """Splits text into events and resolves scalars."""

        yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML's way
            first: [entry for entry in entries if entry[0] not in _UNUSED]
            for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver(_TAG + "float", _EXPONENT, list("-+.0123456789"))
    return Loader


class _Document:
    """Builds values from a loader's events; aliases share the value of their anchor."""

    def __init__(self, yaml: Any, loader: Any) -> None:
        self._yaml, self._loader = yaml, loader
        self._anchored: dict[str, tuple[object, int]] = {}  # value and how many values it holds

    def read(self) -> object:
        self._loader.get_event()  # the start of the stream
        if self._loader.check_event(self._yaml.StreamEndEvent):
            return None
        self._loader.get_event()  # the start of the document
        value, _ = self._value(0)
        self._loader.get_event()
        if not self._loader.check_event(self._yaml.StreamEndEvent):
            raise ValueError(f"a file must be one document, got another{_line(self._next())}")
        return value

    def _next(self) -> Any:
        return self._loader.get_event()

    def _value(self, depth: int) -> tuple[object, int]:
        """The next value, and how many values it holds with itself."""
        event = self._next()
        if isinstance(event, self._yaml.AliasEvent):
            if event.anchor not in self._anchored:  # an anchor is known once its value is complete
                raise ValueError(
                    f"an alias must follow its anchor, got *{escaped(event.anchor)}{_line(event)}"
                )
            return self._anchored[event.anchor]
        if isinstance(event, self._yaml.ScalarEvent):
            if event.tag is None and event.implicit[0] and _DECIMAL.match(event.value):
                result = float(event.value), 1  # most values: the same as below, in a tenth
            else:
                result = self._scalar(event, self._tag(event)), 1
        elif depth == MAX_DEPTH:
            raise ValueError(f"nesting must be at most {MAX_DEPTH} deep, got more{_line(event)}")
        elif isinstance(event, self._yaml.SequenceStartEvent):
            self._check_tag(event, _TAG + "seq")
            result = self._sequence(depth + 1)
        else:
            self._check_tag(event, _TAG + "map")
            result = self._mapping(depth + 1)
        if result[1] > MAX_VALUES:
            raise ValueError(
                f"a file must hold at most {MAX_VALUES} values with every alias and merge "
                f"expanded, got more{_line(event)}"
            )
        if event.anchor is not None:
            self._anchored[event.anchor] = result
        return result

    def _sequence(self, depth: int) -> tuple[list[object], int]:
        values: list[object] = []
        total = 1
        while not self._loader.check_event(self._yaml.SequenceEndEvent):
            value, count = self._value(depth)
            values.append(value)
            total += count
        self._next()
        return values, total

    def _mapping(self, depth: int) -> tuple[dict[object, object], int]:
        merged: dict[object, object] | None = None
        values: dict[object, object] = {}
        total = 1
        while not self._loader.check_event(self._yaml.MappingEndEvent):
            event = self._next()
            if not isinstance(event, self._yaml.ScalarEvent):
                raise ValueError(f"a key must be a plain scalar{_line(event)}")
            tag = self._tag(event)
            key = event.value if tag == _MERGE else self._scalar(event, tag)
            if key in values or (tag == _MERGE and merged is not None):
                raise ValueError(f"the key {short_repr(key)} stands again{_line(event)}")
            if event.anchor is not None:
                self._anchored[event.anchor] = key, 1
            value, count = self._value(depth)
            total += count
            if total > MAX_VALUES:  # before a merge does the work
                break
            if tag == _MERGE:
                merged = _merged(value, event)
            else:
                values[key] = value
        else:
            self._next()
        return {**(merged or {}), **values}, total

    def _scalar(self, event: Any, tag: str) -> Any:
        node = self._yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        try:
            return self._loader.yaml_constructors[tag](self._loader, node)
        except (ValueError, KeyError, OverflowError) as error:
            kind = tag.removeprefix(_TAG)
            raise ValueError(
                f"a value of type {kind} must be one, got {short_repr(event.value)}{_line(event)}"
            ) from error

    def _tag(self, event: Any) -> str:
        """The tag of a scalar, which determines its type."""
        if event.tag in (None, "!"):
            return self._loader.resolve(self._yaml.ScalarNode, event.value, event.implicit)
        self._check_tag(event, *_SCALARS)
        return event.tag

    def _check_tag(self, event: Any, *allowed: str) -> None:
        if event.tag not in (None, "!", *allowed):
            names = ", ".join("!!" + tag.removeprefix(_TAG) for tag in allowed)
            raise ValueError(f"a tag must be {names}, got {short_repr(event.tag)}{_line(event)}")


def _merged(bases: object, event: Any) -> dict[object, object]:
    """The values that ``<<`` adds to a mapping; the first of several mappings takes precedence."""
    sources = bases if isinstance(bases, list) else [bases]
    result: dict[object, object] = {}
    for source in sources:
        if not isinstance(source, dict):
            raise ValueError(
                f"a merge (<<) must be of mappings, got {short_repr(source)}{_line(event)}"
            )
        for key, value in source.items():
            result.setdefault(key, value)
    return result


def _line(event: Any) -> str:
    return f" in line {event.start_mark.line + 1}"

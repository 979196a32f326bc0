"""Values of YAML files and mappings, read with errors that name their entry."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from warp_collision.formats.files import MAX_COORDINATE
from warp_collision.messages import short_repr

_POSE = "7 finite numbers x, y, z, qw, qx, qy, qz with a quaternion that is not zero"


class Fields:
    """The keys and values of one entry.

    Attributes:
        where: the file and the entry, with which errors begin, safe to print.
        values: the entry.
        folder: what relative paths start from.
    """

    def __init__(self, where: str, values: object, folder: Path) -> None:
        self.where = where
        self.values = mapping(values, where, "keys")
        self.folder = folder

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def expect(self, *required: str, optional: tuple[str, ...] = ()) -> None:
        """Raises unless the required keys are there, and no others but optional ones."""
        check_keys(self.values, self.where, allowed=(*required, *optional))
        for key in required:
            if key not in self.values:
                raise ValueError(f"{self.where}: the key {key!r} is required, got {self._keys()}")

    def expect_either(self, first: str, second: str) -> None:
        """Raises unless exactly one of two keys is there."""
        if (first in self.values) == (second in self.values):
            raise ValueError(
                f"{self.where}: either {first!r} or {second!r} is required, got {self._keys()}"
            )

    def text(self, key: str) -> str:
        """Text that is not empty."""
        value = self.values[key]
        if not isinstance(value, str) or not value:
            raise ValueError(f"{self.where}.{key} must be text, got {short_repr(value)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise ValueError(f"{self.where}.{key} must be true or false, got {short_repr(value)}")
        return value

    def numbers(self, key: str, rule: str, count: int, *, positive: bool = False) -> list[float]:
        """Reads a list of finite numbers, or a bare number where `count` is 1."""
        value = plain(self.values[key])
        values = [value] if count == 1 else value
        good = (
            isinstance(values, list)
            and len(values) == count
            and all(is_number(item) and (item > 0 or not positive) for item in values)
        )
        if not good:
            raise ValueError(f"{self.where}.{key} must be {rule}, got {short_repr(value)}")
        return [float(item) for item in values]

    def lengths(self, key: str, rule: str, count: int, *, positive: bool = False) -> list[float]:
        """Reads numbers that a coordinate can have."""
        values = self.numbers(key, rule, count, positive=positive)
        if max(map(abs, values)) >= MAX_COORDINATE:
            raise ValueError(
                f"{self.where}.{key} must be below 1e9, got {short_repr(self.values[key])}"
            )
        return values

    def length(self, key: str) -> float:
        """Reads a positive length."""
        return self.lengths(key, "a positive number", 1, positive=True)[0]

    def pose(self) -> tuple[float, ...]:
        """Reads `pose`, with the quaternion normalised."""
        values = self.numbers("pose", _POSE, 7)
        if max(map(abs, values[:3])) >= MAX_COORDINATE:
            raise ValueError(
                f"{self.where}.pose must have a position below 1e9, got {short_repr(values)}"
            )
        norm = math.hypot(*values[3:])
        if not 0.0 < norm < math.inf:
            raise ValueError(
                f"{self.where}.pose must be {_POSE}, got {short_repr(self.values['pose'])}"
            )
        return (*values[:3], *(value / norm for value in values[3:]))

    def _keys(self) -> str:
        return ", ".join(self.values) or "none"


def mapping(value: object, where: str, what: str) -> dict[Any, Any]:
    """A value that must be a mapping."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a mapping of {what}, got {short_repr(value)}")
    return value


def sequence(value: object, where: str, what: str) -> list[Any]:
    """A value that must be a list; null is an empty one."""
    items = [] if value is None else plain(value)
    if not isinstance(items, list):
        raise ValueError(f"{where} must be a list of {what}, got {short_repr(value)}")
    return items


def check_keys(values: dict[Any, Any], where: str, *, allowed: Sequence[str]) -> None:
    """Raises unless all keys are allowed."""
    for key in values:
        if key not in allowed:
            raise ValueError(
                f"{where}: keys must be among {', '.join(allowed)}, got {short_repr(key)}"
            )


def plain(value: Any) -> Any:
    """Arrays, tensors and tuples as lists, numbers of NumPy as Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(map(plain, value)) if isinstance(value, tuple) else value


def is_number(value: object) -> bool:
    """Whether a value is a finite real number."""
    # bool is a kind of int in Python, but `yes` is no length. Most are floats, and `Real` is slow.
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
        return False
    number: Any = value
    return abs(number) <= sys.float_info.max

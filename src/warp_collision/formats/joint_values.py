"""Values that a caller gives to joints of a file."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any

from warp_collision import validate
from warp_collision.messages import known_names, short_repr

_ROUNDING = 1e-6  # of a value at a limit [rad or m]


def require_joint_names(argument: str, values: Any, known: Collection[str]) -> Mapping[str, Any]:
    """Requires a mapping whose names are joints that move."""
    validate.require_mapping(argument, values, "a mapping of joints to values")
    unknown = [name for name in values if name not in known]
    if unknown:
        choice = known_names(unknown[0], [*known])
        raise ValueError(
            f"{argument} must be joints that move, got {short_repr(unknown)}; there is {choice}"
        )
    return values


def finite_values(argument: str, values: Any) -> dict[str, float]:
    """Values of joints, whatever their names and limits are."""
    validate.require_mapping(argument, values, "a mapping of joints to values")
    return {name: finite_number(f"{argument}[{name!r}]", value) for name, value in values.items()}


def finite_number(where: str, value: Any) -> float:
    """A value of a joint, whatever its limits are."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{where} must be a number, got {type(value).__name__}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{where} must be finite, got {value}")
    return number


def joint_value(where: str, value: Any, limits: tuple[float, float], *, slides: bool) -> float:
    """A value of a joint [rad, or m if it slides] within its limits."""
    number = finite_number(where, value)
    low, high = limits
    if not low - _ROUNDING <= number <= high + _ROUNDING:
        unit = "m" if slides else "rad"
        degrees = "; in degrees?" if unit == "rad" and abs(number) > 2.0 * math.pi else ""
        raise ValueError(
            f"{where} must be within the limits {low:g} to {high:g} {unit}, got {number:g}{degrees}"
        )
    return number

"""Messages of ROS 1 and 2: objects with fields, or dicts of them, as bridges and bags give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

# sensor_msgs/PointField: INT8, UINT8, INT16, UINT16, INT32, UINT32, FLOAT32, FLOAT64.
_DATATYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


def message_field(message: Any, what: str, name: str, default: Any = None) -> Any:
    """A field of a message or dict, by its name in ROS 1 or 2.

    Args:
        message: the object or dict.
        what: the kind of message, for errors.
        name: of the field, as ROS 1 spells it.
        default: the value without such a field; None: an error.
    """
    for known in (name, name.lower()):
        if isinstance(message, Mapping):
            if known in message:
                return message[known]
        elif hasattr(message, known):
            return getattr(message, known)
    if default is None:
        raise ValueError(f"{what} must have {name}, got {type(message).__name__} without")
    return default


def message_points(message: Any) -> np.ndarray:
    """Points (n, 3) float64 of a sensor_msgs/PointCloud2, row by row of an organized cloud.

    Args:
        message: the message, or a dict of its fields: height, width, fields, point_step, row_step,
            is_bigendian, data. Fields x, y and z may stand anywhere in a point, among others.

    Raises:
        ValueError: a missing or double field, one beyond its point, or less data than stated.
    """
    what = "a PointCloud2"
    height, width = (int(message_field(message, what, name)) for name in ("height", "width"))
    point_step = int(message_field(message, what, "point_step"))
    row_step = int(message_field(message, what, "row_step", width * point_step))
    if min(height, width, point_step) < 0 or row_step < width * point_step:
        raise ValueError(
            f"{what} must have rows of at least width * point_step bytes, got width {width}, "
            f"height {height}, point_step {point_step}, row_step {row_step}"
        )
    data = message_field(message, what, "data")
    is_bytes = isinstance(data, bytes | bytearray | memoryview)
    content = np.frombuffer(data, np.uint8) if is_bytes else np.asarray(data, np.uint8)
    # The last row may end with its last point.
    need = (height - 1) * row_step + width * point_step if height and width else 0
    if content.size < need:
        raise ValueError(f"{what} must hold {need} bytes of points, got {content.size}")
    order = ">" if message_field(message, what, "is_bigendian", False) else "<"
    offsets = _offsets(message_field(message, what, "fields"), what, order, point_step)
    if not need:
        return np.empty((0, 3))
    axes = [
        np.ndarray((height, width), kind, np.ascontiguousarray(content), at, (row_step, point_step))
        for kind, at in offsets
    ]
    return np.stack(axes, axis=-1).reshape(-1, 3).astype(np.float64)


def _offsets(fields: Any, what: str, order: str, point_step: int) -> list[tuple[np.dtype, int]]:
    """Number type and first byte of x, y and z in a point."""
    names = [str(message_field(field, "a PointField", "name")) for field in fields]
    missing = [axis for axis in "xyz" if names.count(axis) != 1]
    if missing:
        raise ValueError(f"{what} must have fields x, y and z once each, got {names}")
    found = []
    for axis in "xyz":
        field = fields[names.index(axis)]
        datatype, offset = (
            int(message_field(field, "a PointField", name)) for name in ("datatype", "offset")
        )
        if datatype not in _DATATYPES:
            raise ValueError(f"the datatype of field {axis} must be 1 to 8, got {datatype}")
        kind = np.dtype(order + _DATATYPES[datatype])
        if not 0 <= offset <= point_step - kind.itemsize:
            raise ValueError(
                f"field {axis} must lie within {point_step} bytes of a point, got offset {offset}"
            )
        found.append((kind, offset))
    return found

"""Point clouds of ROS messages, in any layout that PointCloud2 allows."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from warp_collision import PointCloud

RNG = np.random.default_rng(11)
POINTS = RNG.uniform(-2.0, 2.0, (4, 5, 3))
TYPES = {"f4": 7, "f8": 8, "i2": 3}


def message(points: np.ndarray, kind: str = "f4", order: str = "<", pad: int = 0) -> dict[str, Any]:
    """Intensity first, then z, y, x with gaps, and rows with bytes behind them."""
    size = np.dtype(kind).itemsize
    height, width = points.shape[:2]
    step = 3 + 3 * (size + 1) + pad
    row_step = width * step + 7
    data = RNG.integers(0, 256, height * row_step, np.uint8)
    fields = [{"name": "intensity", "offset": 0, "datatype": 2, "count": 1}]
    for i, axis in enumerate("zyx"):
        offset = 3 + i * (size + 1)
        column = points[..., "xyz".index(axis)].astype(order + kind)
        view = np.ndarray(column.shape, column.dtype, data, offset, (row_step, step))
        view[:] = column
        fields.append({"name": axis, "offset": offset, "datatype": TYPES[kind], "count": 1})
    layout = {"height": height, "width": width, "point_step": step, "row_step": row_step}
    return {**layout, "fields": fields, "is_bigendian": order == ">", "data": data.tobytes()}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", sorted(TYPES))
def test_layouts(kind: str, order: str) -> None:
    points = np.round(20.0 * POINTS) if kind == "i2" else POINTS
    cloud = PointCloud.from_message(message(points, kind, order, pad=5), 0.01)
    np.testing.assert_array_equal(cloud.points, points.reshape(-1, 3).astype(kind).astype("f4"))


def test_messages_are_objects_too_and_points_turn_with_the_sensor() -> None:
    given = message(POINTS)
    given["fields"] = [SimpleNamespace(**field) for field in given["fields"]]
    given["data"] = np.frombuffer(given["data"], np.uint8).tolist()  # as a bridge to JSON has it
    turn = Rotation.random(rng=5)
    pose = (0.3, -0.2, 0.9, *np.roll(turn.as_quat(), 1))
    cloud = PointCloud.from_message(SimpleNamespace(**given), 0.02, pose=pose, capacity=64)
    expected = turn.apply(POINTS.astype(np.float32).reshape(-1, 3)) + pose[:3]
    np.testing.assert_allclose(cloud.points, expected, atol=1e-6)
    assert cloud.capacity == 64


def test_rays_without_a_return_are_left_out_or_an_error() -> None:
    points = POINTS.copy()
    points[1, 2] = np.nan
    assert len(PointCloud.from_message(message(points), 0.01)) == 19
    with pytest.raises(ValueError, match="finite"):
        PointCloud.from_message(message(points), 0.01, drop_invalid=False)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"fields": message(POINTS)["fields"][:3]}, "must have fields x, y and z once each"),
        ({"data": message(POINTS)["data"][:-20]}, "must hold .* bytes of points, got"),
        ({"point_step": 4}, "must lie within 4 bytes of a point, got offset"),
        ({"row_step": 10}, "rows of at least width \\* point_step bytes, got width 5"),
        ({"width": 0}, "points must|no point|at least one"),
    ],
)
def test_wrong_messages(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        PointCloud.from_message({**message(POINTS), **change}, 0.01)
    with pytest.raises(ValueError, match="a PointCloud2 must have data, got dict without"):
        PointCloud.from_message({k: v for k, v in message(POINTS).items() if k != "data"}, 0.01)

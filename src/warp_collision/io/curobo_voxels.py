"""Grids of distances in cuRobo's worlds, of its two conventions.

Up to 0.7 values are positive inside, and a grid has a layer more along each axis than its `dims`
have voxels; from 0.8 on they are negative inside, and there are as many as `dims` have, rounded.
Both have x running slowest. (`VoxelGrid.get_grid_shape` of its geom/types.py, and the kernels that
read the values.)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from warp_collision.formats.point_files import read_arrays
from warp_collision.io.fields import Fields
from warp_collision.io.shape_entries import expect_keys, file_of
from warp_collision.messages import any_error_at, errors_at, short_repr
from warp_collision.obstacles.voxel_grid import EsdfGrid

Pose = tuple[float, ...]

_IGNORED = ("feature_dtype", "xyzr_tensor")
_VOXEL = 0.02  # cuRobo's default [m]
_HALF_DIAGONAL = 0.5 * 3.0**0.5


class Convention(NamedTuple):
    """What a version of cuRobo makes of values.

    Attributes:
        inside: the sign of values inside of obstacles.
        shape: nx, ny, nz.
        origin: (3,) lower corner of the first voxel where its kernels look for it [m].
    """

    inside: str
    shape: tuple[int, ...]
    origin: np.ndarray


def has_values(entry: Any) -> bool:
    """Whether an entry of `voxel` is an obstacle; others say how much room is wanted."""
    return isinstance(entry, dict) and ("feature_tensor" in entry or "file_path" in entry)


def read_voxels(fields: Fields) -> tuple[EsdfGrid, Pose]:
    """The grid of an entry of `voxel`, and its pose; see `load_world_file`."""
    optional = ("voxel_size", "feature_tensor", "file_path", "error", "inside", *_IGNORED)
    expect_keys(fields, "dims", "pose", optional=optional)
    fields.expect_either("feature_tensor", "file_path")
    dims = np.array(fields.lengths("dims", "3 positive numbers", 3, positive=True))
    edge = fields.length("voxel_size") if "voxel_size" in fields else _VOXEL
    values = _values(fields)
    chosen = _convention(fields, values, dims / edge, edge)
    # Its own list of centers is off from what its kernels read, where a side is an odd number of
    # voxels: the values may be of either.
    listed = -edge * np.round(0.5 * dims / edge)
    error = _HALF_DIAGONAL * edge
    if "error" in fields:
        error = fields.lengths("error", "a number that is not negative", 1)[0]
    error += float(np.linalg.norm(chosen.origin - listed)) * (1.0 + 1e-9)
    shaped = values.reshape(chosen.shape)
    with errors_at(fields.where, (TypeError, ValueError)):
        grid = EsdfGrid(
            -shaped if chosen.inside == "positive" else shaped,
            edge,
            error=error,
            origin=chosen.origin,
        )
    return grid, fields.pose()


def _convention(fields: Fields, values: Any, counts: np.ndarray, edge: float) -> Convention:
    """The convention that has as many values, by what the entry says of their sign.

    Args:
        fields: the entry.
        values: an array or tensor of any shape.
        counts: (3,) sides in voxels.
        edge: of a voxel [m].
    """
    nearest = np.round(counts)
    # Within 1e-4 of a whole number cuRobo takes that.
    whole = np.where(np.abs(counts - nearest) < 1e-4, nearest, np.floor(counts))
    known = (
        Convention("positive", tuple((1 + whole).astype(int).tolist()), -0.5 * edge * counts),
        Convention("negative", tuple(nearest.astype(int).tolist()), -0.5 * edge * nearest),
    )
    given = tuple(values.shape)
    sizes = [size for size in given if size > 1]
    size = math.prod(given)
    fitting = [
        one
        for one in known
        if math.prod(one.shape) == size
        and (len(sizes) < 2 or sizes == [n for n in one.shape if n > 1])
    ]
    inside = fields.values.get("inside")
    if inside is not None:
        if inside not in ("positive", "negative"):
            raise ValueError(
                f"{fields.where}.inside must be 'positive' or 'negative', the sign of values "
                f"inside of obstacles, got {short_repr(inside)}"
            )
        own = [one for one in fitting if one.inside == inside]
        fitting = own or [one._replace(inside=inside) for one in fitting]
    if not fitting:
        raise ValueError(
            f"{fields.where} must have values for {' x '.join(map(str, known[1].shape))} voxels, "
            f"or up to cuRobo 0.7 for {' x '.join(map(str, known[0].shape))}, got {given}"
        )
    if len(fitting) > 1:
        raise ValueError(
            f"{fields.where} must say whether values inside of obstacles are positive, as up to "
            "cuRobo 0.7, or negative, as from 0.8 on: inside: positive, or inside: negative; their "
            "number does not tell"
        )
    return fitting[0]


def _values(fields: Fields) -> Any:
    """Values as an array or a tensor of floating point numbers."""
    if "file_path" in fields:
        path = file_of(fields)
        with any_error_at(f"{fields.where}.file_path"):
            arrays = read_arrays(path)
            if len(arrays) != 1:
                raise ValueError(
                    f"must be an .npz file of one array, got {short_repr(list(arrays))}"
                )
            return next(iter(arrays.values()))
    given = fields.values["feature_tensor"]
    if isinstance(given, torch.Tensor):
        return given.detach().cpu()
    with errors_at(f"{fields.where}.feature_tensor", (TypeError, ValueError)):
        array = np.asarray(given)
        return array if array.dtype.kind not in "iu" else array.astype(np.float32)

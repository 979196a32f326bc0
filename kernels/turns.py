"""Rotations and rigid transforms in float64."""

from typing import Any

import warp as wp

TWO = wp.constant(wp.float64(2.0))


@wp.struct
class Turn:
    """A rotation as a unit quaternion."""

    w: wp.float64
    u: wp.vec3d


@wp.struct
class Placed:
    """A rigid transform."""

    turn: Turn
    origin: wp.vec3d  # [m]


@wp.func
def unit_turn(w: wp.float64, x: wp.float64, y: wp.float64, z: wp.float64) -> Turn:
    """The rotation of a quaternion of any length but 0, which gives NaN."""
    length = wp.sqrt(w * w + x * x + y * y + z * z)
    return Turn(w / length, wp.vec3d(x / length, y / length, z / length))


@wp.func
def inverse_turn(turn: Turn) -> Turn:
    """The opposite rotation."""
    return Turn(turn.w, -turn.u)


@wp.func
def turned(turn: Turn, v: wp.vec3d) -> wp.vec3d:
    """Rotates a vector: v + 2 w (u x v) + 2 u x (u x v)."""
    twice_cross = TWO * wp.cross(turn.u, v)
    return v + turn.w * twice_cross + wp.cross(turn.u, twice_cross)


@wp.func
def combined_turn(second: Turn, first: Turn) -> Turn:
    """The first rotation, then the second."""
    real = second.w * first.w - wp.dot(second.u, first.u)
    return Turn(real, second.w * first.u + first.w * second.u + wp.cross(second.u, first.u))


@wp.func
def rounded(v: wp.vec3d) -> wp.vec3:
    """A vector in float32."""
    return wp.vec3(float(v[0]), float(v[1]), float(v[2]))


@wp.func
def widened(v: wp.vec3) -> wp.vec3d:
    """A vector in float64."""
    return wp.vec3d(wp.float64(v[0]), wp.float64(v[1]), wp.float64(v[2]))


@wp.func
def placed_by(pose: Any) -> Placed:
    """The rigid transform of a pose x, y, z, qw, qx, qy, qz: an array or vector of any dtype."""
    w, x = wp.float64(pose[3]), wp.float64(pose[4])
    turn = unit_turn(w, x, wp.float64(pose[5]), wp.float64(pose[6]))
    return Placed(turn, wp.vec3d(wp.float64(pose[0]), wp.float64(pose[1]), wp.float64(pose[2])))

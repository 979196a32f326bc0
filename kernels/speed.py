"""Speed of a waypoint and its derivatives, as the scale of a swept cost."""

import warp as wp

# Below this speed [m/s] a cost is not scaled, if no minimum speed is given.
STILL = wp.constant(1.0e-3)


@wp.struct
class SpeedScale:
    """The scale of a cost and its derivatives with respect to three consecutive centers."""

    value: float
    previous: wp.vec3
    center: wp.vec3
    following: wp.vec3


@wp.func
def speed_scale(
    previous: wp.vec3,
    center: wp.vec3,
    following: wp.vec3,
    has_previous: bool,
    has_following: bool,
    dt: float,
    min_speed: wp.array[wp.float32],
) -> SpeedScale:
    """Speed by central difference, one-sided where a neighbour is missing.

    With ``min_speed`` (1,) the scale is at least that, and so continuous. Without, in an empty
    array, it is 1 at both ends of the path and below `STILL`.
    """
    begin = wp.where(has_previous, previous, center)
    end = wp.where(has_following, following, center)
    intervals = wp.where(has_previous, 1.0, 0.0) + wp.where(has_following, 1.0, 0.0)
    scale = SpeedScale()
    scale.value = 1.0
    lowest = STILL
    is_scaled = has_previous and has_following
    if min_speed.shape[0] > 0:
        lowest = min_speed[0]
        scale.value = lowest
        is_scaled = bool(True)
    # A negative time would give a negative cost, a negative minimum speed none at all.
    if not (dt >= 0.0 and lowest > 0.0):
        scale.value = wp.nan
        is_scaled = bool(False)
    distance = wp.length(end - begin)
    if is_scaled and distance > lowest * intervals * dt:
        duration = intervals * dt
        scale.value = distance / duration
        along = (end - begin) / (distance * duration)
        scale.previous = wp.where(has_previous, -along, wp.vec3(0.0))
        scale.following = wp.where(has_following, along, wp.vec3(0.0))
        scale.center = -(scale.previous + scale.following)
    return scale

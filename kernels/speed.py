"""Speed of a waypoint and its derivatives, as the scale of a swept cost."""

import warp as wp

# A sphere at rest still costs this speed's share [m/s]; also in the public documentation.
MIN_SPEED = wp.constant(0.01)


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
) -> SpeedScale:
    """``max(speed, MIN_SPEED)``: central difference, one-sided where a neighbour is missing."""
    begin = wp.where(has_previous, previous, center)
    end = wp.where(has_following, following, center)
    intervals = wp.where(has_previous, 1.0, 0.0) + wp.where(has_following, 1.0, 0.0)
    distance = wp.length(end - begin)
    scale = SpeedScale()
    # A negative time would give a negative cost.
    scale.value = wp.where(dt >= 0.0, MIN_SPEED, wp.nan)
    if dt >= 0.0 and distance > MIN_SPEED * intervals * dt:
        duration = intervals * dt
        scale.value = distance / duration
        along = (end - begin) / (distance * duration)
        scale.previous = wp.where(has_previous, -along, wp.vec3(0.0))
        scale.following = wp.where(has_following, along, wp.vec3(0.0))
        scale.center = -(scale.previous + scale.following)
    return scale

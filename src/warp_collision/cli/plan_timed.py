"""What `warp-collision plan --timed` does with a planned path: time, proof, file, report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from warp_collision.messages import escaped, short_repr

if TYPE_CHECKING:
    from warp_collision import RobotSpheres
    from warp_collision.planning import PlannedPaths, TimedPaths
    from warp_collision.robot import JointCurve
    from warp_collision.robot.checks.robot_scene import RobotScene

LIMITS = ("velocity", "acceleration", "jerk")
_OPTIONS = (*LIMITS, "limits", "period")  # that need --timed


def add_timed(group: argparse._ArgumentGroup) -> None:
    """Adds the options of trajectories."""
    group.add_argument(
        "--timed",
        action="store_true",
        help="write a curve in time within limits of the motors, proven free, instead of waypoints",
    )
    add_limits(group)
    group.add_argument(
        "--period",
        type=float,
        metavar="S",
        help="time between two points of the file (default: points where the curve's pieces end)",
    )


def add_limits(group: argparse._ArgumentGroup) -> None:
    """Adds the options of limits of motors."""
    units = ("rad/s, prismatic: m/s; default: that of the URDF", "rad/s^2", "rad/s^3, or inf")
    for name, unit in zip(LIMITS, units, strict=True):
        group.add_argument(
            f"--{name}",
            nargs="+",
            metavar="X",
            help=f"limit of the {name} of all joints, or a number for each [{unit}]",
        )
    group.add_argument(
        "--limits",
        type=Path,
        metavar="YAML",
        help="limits of the joints: joint_limits.yaml of MoveIt, or a robot file of cuRobo",
    )


def check_options(options: argparse.Namespace) -> None:
    """Requires options that fit together, before anything is read.

    Raises:
        ValueError: options of trajectories without --timed, or a file of another kind.
    """
    from warp_collision.io.trajectories import ENDINGS

    for name in _OPTIONS:
        if not options.timed and getattr(options, name) is not None:
            raise ValueError(f"--{name} must be given with --timed alone")
    if options.period is not None and not 0.0 < options.period < float("inf"):
        raise ValueError(f"--period must be a positive number of seconds, got {options.period}")
    if options.timed and options.output.suffix.lower() not in ENDINGS:
        raise ValueError(
            f"--output must end in {', '.join(ENDINGS)} with --timed, got "
            f"{short_repr(str(options.output))}"
        )


def limits_of(
    options: argparse.Namespace, robot: RobotSpheres, *, is_complete: bool = True
) -> dict[str, Any]:
    """The limits that options ask for, by name; valid.

    Args:
        options: of the command.
        robot: whose joints.
        is_complete: whether all are required; else those that are not given are inf.

    Raises:
        ValueError: a limit that is missing, not positive or of another number of joints.
    """
    from warp_collision.planning import load_motion_limits
    from warp_collision.planning.motion_limits import MotionLimits

    given: dict[str, Any] = {}
    if options.limits is not None:
        given |= load_motion_limits(options.limits, robot)
    for name in LIMITS:
        words = getattr(options, name)
        if words is not None:
            values = _numbers(name, words)
            given[name] = values[0] if len(values) == 1 else values
    try:
        return (MotionLimits.of if is_complete else MotionLimits.known)(robot, **given)._asdict()
    except ValueError as error:
        raise ValueError(f"--{error}") from None


def _numbers(name: str, words: list[str]) -> list[float]:
    texts = [text for word in words for text in word.split(",") if text.strip()]
    try:
        return [float(text) for text in texts] or [float("nan")]
    except ValueError:
        raise ValueError(
            f"--{name} must be numbers, got {escaped(' '.join(words), 100)!r}"
        ) from None


class Trajectory(NamedTuple):
    """A timed path as it is written.

    Attributes:
        found: what `timed` found.
        written: the curve that the points of the file are read as.
        is_free: whether both are proven free.
        period: of the points [s]; None for the ends of pieces.
    """

    found: TimedPaths
    written: JointCurve
    is_free: bool
    period: float | None

    @classmethod
    def of(
        cls,
        options: argparse.Namespace,
        scene: RobotScene,
        planned: PlannedPaths,
        limits: dict[str, Any],
    ) -> Trajectory:
        """Gives a planned path time, and proves what will be written."""
        from warp_collision.robot import joint_path_in_collision
        from warp_collision.robot.model.trajectory import curve_through, points_of

        found = planned.timed(
            scene.robot, scene.world, margin=options.margin, **limits, **scene.placed
        )
        written = curve_through(points_of(found.curve, options.period))
        margin = min(options.margin, planned.margin.item())
        for tolerance in (margin, 0.1 * margin, 0.01 * margin):
            hits = joint_path_in_collision(
                written, scene.robot, scene.world, tolerance=tolerance, **scene.placed
            )
            if not hits.any():
                break
        is_free = bool(found.free.all()) and not bool(hits.any())
        return cls(found, written, is_free, options.period)

    def save(self, path: Path, scene: RobotScene, facts: dict[str, Any]) -> None:
        """Writes the file; facts are arrays for an .npz file."""
        from warp_collision.robot.model.trajectory import write_curve

        shares = {name: value for name, value in self.summary().items() if value is not None}
        write_curve(path, self.found.curve, scene.robot.joint_names, self.period, facts | shares)

    def summary(self) -> dict[str, Any]:
        """The trajectory, for JSON."""
        found = self.found
        return {
            "free": self.is_free,
            **{
                name: getattr(found, name).item()
                for name in (
                    *("duration", "clearance", "world_clearance", "self_clearance"),
                    *("velocity_share", "acceleration_share", "jerk_share", "stops"),
                )
            },
        }

    def lines(self) -> list[str]:
        """The report."""
        if not self.is_free:
            near = "" if self.period is None else "; a shorter --period is nearer to the curve"
            return [f"no trajectory was proven free{near}"]
        found = self.found
        shares = ", ".join(
            f"{100.0 * getattr(found, f'{name}_share').item():.0f} % of the {name}"
            for name in LIMITS
        )
        lines = [
            f"trajectory of {found.duration.item():.3f} s, certified free: nowhere nearer than "
            f"{1000 * found.clearance.item():.1f} mm; it uses up to {shares} limits"
        ]
        if found.stops.item():
            lines.append("note: it stops at corners of the path, as no faster one was proven free")
        return lines

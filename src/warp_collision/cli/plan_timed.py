"""What `warp-collision plan --timed` does with a planned path: time, proof, file, report."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from warp_collision.cli.common import numbers
from warp_collision.cli.options import Options
from warp_collision.messages import short_repr

if TYPE_CHECKING:
    from warp_collision import RobotSpheres
    from warp_collision.planning import PlannedPaths, TimedPaths
    from warp_collision.robot import JointCurve
    from warp_collision.robot.checks.robot_scene import RobotScene

LIMITS = ("velocity", "acceleration", "jerk")
_FACTS = (
    "duration",
    "clearance",
    "world_clearance",
    "self_clearance",
    "velocity_share",
    "acceleration_share",
    "jerk_share",
    "stops",
)


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


@dataclass(frozen=True)
class LimitOptions(Options):
    """The options of limits of motors.

    Attributes:
        velocity: limit of all joints, or of each [rad/s, prismatic: m/s], in words.
        acceleration: the same of accelerations [rad/s^2].
        jerk: the same of jerks [rad/s^3].
        limits: a file of limits.
    """

    velocity: Sequence[str] | None = None
    acceleration: Sequence[str] | None = None
    jerk: Sequence[str] | None = None
    limits: Path | None = None

    def of_robot(self, robot: RobotSpheres, *, is_complete: bool = True) -> dict[str, Any]:
        """The limits of a robot's motors, by name; valid.

        Args:
            robot: whose joints.
            is_complete: whether all are required; else those that are not given are inf.

        Raises:
            ValueError: a limit that is missing, not positive or of another number of joints.
        """
        from warp_collision.planning import load_motion_limits
        from warp_collision.planning.motion_limits import MotionLimits

        given: dict[str, Any] = {}
        if self.limits is not None:
            given |= load_motion_limits(self.limits, robot)
        for name in LIMITS:
            words = getattr(self, name)
            if words is not None:
                values = numbers(name, words)
                given[name] = values[0] if len(values) == 1 else values
        try:
            limits_of = MotionLimits.of if is_complete else MotionLimits.known
            return limits_of(robot, **given)._asdict()
        except ValueError as error:
            raise ValueError(f"--{error}") from None


@dataclass(frozen=True)
class TimedOptions(LimitOptions):
    """The options of trajectories.

    Attributes:
        period: of the points of the file [s]; None for the ends of pieces.
    """

    period: float | None = None

    @classmethod
    def optional(cls, options: argparse.Namespace) -> Self | None:
        """The record, None without --timed; options have to fit together.

        Raises:
            ValueError: options of trajectories without --timed, or a file of another kind.
        """
        from warp_collision.io.trajectories import ENDINGS

        found = cls.of(options)
        if not options.timed:
            for name, value in vars(found).items():
                if value is not None:
                    raise ValueError(f"--{name} must be given with --timed alone")
            return None
        if found.period is not None and not 0.0 < found.period < math.inf:
            raise ValueError(f"--period must be a positive number of seconds, got {found.period}")
        if options.output.suffix.lower() not in ENDINGS:
            raise ValueError(
                f"--output must end in {', '.join(ENDINGS)} with --timed, got "
                f"{short_repr(str(options.output))}"
            )
        return found


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
        scene: RobotScene,
        planned: PlannedPaths,
        limits: dict[str, Any],
        *,
        margin: float,
        period: float | None,
    ) -> Trajectory:
        """Gives a planned path time, and proves what will be written.

        Args:
            scene: the robot among the obstacles.
            planned: the path.
            limits: of the motors, by name.
            margin: of the proof [m].
            period: of the points that are written [s]; None for the ends of pieces.
        """
        from warp_collision.robot import joint_path_in_collision
        from warp_collision.robot.model.trajectory import curve_through, points_of

        found = planned.timed(scene.robot, scene.world, margin=margin, **limits, **scene.placed)
        written = curve_through(points_of(found.curve, period))
        least = min(margin, planned.margin.item())
        for tolerance in (least, 0.1 * least, 0.01 * least):
            hits = joint_path_in_collision(
                written, scene.robot, scene.world, tolerance=tolerance, **scene.placed
            )
            if not hits.any():
                break
        is_free = bool(found.free.all()) and not bool(hits.any())
        return cls(found, written, is_free, period)

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
            **{name: getattr(found, name).item() for name in _FACTS},
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

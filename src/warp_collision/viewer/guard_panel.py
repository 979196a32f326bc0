"""A guarded controller in the browser: sliders command, and what was passed on is drawn."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np

from warp_collision.messages import escaped
from warp_collision.planning import MotionGuard
from warp_collision.planning.guard import GuardedStep
from warp_collision.viewer import panels
from warp_collision.viewer.colors import FREE, HIT
from warp_collision.viewer.path_facts import between
from warp_collision.viewer.plots import LABELLED, Curves, Plots
from warp_collision.viewer.robot_panel import RobotPanel

_FRAME = 0.1  # s, between two drawings
_MOST_STEPS = 500  # in a frame: where steps take longer than they last, time is slower
_PAST = 3.0  # s, that are drawn
_SAMPLES = 20  # of the braking
_SPEED = 1.0  # rad/s or m/s, of joints without a limit
_TURN = 3.1416  # rad or m, on both sides of 0 of joints without limits
_HINT = panels.hint("start it, and command the joints by the sliders")


class GuardPanel:
    """The part of the viewer that steps a guard.

    Attributes:
        guard: what decides.
        step: the last one, if there was one.
        is_running: whether it steps.
    """

    def __init__(self, viewer: panels.Host, robot: RobotPanel, guard: MotionGuard):
        self._viewer, self._server, self._robot = viewer, viewer.server, robot
        self.guard = guard
        self.step: GuardedStep | None = None
        self.is_running = False
        self._joints: list[float] = []
        self._velocities: list[float] = []
        self._now = self._stepped = 0.0  # s, of the steps, and of the clock at the last frame
        self._past: deque[tuple[float, list[float], float]] = deque()
        self._braking: Any = None

    def build(self) -> None:
        """Adds the panel."""
        gui, robot = self._server.gui, self._robot.scene.robot
        self._words = gui.add_html(_HINT)
        self._start = gui.add_button("start")
        self._start.on_click(lambda event: self.run(not self.is_running))
        halt = gui.add_button("command no motion")
        halt.on_click(lambda event: self._viewer.put("halt", self.halt))
        units = ["" if self.guard.command == "position" else "/s"] * robot.n_joints
        units = [unit + end for unit, end in zip(robot.joint_units, units, strict=True)]
        self._sliders = []
        with gui.add_folder(f"command: {self.guard.command}"):
            for index, name in enumerate(robot.joint_names):
                low, high = self._range(index)
                slider = gui.add_slider(
                    escaped(f"{name} [{units[index]}]", 40), min=low, max=high, step=1e-3,
                    initial_value=self._rest(index),
                )  # fmt: skip
                self._sliders.append(slider)
        self._plots = Plots(gui, gui.add_folder("passed on"))

    def _range(self, joint: int) -> tuple[float, float]:
        if self.guard.command == "velocity":
            most = float(self.guard.limits.velocity[joint])
            most = most if np.isfinite(most) else _SPEED
            return -most, most
        ends = self._robot.scene.robot.joint_limits[joint].double().tolist()
        low, high = (end if np.isfinite(end) else sign * _TURN
                     for end, sign in zip(ends, (-1, 1), strict=True))  # fmt: skip
        return low, high

    def _rest(self, joint: int) -> float:
        """The command by which a joint stays where it is."""
        if self.guard.command == "velocity":
            return 0.0
        return float(np.clip(self._robot.joints[joint].item(), *self._range(joint)))

    def halt(self) -> None:
        """Commands all joints to rest where they are."""
        self.command([self._rest(joint) for joint in range(len(self._sliders))])

    def command(self, values: list[float]) -> None:
        """Moves the sliders, within their ends."""
        for slider, value in zip(self._sliders, values, strict=True):
            slider.value = float(np.clip(value, slider.min, slider.max))

    def run(self, on: bool) -> None:
        """Begins to step from where the robot is shown at rest, or ends."""
        self.is_running = on
        self._start.label = "stop" if on else "start"
        if on:
            self._viewer.play(False)
        self._viewer.put("guard runs", self._begin if on else self._end)

    def _begin(self) -> None:
        self._joints = self._robot.joints.double().tolist()
        self._velocities = [0.0] * len(self._joints)
        self._stepped = time.monotonic()
        self._past.clear()
        self._frame()

    def _end(self) -> None:
        """Takes back what was said of the last step: nothing proves it again."""
        self._words.content = _HINT
        if self._braking is not None:
            self._braking.visible = False

    def _frame(self) -> None:
        """Steps and draws until it is to end, or an error ends it."""
        try:
            self._advance()
        except Exception:
            self.run(False)
            raise

    def _advance(self) -> None:
        """Steps as often as time has passed, and draws the last step."""
        if not self.is_running:
            return
        if self._robot.scene.env != 0:
            self.run(False)
            self._viewer.tell("the guard is of env 0")
            return
        clock, dt = time.monotonic(), self.guard.dt
        count = min(int((clock - self._stepped) / dt), _MOST_STEPS)
        if count:
            self._stepped = clock
            command = [float(slider.value) for slider in self._sliders]
            least = 1.0
            for _ in range(count):
                step = self.guard.step(self._joints, self._velocities, command)
                self._joints, self._velocities = step.joints, step.velocities
                self.step, least = step, min(least, step.share)
            self._now += count * dt
            self._past.append((self._now, self._velocities, least))
            while self._past[0][0] < self._now - _PAST:
                self._past.popleft()
            self._draw(least)
        self._viewer.put("guard", self._frame, delay=_FRAME)

    def _draw(self, least: float) -> None:
        assert self.step is not None
        joints = self._robot.joints.new_tensor(self._joints)
        if not joints.equal(self._robot.joints):
            self._viewer.draw(joints)
        with self._server.atomic():
            self._tell(self.step, least)
            self._draw_braking(self.step)
            self._plots.draw(self._curves(self.step), 0.0, "time from now [s]")

    def _tell(self, step: GuardedStep, least: float) -> None:
        """Says how much was passed on, and why not all of it."""
        why, color = step.why(), HIT if step.breached else FREE
        words = (
            f"{100.0 * least:.0f} % is passed on; rest after {1000.0 * step.time_to_rest:.0f} ms"
        )
        lines = [panels.line(words, color, is_bold=True)]
        if step.breached:
            lines.append(panels.line("no braking is proven: it brakes as hard as it can", HIT))
        if why is not None:
            bodies = f": {why.link} and {why.obstacle}" if why.link is not None else ""
            far = f", at least {1000.0 * max(why.distance, 0.0):.1f} mm" if bodies else ""
            lines.append(panels.line(panels.text(f"{why.cause}{bodies}{far}", 160), HIT))
        self._words.content = "".join(lines)

    def _draw_braking(self, step: GuardedStep) -> None:
        """Draws where the hand goes if the robot brakes now."""
        braking = step.braking()
        if self._braking is not None:
            self._braking.visible = braking is not None
        if braking is None:
            return
        hand = self._robot.scene.spheres(between(braking, _SAMPLES))[:, -1, :3].cpu().numpy()
        lines = np.stack([hand[:-1], hand[1:]], axis=1).astype(np.float32)
        color = np.array(panels.line_rgb(HIT if step.breached else FREE), np.uint8)
        colors = np.broadcast_to(color, lines.shape).copy()
        if self._braking is None:
            self._braking = self._server.scene.add_line_segments(
                self._viewer.new_node("braking"), lines, colors, thickness=6.0,
                thickness_units="screen",
            )  # fmt: skip
        self._braking.points, self._braking.colors = lines, colors

    def _curves(self, step: GuardedStep) -> list[Curves]:
        """Velocities of the last seconds and of the braking ahead, and the share passed on."""
        times, rows, shares = map(np.array, zip(*self._past, strict=True))
        x = np.append(times - self._now, max(step.time_to_rest, 1e-3))
        rows = np.vstack((rows, np.zeros(rows.shape[1])))
        names, limits = self._robot.scene.robot.joint_names, self.guard.limits
        is_limited = bool(np.isfinite(limits.velocity).all())
        unit, lines = ("share of the limit", (-1.0, 1.0)) if is_limited else ("rad/s or m/s", ())
        scale = limits.velocity if is_limited else np.ones(len(names))
        longest = float((limits.velocity / limits.acceleration).max()) if is_limited else 1.0
        velocities = Curves(
            f"velocity passed on, then braking [{unit}]", x,
            dict(zip(names, (rows / scale).T, strict=True)), lines=lines,
            has_legend=len(names) <= LABELLED, span=(-_PAST, longest),
        )  # fmt: skip
        share = Curves(
            "part of the command that is passed on", x[:-1], {"share": shares}, lines=(1.0,),
            has_legend=False, span=velocities.span,
        )  # fmt: skip
        return [velocities, share]

"""Paths and trajectories in the browser: blocked segments, contacts, curves, play."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warp_collision.messages import escaped
from warp_collision.planning import optimize_paths
from warp_collision.planning.motion_limits import MotionLimits
from warp_collision.robot import JointCurve, joint_path_in_collision
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer import panels
from warp_collision.viewer.colors import FREE, HIT, THEMES, UNPROVEN
from warp_collision.viewer.path_facts import (
    Contact,
    PathFacts,
    between,
    operand_of,
    path_facts,
)
from warp_collision.viewer.plots import Plots, curves_of, shares_of
from warp_collision.viewer.robot_panel import RobotPanel

_GHOSTS = 7
_SAMPLES = 6  # of each segment of a trace
_FEWEST_SAMPLES = 60  # of a curve, which may have one piece
_MOST_SEGMENTS = 20_000  # of all traces that are drawn
_MOST_CONTACTS = 10
_FRAME = 0.05  # s, between two frames that are played
_PROVING = 0.1  # s of checking, between which the page does what it is asked for
_PLANNING = 10.0  # s
_AGAIN = " (planned again)"
_WITHIN = 1.0 + 1e-9  # share of a limit, with its rounding
_SECONDS = 6.0  # a path without times takes at speed 1


class PathPanel:
    """The part of the viewer that shows paths.

    Attributes:
        facts: of the path that is open, if one is.
        place: where on it the robot stands, in segments.
        is_playing: whether it moves.
        limits: of the motors, that curves are drawn with.
    """

    def __init__(self, viewer: panels.Host, robot: RobotPanel, limits: MotionLimits):
        self._viewer, self._server, self._robot = viewer, viewer.server, robot
        self.limits = limits
        self.facts: PathFacts | None = None
        self.place = 0.0
        self.is_playing = False
        self._paths: dict[str, Tensor | JointCurve] = {}
        self._free: dict[str, bool | None] = {}  # None since something has moved
        self._traces: dict[str, Any] = {}
        self._ghosts: list[Any] = []
        self._contacts: list[Any] = []
        self._open: str | None = None
        self._played = 0.0

    @property
    def _scene(self) -> RobotScene:
        return self._robot.scene

    def build(self) -> None:
        """Adds the panel, hidden until there is a path."""
        gui = self._server.gui
        self._hint = gui.add_html(panels.line("no path: move the joints in the tab robot"))
        self._folder = gui.add_folder(None, visible=False)
        with self._folder:
            self._choice = gui.add_dropdown("path", ["-"], initial_value="-")
            self._choice.on_update(self._chosen)
            self._verdict = gui.add_html("")
            self._timing = gui.add_html("", visible=False)
            self._slider = gui.add_slider("waypoint", min=0, max=1, step=0.01, initial_value=0)
            self._slider.on_update(self._slid)
            self._play = gui.add_button("play")
            self._play.on_click(lambda event: self._viewer.play(not self.is_playing))
            self._speed = gui.add_slider("speed", min=0.1, max=4, step=0.1, initial_value=1)
            again = gui.add_button("plan again")
            again.on_click(lambda event: self._viewer.put("plan", self.plan_again))
            self._sweep = gui.add_checkbox("sweep", False)
            self._sweep.on_update(lambda event: self._viewer.put("sweep", self._draw_ghosts))
            self.plots = Plots(gui, gui.add_folder("along the path"))
            self._list = gui.add_folder("worst contacts")

    def add(self, paths: Mapping[str, Tensor | JointCurve]) -> None:
        """Adds paths (horizon, n_joints) and curves by name; one of a known name replaces it."""
        device = self._scene.world.device
        for name, path in paths.items():
            if isinstance(path, Tensor):
                path = path.detach().to(device, torch.float32)
            self._paths[name] = path
            if name in self._traces:
                self._traces.pop(name).remove()
            self._prove(name)
        self._hint.visible, self._folder.visible = False, True
        self._tell_labels()

    def _prove(self, name: str) -> None:
        """Checks a path, and draws it in the colours of the result."""
        scene = self._scene
        path = operand_of(scene, self._paths[name])
        hits = joint_path_in_collision(path, scene.robot, scene.world, **scene.of_paths)
        blocked = hits[0].cpu().numpy()
        self._free[name] = not blocked.any()
        self._trace(name, blocked)

    def expire(self) -> None:
        """Takes back what was said of all paths, as something has moved."""
        known = [name for name, is_free in self._free.items() if is_free is not None]
        self._free.update(dict.fromkeys(known))
        if known:
            self._verdict.content = panels.line("something has moved: not proven yet", UNPROVEN)
            self._tell_labels()
        for name in known:
            if name in self._traces:
                colors = self._traces[name].colors
                self._traces[name].colors = np.full_like(colors, panels.line_rgb(UNPROVEN))

    def prove_some(self) -> bool:
        """Checks paths of which nothing is known, for a short time; whether none is left."""
        unknown = [name for name, is_free in self._free.items() if is_free is None]
        end = time.monotonic() + _PROVING
        for name in unknown:
            self._prove(name)
            if time.monotonic() > end:
                break
        if unknown:
            self._tell_labels()
        return None not in self._free.values()

    def plan_again(self) -> None:
        """Plans from the start to the goal of the open path among the obstacles as they stand.

        Drags wait until it is done, and then take back what is proven, as they always do.
        """
        if self._open is None:
            return
        path, name = self._paths[self._open], self._open.removesuffix(_AGAIN)
        is_timed = isinstance(path, JointCurve)
        if is_timed:
            path = path.knots(self._scene.world.device)[0]
        self._viewer.tell(f"planning for at most {_PLANNING:.0f} s")
        self._server.flush()
        ends = path[:1].contiguous(), path[-1:].contiguous()
        found = optimize_paths(
            *ends, self._scene.robot, self._scene.world, max_seconds=_PLANNING,
            on_invalid_endpoints="mark", generator=torch.Generator().manual_seed(0),
            **self._scene.of_paths,
        )  # fmt: skip
        if not found.free.item():
            self._viewer.draw(self._robot.joints)
            self._viewer.tell("no free path was found: start or goal may collide")
            return
        again: Tensor | JointCurve = found.joints[0]
        if is_timed and np.isfinite(self.limits.acceleration).all():
            again = found.timed(
                self._scene.robot, self._scene.world, **self.limits._asdict(),
                **self._scene.of_paths,
            ).curve  # fmt: skip
        self.add({name + _AGAIN: again})
        self.open(name + _AGAIN)

    def _tell_labels(self) -> None:
        """Lists the paths with what is known of each."""
        # What was chosen last may not be open yet. Viser replaces a value that is no option.
        name = self._named(self._choice.value) or self._open
        if name is not None:
            self._choice.value = self._label(name)
        self._choice.options = [self._label(name) for name in self._paths]

    def clear(self) -> None:
        """Removes all paths."""
        for trace in self._traces.values():
            trace.remove()
        self._traces.clear()
        self._paths.clear()
        self._free.clear()
        self.facts = self._open = None
        self.is_playing = False
        self._draw_ghosts()
        self._hint.visible, self._folder.visible = True, False

    def _label(self, name: str) -> str:
        state = {True: "proven free", False: "not free", None: "not proven yet"}[self._free[name]]
        return f"{escaped(name, 40)}: {state}"

    def _trace(self, name: str, blocked: Any) -> None:
        """Draws where the hand goes: blue where it is proven free, else orange.

        Args:
            name: of the path.
            blocked: (horizon - 1,) bool, which motions are not proven free.
        """
        path, samples = self._paths[name], _SAMPLES
        count = len(path) - 1
        if isinstance(path, JointCurve):
            count = path.coefficients.shape[1]
            samples = max(samples, _FEWEST_SAMPLES // count)
        # As many as when it was added: the trace is changed in place.
        samples = max(1, min(samples, _MOST_SEGMENTS // (len(self._paths) * (count + 1))))
        hand = self._scene.spheres(between(path, samples))[:, -1, :3].cpu().numpy()
        lines = np.stack([hand[:-1], hand[1:]], axis=1).astype(np.float32)
        choice = np.array([panels.line_rgb(c) for c in (FREE, HIT)], np.uint8)
        colors = choice[np.repeat(blocked.astype(int), samples)]
        ends = np.repeat(colors[: len(lines), None], 2, axis=1)
        if name in self._traces:
            self._traces[name].points, self._traces[name].colors = lines, ends
        elif len(lines):
            self._traces[name] = self._server.scene.add_line_segments(
                self._viewer.new_node("path"), lines, ends, thickness=3.0,
                thickness_units="screen",
            )  # fmt: skip

    def _chosen(self, event: Any) -> None:
        if event.client is None:
            return
        name = self._named(event.target.value)
        if name is not None:
            self._viewer.put("open", lambda: self.open(name))

    def _named(self, label: str) -> str | None:
        """The path of a label, which may say what was known before: pages are a little behind."""
        chosen = label.rpartition(": ")[0]
        labels = {self._label(name).rpartition(": ")[0]: name for name in reversed(self._paths)}
        return labels.get(chosen)

    def open(self, name: str) -> None:
        """Shows one of the paths."""
        self._open = name
        label = self._label(name)
        if self._choice.value != label:
            self._choice.value = label
        self.place = 0.0
        self._slider.value = 0
        self.refresh()
        if self.facts is not None:
            self._slider.label = self._axis
            self._slider.max = max(round(float(self.facts.axis[-1]), 2), 0.01)
        self.go(0.0)

    def refresh(self) -> None:
        """Computes what is known of the open path anew, as after something has moved."""
        if self._open is None:
            return
        self.facts = facts = path_facts(self._scene, self._paths[self._open])
        if self._free[self._open] != facts.is_free:
            self._free[self._open] = facts.is_free
            self._tell_labels()
        self._trace(self._open, facts.blocked)
        accent = FREE if facts.is_free else HIT
        words = panels.text(facts.verdict(), 160)
        self._verdict.content = panels.line(words, accent, is_bold=True)
        self._tell_timing(facts)
        self._list_contacts(facts.worst(_MOST_CONTACTS))
        curves = curves_of(facts, self.limits)
        self.plots.draw(curves, facts.on_axis(self.place), self._axis)
        self._draw_ghosts()

    @property
    def _axis(self) -> str:
        """What the slider and the curves are over."""
        is_timed = self.facts is not None and self.facts.curve is not None
        return "time [s]" if is_timed else "waypoint"

    def _tell_timing(self, facts: PathFacts) -> None:
        """Tells the duration of a curve, and how much of the limits it uses: bounds, no samples."""
        self._timing.visible = facts.curve is not None
        if facts.curve is None:
            return
        shares = shares_of(facts.curve, self.limits)
        known = [np.isfinite(limit).any() for limit in self.limits]
        parts = [
            f"{kind} {100.0 * share:.1f} %"
            for kind, share, is_known in zip(self.limits._fields, shares, known, strict=True)
            if is_known
        ]
        used = f"; of the limits at most: {', '.join(parts)}" if parts else "; no limits are known"
        color = HIT if max(shares) > _WITHIN else FREE
        words = f"{facts.curve.duration.item():.3f} s{used}"
        self._timing.content = panels.line(words, color)

    def _list_contacts(self, contacts: Sequence[Contact]) -> None:
        """Lists contacts; buttons that are not needed are hidden: a page may still draw them."""
        with self._list:
            for index in range(len(self._contacts), len(contacts)):
                button = self._server.gui.add_button("-")
                button.on_click(lambda event, index=index: self._viewer.show_contact(index))
                self._contacts.append(button)
        for button, contact in itertools.zip_longest(self._contacts, contacts):
            button.visible = contact is not None
            if contact is not None:
                button.label = escaped(f"{contact}, {self._where(contact.place)}", 90)
                button.color = panels.rgb(HIT if contact.is_blocked else FREE)

    def _where(self, place: float) -> str:
        """A place in words."""
        if self.facts is None or self.facts.curve is None:
            return f"waypoint {place:.1f}"
        return f"at {self.facts.on_axis(place):.3f} s"

    def show_contact(self, index: int) -> Contact | None:
        """Moves the robot to one of the worst contacts."""
        contacts = [] if self.facts is None else self.facts.worst(_MOST_CONTACTS)
        if index >= len(contacts):
            return None
        self.is_playing = False
        self.go(contacts[index].place)
        return contacts[index]

    def _slid(self, event: Any) -> None:
        if event.client is not None:
            value = float(event.target.value)
            self._viewer.put("place", lambda: self._go_to(value))

    def _go_to(self, x: float) -> None:
        """Moves the robot to a value of the axis."""
        if self.facts is not None:
            self.go(self.facts.place_of(x))

    def play(self, on: bool) -> None:
        """Lets the robot move along the path, or stand."""
        self.is_playing, self._played = on, time.monotonic()
        self._play.label = "stop" if on else "play"
        if on:
            self._viewer.put("play", self._step)

    def _step(self) -> None:
        if not self.is_playing or self.facts is None or not self.facts.n_segments:
            self.is_playing = False
            return
        now, last = time.monotonic(), float(self.facts.axis[-1])
        # A curve has times of its own.
        rate = 1.0 if self.facts.curve is not None else last / _SECONDS
        moved = self._speed.value * (now - self._played) * rate
        self._played = now
        self._go_to((self.facts.on_axis(self.place) + moved) % last)
        self._viewer.put("play", self._step, delay=_FRAME)

    def go(self, place: float) -> None:
        """Moves the robot to a place, in segments from the start."""
        if self.facts is None:
            return
        self.place = min(max(place, 0.0), float(self.facts.n_segments))
        x = self.facts.on_axis(self.place)
        if abs(self._slider.value - x) > 5e-3:
            self._slider.value = round(x, 2)
        self._viewer.draw(self.facts.at(self.place)[0])
        self.plots.mark(x)

    def _draw_ghosts(self) -> None:
        for ghost in self._ghosts:
            ghost.remove()
        self._ghosts.clear()
        if not self._sweep.value or self.facts is None:
            return
        joints = self.facts.evenly(_GHOSTS)
        color = THEMES["light"].accent(self.facts.is_free)
        for mesh in self._robot.body(joints):
            self._ghosts.append(panels.add_mesh(self._viewer, "sweep", mesh, color, 0.15))

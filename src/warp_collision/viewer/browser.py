"""A world, a robot and its paths in a browser, by viser (the extra `view`)."""

from __future__ import annotations

import atexit
import contextlib
import io
import itertools
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from warp_collision import validate
from warp_collision.extras import require_extra
from warp_collision.messages import escaped, known_names, one_line, short_repr
from warp_collision.planning import MotionGuard
from warp_collision.planning.motion_limits import MotionLimits
from warp_collision.poses import PoseLike
from warp_collision.robot import JointCurve, RobotSpheres, SelfCollisionPairs
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer import panels
from warp_collision.viewer.colors import FREE, HIT, THEMES, Color
from warp_collision.viewer.guard_panel import GuardPanel
from warp_collision.viewer.origin import is_loopback, own_pages_alone, require_foreign_refused
from warp_collision.viewer.path_facts import path_facts
from warp_collision.viewer.path_panel import PathPanel
from warp_collision.viewer.rendering import checked_world, middle_of_limits, paths_of
from warp_collision.viewer.robot_panel import RobotPanel
from warp_collision.viewer.stage import choose_camera, scenery_of, stage_path, stage_world
from warp_collision.viewer.triangles import outline_of
from warp_collision.viewer.world_panel import WorldPanel
from warp_collision.world import MeshWorld
from warp_collision.world.world_reader import version_of

_UPDATE = 0.1  # s, between two drawings of `update`
_WATCH = 0.2  # s, between two looks at what a script may have changed
_STILL = 1.0  # s, after which a client that comes will see the robot where it is
_NEAREST = 4  # pairs that are listed
_LISTED = 0.1  # m, clearance below which pairs are listed
_TOUCH = 1e-5  # m, clearance that rounding may make of a contact
_SHAPE = (160, 140)  # of a window, without the panel
_NEARER = 0.5  # how much nearer a camera of 75 degrees stands than one of 30
_MOST_PATHS = 200  # that the search draws
_OTHERS = "guard must be of the viewer's robot and world, at its base pose, got one of others"


class Viewer:
    """A world, a robot and its paths in a browser.

    Nothing that is called here waits for the browser: one thread draws, the newest of what was
    asked for.

    Args:
        world: the obstacles; None for none. What is toggled or dragged in the browser changes it.
        robot: the robot.
        host: address to listen on; another one than the loopback lets other machines see and move
            everything.
        port: to listen on, 0 for any that is free.
        base_pose: pose of the robot's root link.
        ignore: contacts that are wanted, see `configuration_in_collision`.
        self_collision: see `configuration_in_collision`.
        shapes: see `configuration_in_collision`; costs and colours stay those of spheres.
        visual: whether the robot is drawn by its visual meshes, where it has some, at first.
        limits: of the motors, that trajectories are drawn with: "velocity", "acceleration" and
            "jerk" as `timed` takes them, any of them, such as of `load_motion_limits`. Velocities
            are those of the URDF if they are left out.
        origins: of web pages that may connect beside the viewer's own, such as a proxy's,
            "https://hub.example". All others get status 403.

    Attributes:
        server: the `viser.ViserServer`, for drawings of your own.
        url: what to open in a browser.

    Raises:
        ModuleNotFoundError: viser is not installed.
        OSError: the port is in use.
        RuntimeError: viser is of a version that does not let the viewer refuse foreign pages.
        TypeError, ValueError: something else than a world or a robot, or no port.

    Example:
        >>> from warp_collision import Cuboid, MeshWorld
        >>> from warp_collision.examples import load_panda
        >>> from warp_collision.viewer import Viewer
        >>> world = MeshWorld()
        >>> world.add("table", Cuboid((0.6, 0.8, 0.04)), pose=(0.5, 0, 0.3, 1, 0, 0, 0))
        0
        >>> with Viewer(world, load_panda(), port=0) as viewer:
        ...     viewer.update([0.0, 0.3, 0, -1.8, 0, 2.0, 0.8])
        ...     viewer.wait()
        True
    """

    def __init__(
        self,
        world: MeshWorld | None = None,
        robot: RobotSpheres | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        base_pose: PoseLike | None = None,
        ignore: Iterable[tuple[str, str]] = (),
        self_collision: bool | SelfCollisionPairs = True,
        shapes: Literal["spheres", "exact"] = "spheres",
        visual: bool = False,
        limits: Mapping[str, Any] | None = None,
        origins: Iterable[str] = (),
    ):
        world = checked_world(world, robot)
        if robot is None and limits is not None:
            raise ValueError("limits must be given with a robot, got no robot")
        known = None if robot is None else MotionLimits.known(robot, **(limits or {}))
        require_extra("viser", "the viewer")
        import viser

        port = free_port(host, port)
        with contextlib.redirect_stdout(io.StringIO()), own_pages_alone(host, {*origins}):
            self.server: Any = viser.ViserServer(
                host=host, port=port, label="warp-collision", verbose=False
            )
        port, name = self.server.get_port(), "127.0.0.1" if host in ("0.0.0.0", "") else host
        try:
            require_foreign_refused(name, port)
        except RuntimeError:
            self.server.stop()
            raise
        self.url = f"http://{name}:{port}"
        if not is_loopback(host):
            print(
                f"warp-collision: {escaped(host)}:{port} can be reached from other machines, which "
                "see everything and may move obstacles",
                file=sys.stderr,
            )
        self._closed = threading.Event()
        self._numbers = itertools.count()
        self._worker = Worker(self._failed)
        # A thread that draws while Python ends would end the process by SIGABRT.
        atexit.register(self.close)
        self._world = WorldPanel(self, world)
        self._robot = self._paths = None
        self._guard: GuardPanel | None = None
        if robot is not None and known is not None:
            scene = RobotScene(robot, world, base_pose, tuple(ignore), self_collision, 0, shapes)
            self._robot = RobotPanel(self, scene, middle_of_limits(robot), visual=visual)
            self._paths = PathPanel(self, self._robot, known)
        self._seen = self._state()
        self._line: Any = None
        self._label: Any = None
        self._build()
        self.put("world", lambda: self._show_world(0))
        if self._robot is not None:
            joints = self._robot.joints
            self.put("joints", lambda: self.draw(joints))
        threading.Thread(target=self._watch, name="warp-collision watch", daemon=True).start()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the server."""
        if not self._closed.is_set():
            self._closed.set()
            atexit.unregister(self.close)
            self._worker.close()
            with contextlib.redirect_stdout(io.StringIO()):
                self.server.stop()

    def wait(self, seconds: float = 30.0) -> bool:
        """Waits until all is drawn, and nothing moves; whether it is so after so many seconds.

        What a script changed before, in the world or on the robot, is drawn and proven then.
        """
        if self._is_behind():
            self.put("notice", self._notice)
        return self._worker.wait(seconds)

    def wait_forever(self) -> None:
        """Waits until the viewer is closed, or Ctrl+C."""
        while not self._closed.wait(1.0):
            pass

    # -- what scripts and notebooks call ----------------------------------------------------------

    def update(self, joints: Any, *, delay: float = _UPDATE) -> None:
        """Moves the robot, at most ten times a second; returns at once.

        Args:
            joints: (n_joints,), or the first waypoint of more axes.
            delay: seconds in which later calls replace this one.

        Example:
            >>> from warp_collision.examples import load_panda
            >>> from warp_collision.viewer import Viewer
            >>> with Viewer(robot=load_panda(), port=0) as viewer:
            ...     for step in range(100):
            ...         viewer.update([0.01 * step, 0.3, 0, -1.8, 0, 2.0, 0.8])
        """
        robot = self._require_robot()
        values = torch.as_tensor(joints).detach().float()
        robot.check_joints(values)
        values = values.reshape(-1, robot.n_joints)[0].clone()
        if not bool(torch.isfinite(values).all()):
            raise ValueError("joints must be finite, got NaN or infinity")
        self.put("joints", lambda: self.draw(values), delay)
        if not self.server.get_clients():
            self.put("frame", self._frame, delay + _STILL)

    def add_path(self, joints: Any, name: str = "path") -> None:
        """Shows a path (horizon, n_joints), or one `JointCurve`, and opens it."""
        self.add_paths({name: joints})

    def add_paths(self, paths: Any) -> None:
        """Draws where the hand goes on paths, coloured by result, and opens the first.

        Args:
            paths: (batch, horizon, n_joints), or a mapping of names to paths (horizon, n_joints).
                A `JointCurve` in place of each, or what `timed` returns: its pieces are proven, and
                it is played in real time, with velocities, accelerations and jerks as curves.

        Example:
            >>> import torch
            >>> from warp_collision.examples import load_panda
            >>> from warp_collision.viewer import Viewer
            >>> with Viewer(robot=load_panda(), port=0) as viewer:
            ...     viewer.add_paths(torch.rand(20, 8, 7))
            ...     viewer.wait()
            True
        """
        given = self._named(paths)
        self.put(f"paths {next(iter(given), '')}", lambda: self._add(given))

    def show(self, found: Any) -> None:
        """Shows the result of `optimize_paths` or `timed` in place of what was shown before.

        Of paths with times, such as those with `limits`, these curves.
        """
        found = getattr(found, "motion", None) or found
        if not hasattr(found, "curve"):
            validate.require_tensor("joints", getattr(found, "joints", None), "of planned paths")
        given = self._named(found)
        self.put("found", lambda: self._replace(given))

    def progress(self, found: Any) -> None:
        """Draws a search as it goes on: the argument `progress` of `optimize_paths`."""
        joints = found.joints.detach().clone()[:_MOST_PATHS]
        words = f"searching: round {found.iterations}, {found.n_free} of {found.n_problems} free"
        self.put("found", lambda: self._replace(self._named(joints), words), _UPDATE)

    def select(self, name: str | None) -> None:
        """Shows the report of an obstacle, and a gizmo that moves it."""
        self._require_obstacle(name)
        self.put("select", lambda: self._world.select(name))

    def enable(self, name: str, on: bool = True) -> None:
        """Lets queries check an obstacle or skip it, as `MeshWorld.enable`."""
        self._require_obstacle(name)
        self.put(f"enable {name}", lambda: self.switch([name], on))

    def choose_env(self, env: int) -> None:
        """Shows another env of the world."""
        self._world._world.names(env)
        self.put("world", lambda: self._show_world(env))

    def show_contact(self, index: int) -> None:
        """Moves the robot to one of the worst contacts of the open path."""
        if self._paths is not None:
            paths = self._paths
            self.put("place", lambda: self._shown(paths.show_contact(index)))

    def play(self, on: bool = True) -> None:
        """Lets the robot move along the open path, or stand; a guard ends."""
        if on and self._guard is not None:
            self._guard.run(False)
        if self._paths is not None:
            self._paths.play(on)

    def add_guard(self, guard: MotionGuard) -> None:
        """Adds a tab in which sliders command the robot, and a guard passes the commands on.

        Drawn are how much is passed on and why not all of it, velocities, and the proven braking.

        Args:
            guard: of one robot, the viewer's, in its world.

        Raises:
            ValueError: a guard of another robot, world or base pose, or of several robots, or a
                second one.

        Example:
            >>> from warp_collision import MeshWorld
            >>> from warp_collision.examples import load_panda
            >>> from warp_collision.planning import MotionGuard
            >>> from warp_collision.viewer import Viewer
            >>> robot, world = load_panda(), MeshWorld()
            >>> guard = MotionGuard(robot, world, dt=0.001, acceleration=10.0)
            >>> with Viewer(world, robot, port=0) as viewer:
            ...     viewer.add_guard(guard)
            ...     viewer.steer([0.5, 0, 0, 0, 0, 0, 0])
        """
        robot = self._require_robot()
        if guard.robot is not robot or guard.world is not self._world._world:
            raise ValueError(_OTHERS)
        if guard.shape != (robot.n_joints,) or self._guard is not None:
            why = "a second one" if self._guard is not None else f"one of {guard.shape[0]} robots"
            raise ValueError(f"guard must be one guard of one robot, got {why}")
        assert self._robot is not None
        joints = self._robot.joints[None]
        placed = [scene.transforms(joints) for scene in (guard._placed, self._robot.scene)]
        if not np.allclose(*placed, atol=1e-6):  # its braking would be drawn elsewhere
            raise ValueError(_OTHERS)
        self._guard = GuardPanel(self, self._robot, guard)
        with self._tabs.add_tab("guard"):
            self._guard.build()

    def steer(self, command: Any) -> None:
        """Commands the robot through the guard, which begins to step if it does not yet.

        Args:
            command: (n_joints,) velocities or joint values, as the guard takes them.
        """
        guard = self._guard
        if guard is None:
            raise ValueError("a guard must be added by add_guard before the robot is steered")
        values = torch.as_tensor(command).detach().double()
        self._require_robot().check_joints(values, "command")
        if not bool(torch.isfinite(values).all()):
            raise ValueError("command must be finite, got NaN or infinity")
        rows = values.reshape(-1, values.shape[-1])[0].tolist()
        self.put("steer", lambda: guard.command(rows))
        if not guard.is_running:
            guard.run(True)

    # -- what the panels call ---------------------------------------------------------------------

    def put(self, name: str, job: Callable[[], object], delay: float = 0.0) -> None:
        """Lets the thread that draws do something; the newest of a name."""
        self._worker.put(name, job, delay)

    def switch(self, names: Sequence[str], on: bool) -> None:
        """Lets queries check obstacles or skip them; in the thread that draws."""
        self._edit(lambda: self._world.enable(names, on))

    def move(self, name: str, pose: tuple[float, ...]) -> None:
        """Moves an obstacle; in the thread that draws."""
        self._edit(lambda: self._world.move(name, pose))

    def undo(self) -> None:
        """Takes back the last move of an obstacle; in the thread that draws."""
        self._edit(self._world.undo)

    def reset(self) -> None:
        """Takes back all moves of obstacles; in the thread that draws."""
        self._edit(self._world.reset)

    def tell(self, words: str) -> None:
        """Shows a line where the user looks; in the thread that draws."""
        self._status.content = panels.line(panels.text(words, 300), is_bold=True)

    def draw(self, joints: Tensor) -> None:
        """Draws the robot and how near it is; in the thread that draws."""
        if self._robot is None:
            return
        self._notice()
        with self.server.atomic():
            self._robot.show(joints)
            self._tell_distances()

    def new_node(self, kind: str) -> str:
        """A name in the scene's tree that was never used: names of files are no paths in it."""
        return f"/{kind}/{next(self._numbers)}"

    # ---------------------------------------------------------------------------------------------

    def _build(self) -> None:
        server = self.server
        server.scene.set_up_direction("+z")
        server.gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)
        server.gui.main_panel.dock_right()
        self._status = server.gui.add_html(panels.line("loading"))
        if self._robot is not None:
            server.gui.add_html(panels.legend())
        self._tabs = tabs = server.gui.add_tab_group()
        if self._robot is not None and self._paths is not None:
            with tabs.add_tab("path"):
                self._paths.build()
            with tabs.add_tab("robot"):
                self._robot.build()
        with tabs.add_tab("world"):
            self._world.build()

    def _failed(self, error: Exception) -> None:
        """Shows an error where the user looks."""
        if not self._closed.is_set():
            words = panels.text(one_line(error), 300)
            self._status.content = panels.line(words, HIT, is_bold=True)

    def _show_world(self, env: int) -> None:
        self._expire()
        self._world.show(env)
        self._frame()
        if self._robot is not None:
            self._robot.scene = self._robot.scene._replace(env=env)
            self._changed()
        else:
            count = len(self._world.drawn)
            self._status.content = panels.line(f"{count} obstacles", is_bold=True)

    def _frame(self) -> None:
        """Lets new clients look at the open path, the robot or the world, as pictures do."""
        theme = THEMES["light"]
        scenery = scenery_of(self._world.obstacles(), outline_of)  # many triangles take seconds
        if self._robot is None:
            stage = stage_world(scenery, theme)
        else:
            facts = self._paths.facts if self._paths is not None else None
            if facts is None:
                facts = path_facts(self._robot.scene, self._robot.joints[None])
            stage = stage_path(facts, self._robot.meshes, scenery, theme)
        found = choose_camera([stage], _SHAPE)
        camera = self.server.initial_camera
        # The browser's own field of view is wider.
        away = np.subtract(found.eye, found.target)
        camera.position = np.array(found.target) + _NEARER * away
        camera.look_at = found.target
        camera.up = (0.0, 0.0, 1.0)

    def _expire(self) -> None:
        """Takes back what is proven; pages get that before anything of a change."""
        if self._paths is not None:
            self._paths.expire()
            self.server.flush()

    def _edit(self, change: Callable[[], object]) -> None:
        """Changes the world, and draws what follows."""
        self._expire()
        change()
        self._changed()

    def _changed(self) -> None:
        """Draws distances anew, and then the certificate, after something has moved."""
        self._seen = self._state()
        self._expire()
        self._world.follow()
        if self._robot is None or self._paths is None:
            return
        paths = self._paths
        with self.server.atomic():
            self._robot.show(self._robot.joints)
            self._tell_distances()
        self.put("certificate", lambda: self._certify(paths))

    def _state(self) -> Any:
        """Changes with the world, and with what the robot carries."""
        links = None if self._robot is None else self._robot.scene.robot.sphere_links
        return version_of(self._world._world), links

    def _is_behind(self) -> bool:
        """Whether a script has changed the world, or what the robot carries."""
        seen, now = self._seen, self._state()
        return now[0] != seen[0] or now[1] is not seen[1]

    def _notice(self) -> None:
        """Takes back what is proven if a script has changed something; in the thread that draws."""
        if self._is_behind():
            self._changed()

    def _watch(self) -> None:
        """Lets the thread that draws notice what scripts change, until the viewer is closed."""
        while not self._closed.wait(_WATCH):
            if self._is_behind():
                self.put("notice", self._notice)

    def _certify(self, paths: PathPanel) -> None:
        """Proves the open path again, and then the others, a few at a time."""
        with self.server.atomic():
            paths.refresh()
            self._notice()  # of a change while it was proven
        self.put("certificates", lambda: self._certify_others(paths))

    def _certify_others(self, paths: PathPanel) -> None:
        with self.server.atomic():
            is_done = paths.prove_some()
            self._notice()
        if not is_done:
            self.put("certificates", lambda: self._certify_others(paths))

    def _tell_distances(self) -> None:
        """Colours spheres and obstacles, lists what is nearest, and joins the closest points."""
        assert self._robot is not None
        scene, joints = self._robot.scene, self._robot.joints[None]
        spheres = scene.spheres(joints)[0].double().cpu().numpy()
        self._robot.color(spheres, scene.nearness(joints)[0])
        path = joints[None].to(scene.world.device)
        found = scene.robot.report(path, scene.world, margin=_LISTED, **scene.of_paths)
        nearest: dict[str, float] = {}
        for obstacle, depth, own in zip(
            found.obstacle, found.depth, found.with_itself, strict=True
        ):
            if not own:
                nearest[obstacle] = min(nearest.get(obstacle, np.inf), -float(depth))
        self._world.color(nearest)
        rows = [
            (
                panels.text(found.link[i]),
                panels.text(found.obstacle[i]),
                panels.millimetres(-float(found.depth[i])),
            )
            for i in range(min(_NEAREST, len(found.link)))
        ]
        head = f"nothing within {1000 * _LISTED:.0f} mm"
        least = np.inf
        if rows:
            least = -float(found.depth[0])
            state = "collision" if least < 0.0 else "free, nearest" if least > _TOUCH else "nearest"
            head = f"{state}: {rows[0][0]} and {rows[0][1]}, {rows[0][2]}"
        self._status.content = panels.line(
            head, HIT if least < 0.0 else FREE, is_bold=True
        ) + panels.table(rows)
        self._join(found, spheres)

    def _join(self, found: Any, spheres: np.ndarray) -> None:
        """Draws a line between the nearest two points."""
        if not len(found.link) or not np.isfinite(found.depth[0]):
            self._draw_line(None, "", FREE)
            return
        center, radius = np.split(spheres[found.sphere[0]], [3])
        point, depth = found.point[0], float(found.depth[0])
        away = point - center
        # Inside, the nearest point of the obstacle is behind the sphere's center.
        sign = 1.0 if depth < radius[0] else -1.0
        length = max(float(np.linalg.norm(away)), 1e-9)
        ends = np.stack([center + sign * radius[0] * away / length, point])
        self._draw_line(ends, panels.millimetres(-depth), HIT if depth > 0.0 else FREE)

    def _draw_line(self, ends: np.ndarray | None, words: str, color: Color) -> None:
        """Draws a line (2, 3) with a label at its end, or none."""
        if self._line is None:
            scene = self.server.scene
            self._line = scene.add_line_segments(
                self.new_node("line"), np.zeros((1, 2, 3), np.float32), (0, 0, 0), thickness=5.0,
                thickness_units="screen",
            )  # fmt: skip
            self._label = scene.add_label(self.new_node("label"), "", anchor="bottom-center")
        self._line.visible = self._label.visible = ends is not None
        if ends is not None:
            self._line.points = ends[None].astype(np.float32)
            self._line.colors = np.tile(np.array(panels.line_rgb(color), np.uint8), (1, 2, 1))
            self._label.position, self._label.text = ends[1], words

    def _named(self, paths: Any) -> Mapping[str, Tensor | JointCurve]:
        """Copies of paths (horizon, n_joints) and curves by name: callers may change theirs."""
        found = paths_of(paths, self._require_robot())
        return {
            name or "path": JointCurve(path.times.clone(), path.coefficients.clone())
            if isinstance(path, JointCurve)
            else path.detach().clone()
            for name, path in found.items()
        }

    def _add(self, paths: Mapping[str, Tensor | JointCurve]) -> None:
        if self._paths is not None and paths:
            with self.server.atomic():
                self._paths.add(paths)
                self._paths.open(next(iter(paths)))
            self._frame()

    def _replace(self, paths: Mapping[str, Tensor | JointCurve], words: str = "") -> None:
        if self._paths is not None:
            self._paths.clear()
            self._add(paths)
            if words:
                self.tell(words)

    def _shown(self, contact: Any) -> None:
        """Joins the closest points of a contact that was chosen."""
        if contact is None or self._paths is None or self._paths.facts is None:
            return
        ends = self._paths.facts.closest_points(contact)
        self._draw_line(ends, escaped(str(contact), 90), HIT if contact.clearance < 0.0 else FREE)

    def _require_robot(self) -> RobotSpheres:
        if self._robot is None:
            raise ValueError("robot must be given to the viewer for joint values, got None")
        return self._robot.scene.robot

    def _require_obstacle(self, name: str | None) -> None:
        names = self._world._world.names(self._world.env)
        if name is not None and name not in names:
            raise ValueError(
                f"name must be one of {known_names(name, names)}, got {short_repr(name)}"
            )


class Worker:
    """Runs jobs one after another in a thread of its own.

    A job of a name replaces one of the same name that has not begun, so that as many wait as there
    are names: callers never wait, and never fill the memory.

    Args:
        failed: called with an error of a job.
    """

    def __init__(self, failed: Callable[[Exception], None]):
        self._failed = failed
        self._jobs: dict[str, tuple[float, Callable[[], object]]] = {}
        self._changed = threading.Condition()
        self._is_busy = False
        self._is_open = True
        self._thread = threading.Thread(target=self._run, name="warp-collision viewer", daemon=True)
        self._thread.start()

    def put(self, name: str, job: Callable[[], object], delay: float = 0.0) -> None:
        """Adds a job, to begin no sooner than after a delay [s]; one that waits keeps its time."""
        with self._changed:
            begin = time.monotonic() + delay
            if name in self._jobs:  # it moves behind what was asked for meanwhile
                begin = min(begin, self._jobs.pop(name)[0])
            self._jobs[name] = (begin, job)
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Waits until all jobs are done; whether they are after so many seconds."""
        end = time.monotonic() + seconds
        with self._changed:
            while self._jobs or self._is_busy:
                left = end - time.monotonic()
                if left <= 0.0 or not self._is_open:
                    return False
                self._changed.wait(left)
        return True

    def close(self) -> None:
        """Ends the thread after the job that it does; others are dropped."""
        with self._changed:
            self._is_open = False
            self._jobs.clear()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _next(self) -> Callable[[], object] | None:
        """Waits for the next job; None when closed."""
        with self._changed:
            while self._is_open:
                now = time.monotonic()
                ready = next((n for n, (begin, _) in self._jobs.items() if begin <= now), None)
                if ready is not None:
                    self._is_busy = True
                    return self._jobs.pop(ready)[1]
                begins = [begin for begin, _ in self._jobs.values()]
                self._changed.wait(min(begins) - now if begins else None)
        return None

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception as error:  # of any job: the thread goes on
                self._failed(error)
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()


def free_port(host: str, port: int) -> int:
    """Returns a port that nothing listens on: the one that is given, or any for 0.

    Raises:
        OSError: it is in use, or the host is no address of this machine.
        ValueError: it is no port.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65536:
        raise ValueError(f"port must be from 0 to 65535, got {short_repr(port)}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, UnicodeError) as error:
            reason = one_line(error)
            raise OSError(
                f"port must be free, got {port} of {short_repr(host)}: {reason}; 0 takes any"
            ) from error
        return probe.getsockname()[1]

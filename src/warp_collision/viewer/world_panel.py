"""The obstacles in the browser: shapes, a tree of names to switch off, a gizmo that moves one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from warp_collision.io import Obstacle
from warp_collision.messages import escaped
from warp_collision.viewer import panels
from warp_collision.viewer.colors import DISABLED, NEAR, OBSTACLE, UNSEEN, Color, clearance_colors
from warp_collision.viewer.drawn_obstacle import DrawnObstacle
from warp_collision.viewer.moves import Moves, Pose, as_download
from warp_collision.world import MeshWorld

MOST_ROWS = 100  # that are listed at once; a group of more is filled when it is asked for
_ON, _OFF, _REPORT, _LIST = "☑ on", "☐ off", "report", "list them"
_ALL_ON, _ALL_OFF = "all on", "all off"
_UNDO, _RESET, _SAVE = "undo", "reset", "save"


class WorldPanel:
    """The world's part of the viewer.

    Attributes:
        env: the env that is shown.
        selected: the obstacle that the gizmo moves, if there is one.
        drawn: the obstacles by name.
        moves: of obstacles, that can be undone.
    """

    def __init__(self, viewer: panels.Host, world: MeshWorld):
        self._viewer, self._world = viewer, world
        self._server = viewer.server
        self.env = 0
        self.selected: str | None = None
        self.drawn: dict[str, DrawnObstacle] = {}
        self.moves = Moves()
        self._drawn_shapes: list[tuple[str, int, float]] = []
        self._gizmo: Any = None
        self._envs: Any = None

    def build(self) -> None:
        """Adds the panel."""
        gui = self._server.gui
        if self._world.n_envs > 1:
            envs = gui.add_dropdown(
                "env", [str(index) for index in range(self._world.n_envs)], initial_value="0"
            )
            envs.on_update(self._chosen)
            self._envs = envs
        self._report = gui.add_html("")
        self._done = gui.add_button("done", visible=False)
        self._done.on_click(lambda event: self._viewer.select(None))
        self._edits = gui.add_button_group("moved", (_UNDO, _RESET, _SAVE))
        self._edits.on_click(self._edited)
        self._add_grid()
        self._filter = gui.add_text("find", "")
        self._filter.on_update(lambda event: self._viewer.put("names", self._list_names))
        self._tree = NameTree(self._viewer)
        self._note = gui.add_html("")

    def _add_grid(self) -> None:
        """Adds a grid of decimetres at z = 0, and the axes of the world."""
        grid = self._server.scene.add_grid(
            self._viewer.new_node("grid"), width=4.0, height=4.0, cell_size=0.1, section_size=1.0
        )
        axes = self._server.scene.world_axes
        axes.axes_length, axes.axes_radius = 0.3, 0.004
        axes.visible = True
        box = self._server.gui.add_checkbox("grid and axes", True)

        def switch(event: Any) -> None:
            grid.visible = axes.visible = event.target.value

        box.on_update(switch)

    def _edited(self, event: Any) -> None:
        """Undoes the last move or all of them, or gives the world as a file to who asks for it."""
        chosen, client = event.target.value, event.client
        if chosen == _SAVE:
            self._viewer.put(
                "save", lambda: client.send_file_download(*as_download(self.obstacles()))
            )
        else:
            self._viewer.put(chosen, self._viewer.undo if chosen == _UNDO else self._viewer.reset)

    def undo(self) -> None:
        """Puts the obstacle that was moved last back to where it was."""
        last = self.moves.undo(self.env)
        if last is not None:
            self._put_back({last.name: last.pose})

    def reset(self) -> None:
        """Puts all obstacles that were moved back."""
        self._put_back(self.moves.reset(self.env))

    def _put_back(self, poses: Mapping[str, Pose]) -> None:
        for name, pose in poses.items():
            if name in self.drawn:  # a script may have removed it
                self._place(name, pose)
        if self.selected in poses:
            self.select(self.selected)

    def _chosen(self, event: Any) -> None:
        if event.client is not None:
            self._viewer.choose_env(int(event.target.value))

    def show(self, env: int) -> None:
        """Draws the obstacles of an env anew."""
        self.env = env
        if self._envs is not None and self._envs.value != str(env):
            self._envs.value = str(env)
        for drawn in self.drawn.values():
            drawn.remove()
        self.drawn.clear()
        self._drawn_shapes = self._shapes()
        for name, obstacle in self.obstacles().items():
            self.drawn[name] = DrawnObstacle(self._viewer, name, obstacle)
        self.color({})
        self.select(None)
        self._list_names()

    def follow(self) -> None:
        """Draws what a script has changed in the world since it was drawn."""
        names = self._world.names(self.env)
        if self._shapes() != self._drawn_shapes:
            self.show(self.env)
            return
        enabled = self._world.enabled[self.env].tolist()
        for name, on in zip(names, enabled, strict=False):
            drawn = self.drawn[name]
            pose = (*self._world.pose(name, self.env).tolist(),)
            if pose != drawn.pose:
                drawn.move(pose)
            if drawn.enabled != bool(on):
                drawn.enabled = bool(on)
                self._tree.enable([name])

    def _shapes(self) -> list[tuple[str, int, float]]:
        """Of each obstacle its name, which object its shape is, and its padding [m]."""
        slots, padding = self._world._slots.of(self.env), self._world.padding[self.env].tolist()
        return [
            (slot.name, id(slot.obstacle), wide) for slot, wide in zip(slots, padding, strict=False)
        ]

    def obstacles(self) -> dict[str, Obstacle]:
        """The obstacles of the env that is shown."""
        return self._world.obstacles(self.env)

    def _list_names(self) -> None:
        """Lists the names that hold what is looked for."""
        wanted = self._filter.value.lower()
        self._tree.show({name: one for name, one in self.drawn.items() if wanted in name.lower()})
        slots = self._world.max_obstacles - len(self.drawn)
        self._note.content = panels.hint(f"{slots} of {self._world.max_obstacles} slots are free")

    def enable(self, names: Sequence[str], on: bool) -> None:
        """Lets queries check obstacles or skip them, and draws them so."""
        for name in names:
            self._world.enable(name, on, env=self.env)
            self.drawn[name].enabled = on
        self._tree.enable(names)
        self.color({})

    def select(self, name: str | None) -> None:
        """Shows the report of an obstacle, and a gizmo that moves it."""
        self.selected = name
        if self._gizmo is not None:
            self._gizmo.remove()
            self._gizmo = None
        self._done.visible = name is not None
        if name is None:
            self._report.content = panels.hint(
                "click an obstacle, here or in the scene: its report, and a gizmo that moves it"
            )
            return
        drawn = self.drawn[name]
        self._gizmo = self._server.scene.add_transform_controls(
            self._viewer.new_node("gizmo"),
            scale=float(np.clip(0.6 * drawn.size, 0.1, 1.0)),
            position=drawn.handles[0].position,
            wxyz=drawn.handles[0].wxyz,
            depth_test=False,
        )
        self._gizmo.on_update(self._dragged)
        self._tell(name)

    def _tell(self, name: str) -> None:
        report = self._world.report(name, self.env)
        pose = self._world.pose(name, self.env).tolist()
        found = [
            ("pose", " ".join(f"{value:.3f}" for value in pose)),
            ("shape", panels.text(report.shape or f"mesh of {report.n_faces} faces", 90)),
            ("inside", panels.text(f"{report.sign_method}: {report.reason}", 120)),
            *(("repaired", panels.text(repair, 90)) for repair in report.repairs[:3]),
        ]
        self._report.content = panels.line(
            panels.text(name), OBSTACLE, is_bold=True
        ) + panels.table(found)

    async def _dragged(self, event: Any) -> None:
        """Follows the gizmo; a coroutine, as other functions are called in no certain order."""
        if event.phase == "start":
            self.moves.begin()
        elif event.phase == "update" and self.selected is not None:
            name, gizmo = self.selected, event.target

            def move() -> None:  # where the gizmo is by then
                pose = (*map(float, gizmo.position), *map(float, gizmo.wxyz))
                self._viewer.move(name, pose)

            self._viewer.put("gizmo", move)

    def move(self, name: str, pose: tuple[float, ...]) -> None:
        """Moves an obstacle, x, y, z, qw, qx, qy, qz."""
        self.moves.add(self.env, name, (*self._world.pose(name, self.env).tolist(),))
        self._place(name, pose)

    def _place(self, name: str, pose: Pose) -> None:
        self._world.set_pose(name, torch.tensor(pose), env=self.env)
        self.drawn[name].move(pose)
        if name == self.selected:
            self._tell(name)

    def color(self, clearances: dict[str, float]) -> None:
        """Colours obstacles that are near by their clearance [m]; disabled ones are grey."""
        for name, drawn in self.drawn.items():
            color: Color = UNSEEN if drawn.is_unseen else OBSTACLE
            if not drawn.enabled:
                color = DISABLED
            elif clearances.get(name, np.inf) < NEAR:
                red, green, blue = clearance_colors(clearances[name]).tolist()
                color = red, green, blue
            drawn.paint(color)


@dataclass
class Group:
    """Names that stand together.

    Attributes:
        groups: in it, by label.
        names: in it, by what is left of each.
    """

    groups: dict[str, Group] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def everything(self) -> list[str]:
        """All names, those of groups in it too."""
        inner = [name for group in self.groups.values() for name in group.everything()]
        return [*inner, *self.names.values()]


def tree_of(kinds: Mapping[str, str]) -> Group:
    """Returns names as a tree.

    Names are cut at `/`, but not at those of `http://`. Many names without one stand together by
    kind. A group that holds nothing but one group or one name is none of its own.

    Args:
        kinds: by name, what it is.

    Example:
        >>> from warp_collision.viewer.world_panel import tree_of
        >>> root = tree_of({"shelf/top": "Cuboid", "shelf/side": "Cuboid", "ball": "Sphere"})
        >>> root.groups["shelf"].names, root.names
        ({'top': 'shelf/top', 'side': 'shelf/side'}, {'ball': 'ball'})
    """
    root, by_kind = Group(), len(kinds) > MOST_ROWS
    for name, kind in kinds.items():
        # A scheme, as of http://, is not cut off.
        *path, leaf = [part for part in re.split(r"(?<![:/])/+", name) if part] or [name]
        group = root
        for part in path or ([kind] if by_kind else []):
            group = group.groups.setdefault(part, Group())
        # Two names may differ in empty parts alone.
        group.names[name if leaf in group.names else leaf] = name
    return _merged(root)


def _merged(group: Group) -> Group:
    found = Group(names=group.names)
    for label, inner in group.groups.items():
        inner = _merged(inner)
        if len(inner.groups) + len(inner.names) > 1:
            found.groups[label] = inner
            continue
        for last, only in inner.groups.items():
            found.groups[f"{label}/{last}"] = only
        for last, name in inner.names.items():
            found.names[f"{label}/{last}"] = name
    return found


class NameTree:
    """The tree in a panel.

    Args:
        viewer: that holds the panel.
    """

    def __init__(self, viewer: panels.Host):
        self._viewer, self._gui = viewer, viewer.server.gui
        self._holder: Any = None
        self._rows: dict[str, Any] = {}
        self._drawn: Mapping[str, DrawnObstacle] = {}
        self._folder = self._gui.add_folder("obstacles: those that are on are checked")

    def show(self, drawn: Mapping[str, DrawnObstacle]) -> None:
        """Lists obstacles anew; whether they are on is read again when a group is filled."""
        if self._holder is not None:
            self._holder.remove()
        self._rows.clear()
        self._drawn = drawn
        with self._folder:
            self._holder = self._gui.add_folder(None)
        root = tree_of({name: one.kind for name, one in drawn.items()})
        self._fill(self._holder, root, is_small=len(drawn) <= MOST_ROWS)

    def enable(self, names: Sequence[str]) -> None:
        """Shows whether obstacles are on."""
        for name in names:
            if name in self._rows:
                self._rows[name].options = self._options(name)

    def _options(self, name: str) -> tuple[str, str]:
        return _ON if self._drawn[name].enabled else _OFF, _REPORT

    def _fill(self, folder: Any, group: Group, *, is_small: bool) -> None:
        with folder:
            for label, inner in [*group.groups.items()][:MOST_ROWS]:
                self._add_group(label, inner, is_small=is_small)
            for label, name in [*group.names.items()][:MOST_ROWS]:
                self._add_row(label, name)
            more = sum(max(0, len(rows) - MOST_ROWS) for rows in (group.groups, group.names))
            if more:
                self._gui.add_html(panels.hint(f"{more} more: find them above"))

    def _add_group(self, label: str, group: Group, *, is_small: bool) -> None:
        names = group.everything()
        folder = self._gui.add_folder(f"{escaped(label, 60)} ({len(names)})")
        options = _ALL_ON, _ALL_OFF, _LIST
        with folder:
            row = self._gui.add_button_group("", options[:2] if is_small else options)
        if is_small:
            self._fill(folder, group, is_small=True)

        def fill() -> None:
            if len(row.options) == len(options):
                row.options = options[:2]
                self._fill(folder, group, is_small=len(names) <= MOST_ROWS)

        def click(event: Any) -> None:
            if event.target.value == _LIST:
                self._viewer.put(f"list {id(row)}", fill)
            else:
                on = event.target.value == _ALL_ON
                self._viewer.put(f"enable {id(row)}", lambda: self._viewer.switch(names, on))

        row.on_click(click)

    def _add_row(self, label: str, name: str) -> None:
        row = self._gui.add_button_group(escaped(label, 60), self._options(name))

        def click(event: Any) -> None:
            if event.target.value == _REPORT:
                self._viewer.select(name)
            else:
                self._viewer.enable(name, not self._drawn[name].enabled)

        row.on_click(click)
        self._rows[name] = row

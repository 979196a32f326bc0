"""The robot in the browser: links, spheres in the colours of their clearance, joints, the hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from trimesh.transformations import quaternion_from_matrix

from warp_collision.io.placing import joined
from warp_collision.messages import escaped
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer import panels
from warp_collision.viewer.colors import ATTACHED, BARE, THEMES, Floats, clearance_colors
from warp_collision.viewer.hand import HandHandle
from warp_collision.viewer.stage import robots_at
from warp_collision.viewer.triangles import Triangles, ball, link_meshes, of_mesh, piece_meshes

_TURN = 3.1416  # rad, on both sides of 0 of a joint without limits
_REACH = 1.0  # m, the same of one that slides
_WITH_SPHERES, _ALONE = 0.35, 1.0  # opacity of links


class RobotPanel:
    """The robot's part of the viewer.

    Attributes:
        joints: (n_joints,) what is shown.
        meshes: of the links: the shapes of their collisions, or visual meshes where there are none.
        hand: the handle that moves the robot by its last link.
    """

    def __init__(self, viewer: panels.Host, scene: RobotScene, joints: Tensor, *, visual: bool):
        self._viewer, self._server = viewer, viewer.server
        self.scene, self.joints = scene, joints
        self.meshes = link_meshes(scene.robot, ("collision", "visual"))
        self.hand = HandHandle(viewer, scene)
        self._visual = visual and bool(scene.robot.link_meshes)
        self._bodies: dict[str, dict[str, Any]] = {}  # by kind and link; made when they are shown
        self._spheres: Any = None
        self._sliders: list[Any] = []

    def build(self) -> None:
        """Adds the panel."""
        gui, robot = self._server.gui, self.scene.robot
        shown = {
            "links": not self._visual, "spheres": not self._visual, "pieces": False,
            "visual": self._visual,
        }  # fmt: skip
        self.switches = {kind: gui.add_checkbox(kind, value) for kind, value in shown.items()}
        self.switches["visual"].disabled = not robot.link_meshes
        has_pieces = any(body.pieces for body in robot.layout.bodies.values())
        self.switches["pieces"].disabled = not has_pieces
        for box in self.switches.values():
            box.on_update(lambda event: self._viewer.put("looks", self._look))
        with_handle = gui.add_checkbox("move the hand", False)
        with_handle.on_update(
            lambda event: self._viewer.put(
                "hand", lambda: self.hand.show(self.joints, event.target.value)
            )
        )
        self._note = gui.add_html(self._notes())
        with gui.add_folder("joints"):
            limits = robot.joint_limits.double().tolist()
            for index, (name, unit) in enumerate(
                zip(robot.joint_names, robot.joint_units, strict=True)
            ):
                reach = _TURN if unit == "rad" else _REACH
                low, high = (
                    value if np.isfinite(value) else sign * reach
                    for value, sign in zip(limits[index], (-1, 1), strict=True)
                )
                value = float(np.clip(self.joints[index].item(), low, high))
                slider = gui.add_slider(
                    escaped(f"{name} [{unit}]", 40), min=low, max=max(high, low + 1e-6),
                    step=1e-4, initial_value=value,
                )  # fmt: skip
                slider.on_update(self._slid)
                self._sliders.append(slider)
        self._add_spheres()
        self._look()

    def _notes(self) -> str:
        robot, lines = self.scene.robot, []
        for link in robot.links_without_spheres:
            words = f"{panels.text(link)} has no spheres: it is not checked"
            lines.append(panels.line(words, BARE))
        for name in robot.attached:
            lines.append(panels.line(f"{panels.text(name)} is attached", ATTACHED))
        if not self.meshes.links:
            why = next(iter(self.meshes.missing.values()), "the URDF names none")
            words = f"no meshes, spheres alone: {panels.text(why, 120)}"
            lines.append(panels.line(words))
        return "".join(lines)

    def _add_bodies(self, kind: str) -> None:
        """Draws the links as meshes of a kind."""
        robot = self.scene.robot
        made = {
            "links": lambda: self.meshes.links,
            "pieces": lambda: piece_meshes(robot),
            "visual": lambda: link_meshes(robot, ("visual",)).links,
        }[kind]()
        self._bodies[kind] = handles = {}
        for link, mesh in made.items():
            bare = link in robot.links_without_spheres
            color = BARE if bare else THEMES["light"].robot
            handles[link] = panels.add_mesh(
                self._viewer, "link", mesh, color, _ALONE, side="double"
            )

    def _place(self) -> None:
        """Moves what is drawn of the links to the joint values that are shown."""
        transforms = self.scene.transforms(self.joints[None])[0]
        names = self.scene.robot.link_names
        for handles in self._bodies.values():
            for link, handle in handles.items():
                matrix = transforms[names.index(link)]
                handle.position, handle.wxyz = matrix[:3, 3], quaternion_from_matrix(matrix)

    def _add_spheres(self) -> None:
        rows = self.scene.spheres(self.joints[None])[0].double().cpu().numpy()
        unit, count = ball(2), len(rows)
        self._of_links = self.scene.robot.sphere_links
        self._radii = np.maximum(rows[:, 3], 0.0).astype(np.float32)
        self._spheres = self._server.scene.add_batched_meshes_simple(
            self._viewer.new_node("spheres"),
            unit.vertices.astype(np.float32), unit.faces.astype(np.uint32),
            np.tile(np.array([1, 0, 0, 0], np.float32), (count, 1)), rows[:, :3].astype(np.float32),
            batched_scales=np.maximum(self._radii, 1e-6),
            batched_colors=np.full((count, 3), 200, np.uint8), lod="off",
            cast_shadow=False, receive_shadow=False,
        )  # fmt: skip

    def _look(self) -> None:
        """Shows what is switched on; meshes around spheres are translucent."""
        on = {kind: box.value for kind, box in self.switches.items()}
        self._spheres.visible = on.pop("spheres")
        for kind, is_on in on.items():
            if is_on and kind not in self._bodies:
                self._add_bodies(kind)
                self._place()
            for handle in self._bodies.get(kind, {}).values():
                handle.visible = is_on
                handle.opacity = _WITH_SPHERES if self._spheres.visible else _ALONE

    def _slid(self, event: Any) -> None:
        if event.client is not None:
            joints = torch.tensor([slider.value for slider in self._sliders])
            self._viewer.update(joints, delay=0.0)

    def show(self, joints: Tensor) -> None:
        """Draws the robot at joint values (n_joints,)."""
        self.joints = joints.detach().float().cpu()
        self._place()
        self.hand.follow(self.joints)
        for slider, value in zip(self._sliders, self.joints.tolist(), strict=True):
            value = float(np.clip(value, slider.min, slider.max))
            if abs(slider.value - value) > 1e-5:
                slider.value = value
        if self._of_links is not self.scene.robot.sphere_links:  # attached or detached
            self._spheres.remove()
            self._add_spheres()
            self._note.content = self._notes()
            self._look()

    def color(self, spheres: Floats, clearance: Floats) -> None:
        """Moves the spheres (n_spheres, 4) and colours them by their clearance (n_spheres,)."""
        self._spheres.batched_positions = spheres[:, :3].astype(np.float32)
        colors = np.uint8(np.round(255 * clearance_colors(clearance)))
        self._spheres.batched_colors = colors

    def body(self, joints: Tensor) -> list[Triangles]:
        """The whole robot at joint values (n, n_joints), one mesh for each."""
        robots = robots_at(self.scene, self.meshes, joints)
        return [of_mesh(joined([*parts.values()])) for parts in robots]

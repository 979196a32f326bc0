"""Episodes of guarded robots with hostile commands, and a judge of each millisecond of them."""

from __future__ import annotations

import json
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from path_judge import Judge, Scene
from warp_collision import MeshWorld
from warp_collision.examples import load_panda
from warp_collision.planning import MotionGuard
from warp_collision.robot import RobotSpheres

DT = 1e-3
ACCELERATION = 10.0
ASSETS = Path(str(files("warp_collision.assets")))
PROBLEMS = {
    name: entry
    for folder in ("planning", "problems")
    for file in sorted((ASSETS / folder).glob("*.json"))
    for name, entry in json.loads(file.read_text()).items()
}
# An arm of six joints with the lengths of a UR5: parent joint's origin, its rpy, its axis, and
# spheres of its link.
_ARM = (
    ((0, 0, 0.089), (0, 0, 0), (0, 0, 1), [(0, 0, 0, 0.08), (0, 0.1, 0, 0.07)]),
    ((0, 0.136, 0), (0, 1.5708, 0), (0, 1, 0), [(0, 0, 0.085 * i, 0.06) for i in range(6)]),
    ((0, -0.12, 0.425), (0, 0, 0), (0, 1, 0), [(0, 0, 0.08 * i, 0.05) for i in range(5)]),
    ((0, 0, 0.392), (0, 1.5708, 0), (0, 1, 0), [(0, 0.05, 0, 0.045), (0, 0.09, 0, 0.045)]),
    ((0, 0.093, 0), (0, 0, 0), (0, 0, 1), [(0, 0, 0.05, 0.045), (0, 0, 0.09, 0.045)]),
    ((0, 0, 0.095), (0, 0, 0), (0, 1, 0), [(0, 0.06, 0, 0.04), (0, 0.12, 0, 0.03)]),
)
ARM_START = (0.0, -1.2, 1.4, -0.2, 0.3, 0.0)


def _text(numbers: Any) -> str:
    return " ".join(map(str, numbers))


def arm_urdf() -> str:
    """The arm of six joints."""
    lines = ['<robot name="arm6"><link name="base"/>']
    for i, (origin, rpy, axis, spheres) in enumerate(_ARM, 1):
        lines.append(f'<link name="link{i}">')
        for x, y, z, radius in spheres:
            lines.append(
                f'<collision><origin xyz="{x} {y} {z}"/><geometry><sphere radius="{radius}"/>'
                "</geometry></collision>"
            )
        parent = "base" if i == 1 else f"link{i - 1}"
        lines.append(
            f'</link><joint name="joint{i}" type="revolute"><parent link="{parent}"/>'
            f'<child link="link{i}"/><origin xyz="{_text(origin)}" rpy="{_text(rpy)}"/>'
            f'<axis xyz="{_text(axis)}"/>'
            '<limit lower="-6.28" upper="6.28" effort="1" velocity="3.1"/></joint>'
        )
    return "\n".join([*lines, "</robot>"])


class Cast:
    """A robot, its judge, and where its episodes begin."""

    def __init__(self, name: str):
        if name == "panda":
            self.robot = load_panda()
            self.judge = Judge(ASSETS / "panda" / "panda.urdf", None, self.robot.joint_names)
            self.start = np.array(PROBLEMS["cage_2"]["start"])
        else:
            with tempfile.TemporaryDirectory() as folder:
                urdf = Path(folder) / "arm6.urdf"
                urdf.write_text(arm_urdf())
                self.robot = RobotSpheres(urdf)
                self.judge = Judge(urdf, None, self.robot.joint_names)
            self.start = np.array(ARM_START)
        self.velocity = self.robot.velocity_limits.numpy()

    @property
    def n_joints(self) -> int:
        return self.robot.n_joints

    def is_free(self, joints: np.ndarray, scene: Scene, margin: float) -> np.ndarray:
        """Which joint values (n, n_joints) keep a clearance."""
        return self.clearance(joints, scene) >= margin

    def clearance(self, joints: np.ndarray, scene: Scene) -> np.ndarray:
        """Smallest clearance (n,) [m], to the scene and of the robot with itself."""
        parts = np.array_split(joints, max(1, len(joints) // 500))
        return np.concatenate([self.judge.clearance(part, scene) for part in parts])


def random_scene(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Boxes, cylinders and capsules around a robot, in the layout of files."""
    mapping: dict[str, Any] = {"cuboid": {}, "cylinder": {}, "capsule": {}}
    for i in range(count):
        angle, far = rng.uniform(-np.pi, np.pi), rng.uniform(0.4, 0.9)
        quaternion = rng.standard_normal(4)
        quaternion /= np.linalg.norm(quaternion)
        place = [far * np.cos(angle), far * np.sin(angle), rng.uniform(0.0, 1.0)]
        pose = [*place, *quaternion.tolist()]
        kind = ("cuboid", "cylinder", "capsule")[i % 3]
        if kind == "cuboid":
            item = {"dims": rng.uniform(0.01, 0.4, 3).tolist(), "pose": pose}
        elif kind == "cylinder":
            item = {"radius": rng.uniform(0.02, 0.1), "height": rng.uniform(0.1, 0.6), "pose": pose}
        else:
            half = rng.uniform(0.05, 0.3)
            item = {"radius": rng.uniform(0.02, 0.08), "pose": pose}
            item |= {"base": [0, 0, -half], "tip": [0, 0, half]}
        mapping[kind][f"{kind}_{i}"] = item
    return mapping


def worlds_of(mappings: list[dict[str, Any]], device: str = "cpu") -> MeshWorld:
    """A world with an env for each scene."""
    world = MeshWorld(n_envs=len(mappings), max_obstacles=48, device=device)
    for env, mapping in enumerate(mappings):
        kinds = {kind: mapping.get(kind, {}) for kind in ("cuboid", "cylinder", "capsule")}
        single = MeshWorld.from_mapping(kinds)
        world.load(single.obstacles(), env=env)
    return world


def free_starts(
    cast: Cast, scene: Scene, rng: np.random.Generator, count: int, margin: float
) -> np.ndarray:
    """Joint values (count, n_joints) near the usual start that keep a clearance."""
    found = [cast.start[None]] if cast.is_free(cast.start[None], scene, margin)[0] else []
    while sum(map(len, found)) < count:
        tried = cast.start + rng.uniform(-1.2, 1.2, (4 * count, cast.n_joints))
        low, high = cast.robot.joint_limits.double().numpy().T
        tried = np.clip(tried, low + 0.01, high - 0.01)
        found.append(tried[cast.is_free(tried, scene, margin)])
    return np.concatenate(found)[-count:]


def hostile(kind: str, rng: np.random.Generator, cast: Cast, steps: int, n: int) -> np.ndarray:
    """Velocity commands (steps, n, n_joints)."""
    v, joints = cast.velocity, cast.n_joints
    if kind == "random":  # others every 20 to 200 ms, beyond the limits too
        held = rng.integers(20, 200, n)
        which = np.arange(steps)[:, None] // held
        return rng.uniform(-1.5, 1.5, (steps // 20 + 1, n, joints))[which, np.arange(n)] * v
    if kind == "jumps":  # another one in each step
        return rng.choice([-1.0, 0.0, 1.0], (steps, n, joints)) * v
    if kind == "limits":  # at the limits, turned round now and then
        held = rng.integers(100, 600, n)
        which = np.arange(steps)[:, None] // held
        return rng.choice([-1.0, 1.0], (steps // 100 + 1, n, joints))[which, np.arange(n)] * v
    # straight into something, and then, near contact, at random
    straight = np.broadcast_to(rng.choice([-1.0, 1.0], (n, joints)) * v, (steps, n, joints)).copy()
    half = steps // 2
    straight[half:] = hostile("random", rng, cast, steps - half, n)
    return straight


KINDS = ("random", "jumps", "limits", "straight")


def run(guard: MotionGuard, starts: np.ndarray, commands: np.ndarray) -> dict[str, np.ndarray]:
    """Episodes: joint values and velocities (steps + 1, n, n_joints), and what was said."""
    q = torch.from_numpy(starts.copy())
    v = torch.zeros_like(q)
    record: dict[str, list[np.ndarray]] = {"q": [starts], "v": [0.0 * starts]}
    record |= {"share": [], "breached": [], "rest": []}
    for command in commands:
        step = guard.step(q, v, torch.from_numpy(command))
        q, v = step.joints, step.velocities
        for key, value in zip(
            record, (q, v, step.share, step.breached, step.time_to_rest), strict=True
        ):
            record[key].append(value.numpy())
    return {key: np.stack(values) for key, values in record.items()}

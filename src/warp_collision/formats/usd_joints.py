"""Joints of USD stages: where bodies go if joints have other values; runs in the worker process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from trimesh.transformations import quaternion_matrix, rotation_matrix, translation_matrix

from warp_collision.formats.joint_values import joint_value, require_joint_names
from warp_collision.formats.openusd import errors_name, openusd
from warp_collision.messages import short_repr

_AXES = {"X": (1.0, 0.0, 0.0), "Y": (0.0, 1.0, 0.0), "Z": (0.0, 0.0, 1.0)}
_OPEN = 1e-4  # how far the ends of a loop may be apart [m, of unit vectors]
_STILL = ""  # the body of all that does not move


class _Joint(NamedTuple):
    """A joint between two bodies.

    Attributes:
        name: that of its prim, or its path without the first slash if others have this name.
        bodies: paths of both, which differ.
        frames: (4, 4) of the joint on both bodies, on the stage as it is written.
        axis: (3,) in both frames; None if it has no value.
        limits: lower and upper [rad, or units of the stage].
        slides: whether its value is a length.
        mimic: the schema, of others than OpenUSD, by which it follows another joint; or none.
    """

    name: str
    bodies: tuple[str, str]
    frames: tuple[np.ndarray, np.ndarray]
    axis: tuple[float, float, float] | None
    limits: tuple[float, float]
    slides: bool
    mimic: str

    def step(self, values: Mapping[str, float], metres_per_unit: float) -> np.ndarray:
        """(4, 4) that moves the second body to its value [rad or m], if the first one stays."""
        if self.axis is None or self.name not in values:
            return np.eye(4)
        unit = metres_per_unit if self.slides else 1.0
        limits = self.limits[0] * unit, self.limits[1] * unit
        where = f"joints[{self.name!r}]"
        value = joint_value(where, values[self.name], limits, slides=self.slides) / unit
        turn = rotation_matrix(0.0 if self.slides else value, self.axis)
        slide = translation_matrix(np.multiply(value if self.slides else 0.0, self.axis))
        return self.frames[0] @ slide @ turn @ np.linalg.inv(self.frames[1])


def body_of(prim: Any) -> str:
    """The path of the rigid body that a prim moves with; empty for what stands still."""
    UsdPhysics = openusd("UsdPhysics")
    while prim and not prim.IsPseudoRoot():
        if prim.HasAPI(UsdPhysics.RigidBodyAPI):
            body = UsdPhysics.RigidBodyAPI(prim)
            moves = body.GetRigidBodyEnabledAttr().Get()
            still = not moves or body.GetKinematicEnabledAttr().Get()
            return _STILL if still else str(prim.GetPath())
        prim = prim.GetParent()
    return _STILL


def moved_bodies(
    stage: Any, values: Mapping[str, float], metres_per_unit: float
) -> tuple[dict[str, np.ndarray], list[tuple[str, str]]]:
    """Where bodies go so that joints have values [rad, m]: (4, 4) on the stage, by their paths.

    Also names joints without a value that should follow another one, with the reason.

    What is static or kinematic stays. Of bodies that no joint connects with it those stay that have
    an articulation root, or that are the second body of no joint. A joint without a value keeps
    what it joins together.

    Raises:
        ValueError: a name that is no joint that moves, a value beyond its limits, a wrong joint, or
            a loop of joints that would open.
    """
    UsdPhysics = openusd("UsdPhysics")
    joints = _joints(stage)
    require_joint_names("joints", values, [joint.name for joint in joints if joint.axis])
    steps = [joint.step(values, metres_per_unit) for joint in joints]
    ways: dict[str, list[tuple[str, np.ndarray]]] = defaultdict(list)
    for joint, step in zip(joints, steps, strict=True):
        first, second = joint.bodies
        ways[first].append((second, step))
        ways[second].append((first, np.linalg.inv(step)))
    seconds = {joint.bodies[1] for joint in joints}

    def rank(body: str) -> tuple[bool, bool, bool]:
        prim = stage.GetPrimAtPath(body) if body else None
        is_root = bool(prim) and prim.HasAPI(UsdPhysics.ArticulationRootAPI)
        return body != _STILL, not is_root, body in seconds

    motions: dict[str, np.ndarray] = {}
    for root in sorted(ways, key=rank):
        reached = [] if root in motions else [root]
        motions.setdefault(root, np.eye(4))
        for body in reached:  # grows
            for other, step in ways[body]:
                if other not in motions:
                    motions[other] = motions[body] @ step
                    reached.append(other)
    for joint, step in zip(joints, steps, strict=True):
        first, second = (motions[body] for body in joint.bodies)
        apart = ((first @ step - second) @ joint.frames[1])[:3]
        if np.abs(apart * (1.0, 1.0, 1.0, metres_per_unit)).max() > _OPEN:
            raise ValueError(
                f"joints must keep loops closed, got {dict(values)}, by which {joint.name} opens"
            )
    return motions, [
        (joint.name, f"a joint that follows by {joint.mimic}")
        for joint in joints
        if joint.mimic and joint.name not in values
    ]


def _joints(stage: Any) -> list[_Joint]:
    """The joints of a stage that are enabled and join two bodies, but those of instancers."""
    Usd, UsdGeom, UsdPhysics = openusd("Usd"), openusd("UsdGeom"), openusd("UsdPhysics")
    found: list[Any] = []
    prims = iter(Usd.PrimRange(stage.GetPseudoRoot(), Usd.TraverseInstanceProxies()))
    for prim in prims:
        if prim.IsA(UsdGeom.PointInstancer):
            prims.PruneChildren()
        elif prim.IsA(UsdPhysics.Joint) and UsdPhysics.Joint(prim).GetJointEnabledAttr().Get():
            found.append(prim)
    frames, names = UsdGeom.XformCache(Usd.TimeCode.EarliestTime()), Counter()
    names.update(prim.GetName() for prim in found)
    joints = []
    for prim in found:
        path = str(prim.GetPath()).removeprefix("/")
        name = prim.GetName() if names[prim.GetName()] == 1 else path
        with errors_name(path):
            joint = _joint(stage, frames, name, prim)
        if joint.bodies[0] != joint.bodies[1]:
            joints.append(joint)
    return joints


def _joint(stage: Any, frames: Any, name: str, prim: Any) -> _Joint:
    UsdPhysics = openusd("UsdPhysics")
    base = UsdPhysics.Joint(prim)
    ends = (
        (base.GetBody0Rel(), base.GetLocalPos0Attr(), base.GetLocalRot0Attr()),
        (base.GetBody1Rel(), base.GetLocalPos1Attr(), base.GetLocalRot1Attr()),
    )
    (first, frame), (second, other) = (_end(stage, frames, *end) for end in ends)
    axis, limits = None, (0.0, 0.0)
    slides = prim.IsA(UsdPhysics.PrismaticJoint)
    if slides or prim.IsA(UsdPhysics.RevoluteJoint):
        joint = (UsdPhysics.PrismaticJoint if slides else UsdPhysics.RevoluteJoint)(prim)
        written = str(joint.GetAxisAttr().Get())
        if written not in _AXES:
            raise ValueError(f"its axis must be X, Y or Z, got {short_repr(written)}")
        axis, unit = _AXES[written], 1.0 if slides else np.pi / 180.0  # limits are in degrees
        limits = joint.GetLowerLimitAttr().Get() * unit, joint.GetUpperLimitAttr().Get() * unit
    schemas = prim.GetPrimTypeInfo().GetAppliedAPISchemas()
    mimic = next((schema for schema in schemas if "Mimic" in schema), "")
    return _Joint(name, (first, second), (frame, other), axis, limits, slides, mimic)


def _end(
    stage: Any, frames: Any, target: Any, position: Any, rotation: Any
) -> tuple[str, np.ndarray]:
    """The body at one end of a joint, and the frame (4, 4) of the joint there, which is rigid."""
    body, prim_frame = _STILL, np.eye(4)
    for path in target.GetForwardedTargets()[:1]:  # without one it is the world
        prim = stage.GetPrimAtPath(path)
        if not prim:
            raise ValueError(f"its bodies must be prims of the stage, got {short_repr(str(path))}")
        body = body_of(prim)
        prim_frame = np.array(frames.GetLocalToWorldTransform(prim), np.float64).T
    quaternion, place = rotation.Get(), np.array(position.Get(), np.float64)
    turn = np.array([quaternion.GetReal(), *quaternion.GetImaginary()], np.float64)
    if not (np.isfinite(place).all() and 0.1 < np.linalg.norm(turn) < 10.0):
        raise ValueError(
            f"its positions must be finite and its rotations unit quaternions, got "
            f"{place.tolist()} and {turn.tolist()}"
        )
    linear = prim_frame[:3, :3]
    if not (np.isfinite(prim_frame).all() and np.linalg.det(linear) != 0.0):
        raise ValueError("the transforms of its bodies must be finite and invertible")
    # The position is scaled with the body; the axes are those of its rotation, as physics engines
    # have it. The nearest orthogonal matrix is that rotation, or mirrored.
    left, _, right = np.linalg.svd(linear)
    frame = quaternion_matrix(turn)
    frame[:3, :3] = np.linalg.det(left @ right) * (left @ right) @ frame[:3, :3]
    frame[:3, 3] = linear @ place + prim_frame[:3, 3]
    return body, frame

"""Joints of USD stages: bodies stand where values say, against frames that the test computes."""

import math
from pathlib import Path

import numpy as np
import pytest
from trimesh.transformations import (
    quaternion_from_matrix,
    random_rotation_matrix,
    rotation_matrix,
    translation_matrix,
)

from warp_collision import MeshWorld
from warp_collision.io import LeftOutWarning, load_world_file
from warp_collision.io.placing import matrix_from

pytest.importorskip("pxr", reason="usd-core reads USD: pip install '.[usd]'")
from pxr import Gf, UsdGeom, UsdPhysics  # after the check

from usd_stages import instanced, put, stage_at

CM = 0.01
TO_METRES = np.diag([CM, CM, CM, 1.0])
Y_UP = rotation_matrix(np.pi / 2, [1, 0, 0])
AXES = {"X": (1.0, 0.0, 0.0), "Y": (0.0, 1.0, 0.0), "Z": (0.0, 0.0, 1.0)}


class Cabinet:
    """A stage in centimetres with y up, whose bodies and joints have random frames.

    `frames` are those of the bodies, without their scales, and `anchors` those of the joints.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.rng = path, np.random.default_rng(7)
        self.stage = stage_at(path, CM, "Y")
        self.frames: dict[str, np.ndarray] = {"": np.eye(4)}
        self.scales: dict[str, np.ndarray] = {"": np.eye(4)}
        self.anchors: dict[str, np.ndarray] = {}

    def frame(self) -> np.ndarray:
        return translation_matrix(self.rng.uniform(-50, 50, 3)) @ random_rotation_matrix(
            self.rng.random(3)
        )

    def body(self, path: str, is_rigid: bool = True) -> None:
        """A body of some scale, with a box in it."""
        above = path.rpartition("/")[0]
        frame, prim = self.frame(), UsdGeom.Xform.Define(self.stage, f"/{path}").GetPrim()
        scale = np.diag([*self.rng.uniform(0.5, 2.0, 3), 1.0])
        put(prim, np.linalg.inv(self.frames[above] @ self.scales[above]) @ frame @ scale)
        self.frames[path], self.scales[path] = frame, scale
        if is_rigid:
            UsdPhysics.RigidBodyAPI.Apply(prim)
        box = UsdGeom.Cube.Define(self.stage, f"/{path}/box")
        put(box.GetPrim(), np.linalg.inv(scale) @ np.diag([10.0, 7.0, 4.0, 1.0]))
        UsdPhysics.CollisionAPI.Apply(box.GetPrim())

    def joint(self, path: str, kind: str, first: str, second: str, axis: str = "Z", at=0.0):
        """A joint whose value is `at` [rad or cm] on the stage as it is written."""
        joint = getattr(UsdPhysics, kind).Define(self.stage, f"/{path}")
        anchor = self.anchors[path] = self.frame()
        moved = np.eye(4)
        if kind in ("RevoluteJoint", "PrismaticJoint"):
            joint.CreateAxisAttr(axis)
            moved = rotation_matrix(at, AXES[axis])
            if kind == "PrismaticJoint":
                moved = translation_matrix(at * np.array(AXES[axis]))
        ends = (first, joint.GetBody0Rel(), joint.CreateLocalPos0Attr, joint.CreateLocalRot0Attr)
        self._end(anchor, *ends)
        ends = (second, joint.GetBody1Rel(), joint.CreateLocalPos1Attr, joint.CreateLocalRot1Attr)
        self._end(anchor @ moved, *ends)
        return joint

    def _end(self, anchor: np.ndarray, body: str, target, position, rotation) -> None:
        local = np.linalg.inv(self.frames[body]) @ anchor
        if body:
            target.AddTarget(f"/{body}")
        place = np.linalg.inv(self.scales[body])[:3, :3] @ local[:3, 3]
        position(Gf.Vec3f(*map(float, place)))
        rotation(Gf.Quatf(*map(float, quaternion_from_matrix(local))))

    def found(self, **joints: float) -> dict[str, np.ndarray]:
        """Matrices of the boxes in centimetres on the stage, by the names of their bodies."""
        self.stage.GetRootLayer().Save()
        loaded = load_world_file(self.path, strict=True, joints=joints)
        to_stage = np.linalg.inv(Y_UP @ TO_METRES)
        return {
            name.removesuffix("/box"): to_stage @ matrix_from(np.array(it.pose)) @ TO_METRES
            for name, it in loaded.items()
        }

    def turned(self, joint: str, axis: str, angle: float) -> np.ndarray:
        """A turn (4, 4) of the stage about the axis of a joint."""
        anchor = self.anchors[joint]
        return rotation_matrix(angle, anchor[:3, :3] @ AXES[axis], anchor[:3, 3])

    def slid(self, joint: str, axis: str, length: float) -> np.ndarray:
        return translation_matrix(length * (self.anchors[joint][:3, :3] @ AXES[axis]))


@pytest.fixture
def cabinet(tmp_path: Path) -> Cabinet:
    """A room that stands still, and in it a cabinet with a door and a drawer."""
    made = Cabinet(tmp_path / "cabinet.usda")
    made.body("room", is_rigid=False)
    made.body("room/cabinet")
    made.body("room/cabinet/door")
    made.body("handle")
    made.body("drawer")
    made.body("drawer/knob")
    made.body("lamp")  # that no joint moves
    made.joint("base", "FixedJoint", "room", "room/cabinet")
    hinge = made.joint("room/hinge", "RevoluteJoint", "room/cabinet", "room/cabinet/door", "Y", 0.3)
    hinge.CreateLowerLimitAttr(-10.0)
    hinge.CreateUpperLimitAttr(90.0)
    made.joint("grip", "FixedJoint", "handle", "room/cabinet/door")
    # The first body is the one that moves.
    slide = made.joint("slide", "PrismaticJoint", "drawer", "room/cabinet", "X", -5.0)
    slide.CreateLowerLimitAttr(-40.0)
    slide.CreateUpperLimitAttr(0.0)
    made.joint("turn", "RevoluteJoint", "drawer", "drawer/knob", "Z")
    return made


def assert_frames(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, matrix in expected.items():
        assert found[name][:3, :3] == pytest.approx(matrix[:3, :3], abs=1e-5), name
        assert found[name][:3, 3] == pytest.approx(matrix[:3, 3], abs=1e-3), name  # cm


def test_doors_and_drawers_of_a_stage(cabinet: Cabinet) -> None:
    """Joints that are written at other values than 0; bodies in other bodies, of any scale."""
    expected = {name: frame for name, frame in cabinet.frames.items() if name}
    assert_frames(cabinet.found(), expected)

    turn = cabinet.turned("room/hinge", "Y", 1.2 - 0.3)
    slide = cabinet.slid("slide", "X", 30.0 - 5.0)  # the cabinet is its second body
    drawer = slide @ expected["drawer"]
    expected |= {name: turn @ expected[name] for name in ("room/cabinet/door", "handle")}
    expected["drawer"] = drawer
    knob = slide @ cabinet.turned("turn", "Z", 2.0) @ expected["drawer/knob"]
    expected["drawer/knob"] = knob
    assert_frames(cabinet.found(hinge=1.2, slide=-0.3, turn=2.0), expected)


def test_what_stays_if_nothing_joins_the_world(tmp_path: Path) -> None:
    """What has the articulation root, else what is the second body of no joint, or kinematic."""
    made = Cabinet(tmp_path / "arms.usda")
    for arm in "abc":
        made.body(f"{arm}1")
        made.body(f"{arm}2")
        made.joint(f"{arm}/turn", "RevoluteJoint", f"{arm}1", f"{arm}2", "X")
    UsdPhysics.ArticulationRootAPI.Apply(made.stage.GetPrimAtPath("/b2"))
    kinematic = UsdPhysics.RigidBodyAPI(made.stage.GetPrimAtPath("/c2"))
    kinematic.CreateKinematicEnabledAttr(True)
    expected = {name: frame for name, frame in made.frames.items() if name}
    expected["a2"] = made.turned("a/turn", "X", 1.0) @ expected["a2"]
    expected["b1"] = made.turned("b/turn", "X", -1.0) @ expected["b1"]
    expected["c1"] = made.turned("c/turn", "X", -1.0) @ expected["c1"]
    assert_frames(made.found(**{f"{arm}/turn": 1.0 for arm in "abc"}), expected)


def test_loops_stay_closed(tmp_path: Path) -> None:
    """Two sides of a parallelogram turn by equal angles; other values would open it."""
    made = Cabinet(tmp_path / "bars.usda")
    made.frame = lambda: translation_matrix(made.rng.uniform(-50, 50, 3))
    for body in ("left", "right", "top"):
        made.body(body)
    corners = {"a": (0, 0, 0), "b": (60, 0, 0), "c": (20, 30, 0), "d": (80, 30, 0)}
    ends = {"a": ("", "left"), "b": ("", "right"), "c": ("left", "top"), "d": ("right", "top")}
    for name, corner in corners.items():
        made.frame = lambda corner=corner: translation_matrix(corner)
        made.joint(name, "RevoluteJoint", *ends[name], "Z")
    closed = {"a": 0.5, "b": 0.5, "c": -0.5, "d": -0.5}
    top = translation_matrix(made.turned("a", "Z", 0.5)[:3, :3] @ (20, 30, 0) - (20.0, 30.0, 0.0))
    assert_frames({"top": made.found(**closed)["top"]}, {"top": top @ made.frames["top"]})
    with pytest.raises(ValueError, match=r"bars.usda: joints must keep loops closed, got .* opens"):
        made.found(**{**closed, "b": 0.4})


def test_names_that_are_not_unique_are_paths(cabinet: Cabinet) -> None:
    cabinet.joint("lamps/hinge", "RevoluteJoint", "room", "lamp", "X")
    expected = cabinet.turned("lamps/hinge", "X", 1.0) @ cabinet.frames["lamp"]
    found = cabinet.found(**{"lamps/hinge": 1.0})
    assert_frames({"lamp": found["lamp"]}, {"lamp": expected})
    with pytest.raises(ValueError, match=r"got \['hinge'\]; there is .*'room/hinge'"):
        cabinet.found(hinge=1.0)


def test_instances_move_with_their_instancer(cabinet: Cabinet) -> None:
    """The prototype is elsewhere in the cabinet, which moves too."""
    path = "room/cabinet/door/many"
    instanced(cabinet.stage, "/drawer/knob/box", [0, 0], f"/{path}")
    before = cabinet.found()
    after = cabinet.found(hinge=1.0, slide=-0.2, turn=0.5)
    for name in (f"{path}/0", f"{path}/1"):
        expected = cabinet.turned("room/hinge", "Y", 0.7) @ before[name]
        assert_frames({name: after[name]}, {name: expected})


@pytest.mark.parametrize(
    ("joints", "error", "text"),
    [
        ({"hing": 0.1}, ValueError, r"joints must be joints that move, got \['hing'\].*'hinge'"),
        ({"grip": 0.1}, ValueError, r"joints must be joints that move, got \['grip'\]"),
        ({"off": 0.1}, ValueError, r"joints must be joints that move, got \['off'\]"),
        (
            {"hinge": 1.6},
            ValueError,
            r"joints\['hinge'\] must be within the limits -0.17.* to 1.57",
        ),
        ({"hinge": 80}, ValueError, "got 80; in degrees?"),
        ({"slide": -0.5}, ValueError, r"joints\['slide'\] must be within the limits -0.4 to 0 m"),
        ({"turn": math.inf}, ValueError, r"joints\['turn'\] must be finite, got inf"),
        ({"turn": "open"}, TypeError, r"joints\['turn'\] must be a number, got str"),
    ],
)
def test_wrong_values(
    cabinet: Cabinet, joints: dict[str, float], error: type[Exception], text: str
) -> None:
    off = cabinet.joint("off", "RevoluteJoint", "room", "lamp")
    off.CreateJointEnabledAttr(False)
    with pytest.raises(error, match=text):
        cabinet.found(**joints)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (
            lambda joint: joint.GetBody1Rel().SetTargets(["/no"]),
            "bodies must be prims of the stage",
        ),
        (lambda joint: joint.CreateAxisAttr("W"), "its axis must be X, Y or Z, got 'W'"),
        (lambda joint: joint.CreateLocalRot1Attr(Gf.Quatf(0.0)), "its rotations unit quaternions"),
        (lambda joint: joint.CreateLocalPos0Attr(Gf.Vec3f(math.nan)), "positions must be finite"),
    ],
)
def test_wrong_joints(cabinet: Cabinet, spoil, text: str) -> None:
    spoil(UsdPhysics.RevoluteJoint(cabinet.stage.GetPrimAtPath("/room/hinge")))
    cabinet.found()  # nothing asks for joints
    with pytest.raises(ValueError, match=f"cabinet.usda: room/hinge: .*{text}"):
        cabinet.found(turn=0.1)


def test_a_joint_that_follows_by_another_schema_is_named(cabinet: Cabinet) -> None:
    prim = cabinet.stage.GetPrimAtPath("/turn")
    prim.AddAppliedSchema("PhysxMimicJointAPI:rotZ")
    cabinet.stage.GetRootLayer().Save()
    with pytest.warns(LeftOutWarning, match=r"turn \(a joint that follows by Physx"):
        world = MeshWorld.from_file(cabinet.path, device="cpu", joints={"hinge": 0.1})
    assert len(world.names()) == 7

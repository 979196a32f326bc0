"""An arm among boxes, and what cameras see of both: nine rays in each pixel, in float64."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
import warp as wp

import warp_collision as wc
from benchmarks import problems
from benchmarks.scenes import PANDA
from camera_images import SUB_RAYS, Pinhole
from depth_scenes import look
from path_judge import Judge, Obstacle, Scene
from warp_collision.examples import load_panda

BOUNDS, VOXEL = ((-1.0, -1.0, -0.1), (1.0, 1.0, 1.3)), 0.02  # [m]
FARTHEST = 4.0  # [m]
CAMERA = Pinhole(520.0, 480, 640)
EYES, MIDDLE = ((1.5, -0.9, 1.0), (1.5, 1.0, 1.2), (-0.7, 1.2, 1.3)), (0.2, 0.0, 0.4)
POSES = torch.tensor(  # of the arm while images are taken
    [
        [0.0, -0.8, 0.0, -2.2, 0.0, 1.5, 0.8],
        [1.2, -0.3, 0.2, -1.9, 0.3, 1.8, 0.0],
        [-1.3, 0.1, -0.3, -1.7, -0.4, 2.2, 1.2],
    ]
)
UR5_POSES = torch.tensor(
    [
        [0.0, -1.6, 1.4, -1.4, -1.57, 0.0],
        [1.3, -1.5, 1.3, -1.2, -1.2, 0.5],
        [-1.4, -1.4, 1.6, -1.9, -1.7, -0.6],
    ]
)


def _turned(x: float, y: float, z: float, angle: float, axis: int = 2) -> list[float]:
    """A pose turned around an axis [rad]."""
    quaternion = [np.cos(0.5 * angle), 0.0, 0.0, 0.0]
    quaternion[1 + axis] = np.sin(0.5 * angle)
    return [x, y, z, *map(float, quaternion)]


# A table with a shelf, boxes, a post, a leaning plate and a bar above; none thinner than 1 cm.
_CUBOIDS: dict[str, tuple[tuple[float, float, float], list[float]]] = {
    "table": ((1.9, 1.9, 0.04), _turned(0.0, 0.0, -0.09, 0.0)),
    "shelf back": ((0.02, 0.7, 0.63), _turned(0.86, 0.0, 0.245, 0.1)),
    "shelf board": ((0.3, 0.7, 0.02), _turned(0.7, -0.01, 0.3, 0.1)),
    "shelf side": ((0.3, 0.02, 0.63), _turned(0.67, 0.36, 0.245, 0.1)),
    "box 1": ((0.2, 0.15, 0.28), _turned(0.45, -0.5, 0.07, 0.5)),
    "box 2": ((0.16, 0.3, 0.15), _turned(0.1, 0.6, 0.005, -0.7)),
    "box 3": ((0.25, 0.25, 0.43), _turned(-0.55, -0.35, 0.145, 0.3)),
    "post": ((0.03, 0.03, 0.73), _turned(0.35, 0.45, 0.295, 0.4)),
    "plate": ((0.3, 0.01, 0.3), _turned(-0.2, -0.65, 0.1, 0.35, 0)),
    "bar": ((0.8, 0.04, 0.04), _turned(0.1, -0.45, 0.7, -0.3)),
    "cupboard": ((0.35, 0.5, 0.83), _turned(-0.5, 0.4, 0.345, 0.4)),
    "lamp": ((0.3, 0.3, 0.1), _turned(0.4, 0.25, 0.95, 0.6)),
}
SCENE = {"cuboid": {name: {"dims": dims, "pose": pose} for name, (dims, pose) in _CUBOIDS.items()}}


@wp.struct
class Body:
    """A box at a pose, or a ball."""

    turn: wp.mat33d  # from the world
    center: wp.vec3d  # [m]
    half: wp.vec3d  # half edges [m]; of a ball its radius, 0, 0
    reach: wp.float64  # of all of it around the center [m]


@wp.func
def meets(body: Body, eye: wp.vec3d, way: wp.vec3d) -> wp.float64:
    """Where a ray enters a body, in lengths of `way`; 9 m where it does not."""
    start = body.turn * (eye - body.center)
    along = body.turn * way
    found = wp.float64(9.0)
    zero = wp.float64(0.0)
    if body.half[1] == zero:
        square = wp.dot(along, along)
        middle = wp.dot(start, along)
        room = middle * middle - square * (wp.dot(start, start) - body.half[0] * body.half[0])
        enter = (-middle - wp.sqrt(wp.max(room, zero))) / square
        return wp.where(room > zero and enter > zero, enter, found)
    enter = zero
    leave = found
    for axis in range(3):
        inverse = wp.float64(1.0) / wp.where(along[axis] == zero, wp.float64(1e-12), along[axis])
        first = (-body.half[axis] - start[axis]) * inverse
        second = (body.half[axis] - start[axis]) * inverse
        enter = wp.max(enter, wp.min(first, second))
        leave = wp.min(leave, wp.max(first, second))
    return wp.where(enter < leave and enter > zero, enter, found)


@wp.kernel(enable_backward=False)
def render(
    bodies: wp.array[Body],
    eye: wp.vec3d,
    rotation: wp.mat33d,
    lens: wp.vec3d,  # focal length, and the middle of the image
    depth: wp.array4d[wp.float32],  # (height, 3, width, 3)
):
    """Depths of the first surface along the nine rays of a pixel."""
    row, column = wp.tid()
    third = wp.float64(1.0) / wp.float64(3.0)
    one = wp.float64(1.0)
    for side in range(9):
        depth[row, side / 3, column, side % 3] = 9.0
    x = (wp.float64(column) - lens[1]) / lens[0]
    y = (wp.float64(row) - lens[2]) / lens[0]
    middle = wp.normalize(rotation * wp.vec3d(x, y, one))
    for i in range(bodies.shape[0]):
        to = bodies[i].center - eye
        beside = wp.length(to - wp.dot(to, middle) * middle)
        if beside < bodies[i].reach + wp.length(to) / lens[0]:
            for side in range(9):
                a = x + third * wp.float64(side % 3 - 1) / lens[0]
                b = y + third * wp.float64(side / 3 - 1) / lens[0]
                found = meets(bodies[i], eye, rotation * wp.vec3d(a, b, one))
                before = depth[row, side / 3, column, side % 3]
                depth[row, side / 3, column, side % 3] = wp.min(before, wp.float32(found))


class Image(NamedTuple):
    """What a camera sees.

    Attributes:
        fine: (height, 3, width, 3) float32 depths of nine rays in each pixel [m].
        camera: its lens.
        pose: (4, 4) of the optical frame.
        joints: (n_joints,) of the robot.
    """

    fine: np.ndarray
    camera: Pinhole
    pose: np.ndarray
    joints: torch.Tensor


def bodies_of(scene: Scene, spheres: np.ndarray) -> wp.array:
    """Boxes of a scene and spheres (n, 4) of a robot."""
    found = []
    for obstacle in scene.obstacles:
        found.append(_body(obstacle))
    for *center, radius in spheres[spheres[:, 3] > 0.0]:
        ball = Body()
        ball.turn, ball.center = wp.mat33d(*np.eye(3).ravel()), wp.vec3d(*center)
        ball.half, ball.reach = wp.vec3d(radius, 0.0, 0.0), radius
        found.append(ball)
    return wp.array(found, dtype=Body, device="cpu")


def _body(obstacle: Obstacle) -> Any:
    box = Body()
    box.turn, box.center = wp.mat33d(*obstacle.rotation.T.ravel()), wp.vec3d(*obstacle.position)
    half = 0.5 * np.array(obstacle.dimensions)
    box.half, box.reach = wp.vec3d(*half), float(np.linalg.norm(half))
    return box


def photograph(
    scene: Scene, judge: Judge, joints: torch.Tensor, pose: np.ndarray, camera: Pinhole = CAMERA
) -> Image:
    """An image (height, 3, width, 3) of the boxes, and of the robot where its joints are."""
    centers = judge.centers(joints.double().numpy()[None])[0]
    spheres = np.column_stack((centers, judge.radii))
    shape = camera.height, SUB_RAYS, camera.width, SUB_RAYS
    depth = wp.zeros(shape, dtype=wp.float32, device="cpu")
    lens = camera.focal, 0.5 * (camera.width - 1), 0.5 * (camera.height - 1)
    given = [wp.vec3d(*pose[:3, 3]), wp.mat33d(*pose[:3, :3].ravel()), wp.vec3d(*lens), depth]
    size = camera.height, camera.width
    wp.launch(render, size, [bodies_of(scene, spheres), *given], device="cpu")
    return Image(depth.numpy(), camera, pose, joints)


class Studio(NamedTuple):
    """The robot among its obstacles, and what is known of configurations.

    Attributes:
        robot: a Panda or a UR5.
        base: its link that no joint moves.
        poses: (3, n_joints) while images are taken.
        judge: of its paths.
        scene: for the judge.
        joints: (n, n_joints) configurations within limits.
        touches: (n,) whether they touch an obstacle, as coal says.
        centers: (n, n_spheres, 3) [m].
        margin: around the arm where it was: it fits there [m].
    """

    robot: wc.RobotSpheres
    base: str
    poses: torch.Tensor
    judge: Judge
    scene: Scene
    joints: torch.Tensor
    touches: np.ndarray
    centers: np.ndarray
    margin: float = 0.02

    @classmethod
    def of_panda(cls, count: int) -> Studio:
        """The Panda, and so many random configurations."""
        return cls.build(load_panda(), PANDA, "panda_link0", POSES, count)

    @classmethod
    def of_ur5(cls, count: int) -> Studio:
        """A UR5 with a gripper, of vamp-planner, at a height of 20 cm instead of 91."""
        text = (problems.robot_folder("ur5") / "ur5_spherized.urdf").read_text()
        with TemporaryDirectory() as folder:
            urdf = Path(folder) / "ur5.urdf"
            urdf.write_text(text.replace("0.0 0.0 0.9144", "0 0 0.2"))
            robot = wc.RobotSpheres(urdf)
            return cls.build(robot, urdf, "base_link", UR5_POSES, count)

    @classmethod
    def build(
        cls, robot: wc.RobotSpheres, urdf: Path, base: str, poses: torch.Tensor, count: int
    ) -> Studio:
        """Random configurations, each of them judged."""
        judge, scene = Judge(urdf, None, robot.joint_names), Scene.from_mapping(SCENE)
        low, high = judge.limits.T
        joints = np.random.default_rng(7).uniform(low, high, (count, len(low)))
        joints = torch.tensor(joints, dtype=torch.float32)
        rows = joints.double().numpy()
        touches = np.array([judge.judge(row[None], scene).world < 0.0 for row in rows])
        return cls(robot, base, poses, judge, scene, joints, touches, judge.centers(rows))

    def look_around(self) -> list[Image]:
        """Three cameras at three poses of the arm."""
        views = [look(np.array(eye), np.array(MIDDLE)) for eye in EYES]
        return [
            photograph(self.scene, self.judge, joints, pose)
            for joints in self.poses
            for pose in views
        ]

    @property
    def room(self) -> float:
        """Least distance of the arm to an obstacle while images are taken [m]."""
        rows = self.poses.double().numpy()
        return min(self.judge.judge(row[None], self.scene).world for row in rows)

    @property
    def stands(self) -> list[tuple[str, str]]:
        """The base stands on what was seen; noise may raise that by some voxels."""
        return [(self.base, "seen"), (self.base, "never seen")]

    def can_be_seen(self, images: list[Image]) -> np.ndarray:
        """(n,) configurations of which all is where a camera sees, or within the margin of the arm.

        That is asked of the center of each sphere and of 26 points of it.
        """
        sides = np.stack(np.meshgrid(*[(-1.0, 0.0, 1.0)] * 3), axis=-1).reshape(-1, 3)
        sides /= np.maximum(np.linalg.norm(sides, axis=1), 1.0)[:, None]
        points = self.centers[:, :, None] + sides * self.judge.radii[:, None, None]
        known = np.zeros(points.shape[:-1], bool)
        for image in images:
            known |= _is_before(image, points)
        for joints in {image.joints for image in images}:
            centers = self.judge.centers(joints.double().numpy()[None])[0]
            for center, radius in zip(centers, self.judge.radii, strict=True):
                away = ((points - center) ** 2).sum(axis=-1)
                known |= away <= (radius + self.margin) ** 2
        return known.all(axis=(1, 2))


def _is_before(image: Image, points: np.ndarray) -> np.ndarray:
    """Whether points (..., 3) are before all that the nearest pixel sees."""
    nearest = image.fine.min(axis=(1, 3))
    at = (points - image.pose[:3, 3]) @ image.pose[:3, :3]
    height, width = nearest.shape
    with np.errstate(divide="ignore", invalid="ignore"):
        pixel = image.camera.focal * at[..., :2] / at[..., 2:]
    column = np.rint(np.nan_to_num(pixel[..., 0]) + 0.5 * (width - 1))
    row = np.rint(np.nan_to_num(pixel[..., 1]) + 0.5 * (height - 1))
    inside = (at[..., 2] > 0.0) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    found = np.zeros(inside.shape, bool)
    depth = nearest[row[inside].astype(int), column[inside].astype(int)]
    found[inside] = at[inside][:, 2] < depth
    return found

"""Native functions of lanes beside their scalar twins, on random inputs."""

import numpy as np
import pytest
import torch
import warp as wp

from joint_paths import load_crane
from warp_collision import Capsule, Cuboid, Cylinder, MeshWorld, Sphere
from warp_collision.devices import CPU
from warp_collision.examples import load_panda
from warp_collision.kernels.compiling import OPTIONS
from warp_collision.kernels.forward_kinematics import FramePose, point_in_world, root_pose
from warp_collision.kernels.guard_check import write_bounds
from warp_collision.kernels.guard_step import address_of
from warp_collision.kernels.lanes.bodies import balls_near_shape, boxes_near_lanes
from warp_collision.kernels.lanes.configurations import (
    joints_from,
    lanes_of,
    row_from,
    scratch_bytes,
)
from warp_collision.kernels.lanes.frames import Lanes, place_lanes, pose_of_lane, write_pose
from warp_collision.kernels.lanes.pairs import (
    PAIR_ROUNDING,
    pair_touches_in_lane,
    spheres_touch_spheres,
)
from warp_collision.kernels.mesh_record import distance_to_box, load_exact
from warp_collision.kernels.robot_motion import (
    MovingFrame,
    Robot,
    RobotBody,
    acceleration_bound,
    body_of,
    resting_root,
    segment_of,
    tracking_deviation,
    write_frames,
    write_root,
)
from warp_collision.kernels.robot_pairs import BodyPair
from warp_collision.kernels.scene_walk import Scene, load_obstacle
from warp_collision.kernels.shape_distance import height_over_shape
from warp_collision.launching.launch import launch
from warp_collision.queries.evaluate import scene_of

wp.set_module_options(OPTIONS)


@wp.func
def block_of(
    joints: wp.array3d[wp.float32], robot: Robot, scratch: wp.array2d[wp.uint8], block: int
) -> Lanes:
    """Lanes of the eight configurations of a block, with the root at the origin."""
    lanes = lanes_of(robot, row_from(scratch, block))
    lanes.joints = joints_from(joints, 8 * block)
    lanes.n_joints = joints.shape[2]
    lanes.count = 8
    for lane in range(8):
        write_pose(lanes, lane, robot.n_frames, root_pose())
    return place_lanes(robot, lanes)


@wp.kernel
def frames_of_lanes(
    joints: wp.array3d[wp.float32],  # (1, 8 n, n_joints)
    robot: Robot,
    scratch: wp.array2d[wp.uint8],
    slack: wp.array[wp.float32],  # (n,)
    by_lanes: wp.array4d[wp.float32],  # (n, n_frames, 12, 8)
    by_scalars: wp.array3d[FramePose],  # (n, n_frames, 8)
):
    block = wp.tid()
    lanes = block_of(joints, robot, scratch, block)
    slack[block] = lanes.slack
    rows = wp.array(ptr=lanes.frames, shape=(robot.n_frames, 12, 8), dtype=wp.float32)
    for k in range(robot.n_frames):
        for lane in range(8):
            by_scalars[block, k, lane] = pose_of_lane(robot, lanes, lane, k)
            for i in range(12):
                by_lanes[block, k, i, lane] = rows[k, i, lane]


@wp.kernel
def pairs_in_lanes(
    joints: wp.array3d[wp.float32],  # (1, 8 n, n_joints)
    robot: Robot,
    body_pairs: wp.array[BodyPair],
    left_out: wp.array[wp.vec2i],
    scratch: wp.array2d[wp.uint8],
    by_lanes: wp.array2d[wp.uint32],  # (n, n_pairs)
    by_scalars: wp.array2d[wp.uint32],
):
    block, k = wp.tid()
    lanes = block_of(joints, robot, scratch, block)
    bodies = wp.array(ptr=robot.bodies, shape=(robot.n_bodies,), dtype=RobotBody)
    margin = 2.0 * lanes.slack + PAIR_ROUNDING * lanes.far
    pair = body_pairs[k]
    by_lanes[block, k] = spheres_touch_spheres(
        pair, left_out, bodies, robot, lanes, margin, wp.uint32(255)
    )
    mask = wp.uint32(0)
    for lane in range(8):
        if pair_touches_in_lane(pair, left_out, robot, lanes, lane):
            mask |= wp.uint32(1) << wp.uint32(lane)
    by_scalars[block, k] = mask


@wp.kernel
def near_shapes_and_boxes(
    scene: Scene,
    corners: wp.array3d[wp.float32],  # (2, 6, 8) boxes, as in `box_blocks`
    points: wp.array3d[wp.float32],  # (n, 5, 8) x, y, z, reach
    near: wp.array2d[wp.uint32],  # (n, slots)
    heights: wp.array3d[wp.float32],  # (n, slots, 8)
    boxes: wp.array[wp.uint32],  # (n,)
    distances: wp.array2d[wp.float32],  # (n, 16)
):
    block = wp.tid()
    lanes = Lanes()
    lanes.balls = wp.uint64(points[block].ptr)
    for slot in range(near.shape[1]):
        obstacle = load_obstacle(scene, slot)
        exact = load_exact(obstacle.record)
        pose = obstacle.mesh_from_world
        near[block, slot] = balls_near_shape(exact, pose, lanes, 0, 0.0, wp.uint32(255))
        for lane in range(8):
            p = wp.vec3(points[block, 0, lane], points[block, 1, lane], points[block, 2, lane])
            heights[block, slot, lane] = height_over_shape(exact, wp.transform_point(pose, p))
    asked = wp.uint32(119)
    boxes[block] = boxes_near_lanes(wp.uint64(corners.ptr), 13, lanes, 0, asked)
    for k in range(13):
        c = corners[k / 8]
        i = k % 8
        least = wp.float32(1.0e9)
        for lane in range(8):
            p = wp.vec3(points[block, 0, lane], points[block, 1, lane], points[block, 2, lane])
            low, high = wp.vec3(c[0, i], c[1, i], c[2, i]), wp.vec3(c[3, i], c[4, i], c[5, i])
            if lane != 3 and lane != 7:
                least = wp.min(least, distance_to_box(p, low, high))
        distances[block, k] = least


@wp.kernel
def motion_of_bodies(
    points: wp.array3d[wp.float32],  # (n, degree + 1, n_joints)
    robot: Robot,
    errors: wp.array[wp.float32],  # (n_joints,)
    frames: wp.array2d[MovingFrame],  # (n, 2 n_frames)
    by_lanes: wp.array2d[wp.vec4],  # (n, n_bodies)
    by_scalars: wp.array2d[wp.vec4],
):
    row = wp.tid()
    half = 0.25
    asked = wp.where(robot.n_bodies > 8, wp.uint64(0xFF00), wp.uint64(0xFF))
    segment = segment_of(robot, points, row, 0, 1, frames[row])
    segment.errors = address_of(errors)
    write_root(segment, resting_root())
    write_frames(segment, 0.5, half)
    write_bounds(segment, asked, half, by_lanes[row])
    for b in range(robot.n_bodies):
        body = body_of(robot, b)
        center = point_in_world(segment.frames[body.frame].frame_pose, body.center)
        off = tracking_deviation(segment, body, center, 0, half)
        bound = acceleration_bound(segment, body, center, 0, half)
        by_scalars[row, b] = wp.vec4(bound, off[0], off[1], 0.0)


def bits(masks: torch.Tensor, count: int) -> np.ndarray:
    """(..., count) bool of unsigned masks."""
    return (masks.numpy()[..., None] >> np.arange(count)) & 1 == 1


@pytest.mark.parametrize("load", [load_panda, load_crane])
@pytest.mark.parametrize("size", [2.0, 50.0, 1000.0, 2500.0])
def test_frames_are_within_the_slack(load, size: float) -> None:
    robot, n = load(), 200
    rng = np.random.default_rng(int(size))
    joints = torch.from_numpy(rng.uniform(-size, size, (1, 8 * n, robot.n_joints))).float()
    tables = robot.layout.tables(CPU)
    count = len(tables.frames)
    scratch = torch.empty((n, scratch_bytes(count, tables.n_bodies, 0)), dtype=torch.uint8)
    slack = torch.empty(n)
    lanes, scalars = torch.empty((n, count, 12, 8)), torch.empty((n, count, 8, 12))
    launch(frames_of_lanes, (n,), joints, tables, scratch, slack, lanes, scalars, device=CPU)
    off = (lanes.double() - scalars.double().transpose(2, 3)).norm(dim=2)
    assert (off.amax((1, 2)) <= slack.double()).all()
    # Sines of angles that float32 rounds the same way differ by a few units.
    assert off[:, 1].max() < 1.2e-6 + 1.2e-7 * size * (load is load_crane)


def test_shapes_and_boxes() -> None:
    rng = np.random.default_rng(1)
    world, n = MeshWorld(device=CPU), 400
    for i, shape in enumerate((Cuboid((0.3, 0.5, 0.2)), Sphere(0.3), Capsule(0.1, 0.4))):
        world.add(f"{i}", shape, rng.normal(size=7))
        world.add(f"c{i}", Cylinder(0.2, 0.3), rng.normal(size=7))
    low = rng.uniform(-1.0, 1.0, (2, 3, 8))
    corners = np.concatenate((low, low + rng.uniform(0.0, 0.4, (2, 3, 8))), axis=1)
    points = torch.from_numpy(0.6 * rng.normal(size=(n, 5, 8))).float()
    reach = torch.from_numpy(rng.uniform(0.01, 0.5, n)).float()
    points[:, 3] = reach[:, None]
    tables = scene_of(world).completed()
    near, heights = torch.zeros((n, 6), dtype=torch.uint32), torch.empty((n, 6, 8))
    boxes, distances = torch.zeros(n, dtype=torch.uint32), torch.full((n, 16), 1e9)
    outputs = near, heights, boxes, distances
    corners = torch.from_numpy(corners).float()
    launch(near_shapes_and_boxes, (n,), tables, corners, points, *outputs, device=CPU)
    for found, expected in ((bits(near, 8), heights), (bits(boxes, 16), distances)):
        margin = (expected - reach.reshape(-1, *(1,) * (expected.ndim - 1))).numpy()
        assert found[margin < -3e-6].all()
        assert not found[margin > 3e-6].any()
        assert 0.02 < found.mean() < 0.9


@pytest.mark.parametrize("load", [load_panda, load_crane])
def test_pairs(load) -> None:
    robot, n = load(), 60
    rng = np.random.default_rng(2)
    low, high = np.clip(robot.joint_limits.numpy().T, -3.0, 3.0)
    joints = torch.from_numpy(rng.uniform(low, high, (1, 8 * n, robot.n_joints))).float()
    tables = robot.layout.tables(CPU)
    pairs = robot.layout.pair_tables(robot.default_pairs, CPU)
    size = scratch_bytes(len(tables.frames), tables.n_bodies, len(tables.spheres))
    scratch = torch.empty((n, size), dtype=torch.uint8)
    lanes = torch.zeros((n, len(pairs[0])), dtype=torch.uint32)
    scalars = torch.zeros_like(lanes)
    launch(
        pairs_in_lanes, tuple(lanes.shape), joints, tables, *pairs, scratch, lanes, scalars,
        device=CPU,
    )  # fmt: skip
    certain, maybe, expected = bits(lanes, 8), bits(lanes, 16)[..., 8:], bits(scalars, 8)
    assert expected[certain].all()
    assert not expected[~certain & ~maybe].any()
    assert certain.any()
    assert maybe.mean() < 1e-3


@pytest.mark.parametrize("degree", [1, 3])
@pytest.mark.parametrize("load", [load_panda, load_crane])
def test_bounds_of_motion(load, degree: int) -> None:
    robot, n = load(), 40
    rng = np.random.default_rng(degree)
    shape = n, degree + 1, robot.n_joints
    points = torch.from_numpy(rng.uniform(-0.6, 0.6, shape)).float()
    errors = torch.from_numpy(rng.uniform(0.0, 0.01, robot.n_joints)).float()
    tables = robot.layout.tables(CPU)
    frames = torch.empty((n, 2 * len(tables.frames), 18))
    lanes, scalars = torch.full((2, n, tables.n_bodies, 4), torch.nan)
    launch(motion_of_bodies, (n,), points, tables, errors, frames, lanes, scalars, device=CPU)
    first = 8 if tables.n_bodies > 8 else 0  # only the last bodies are asked for
    assert lanes[:, :first].isnan().all()
    lanes, scalars = lanes[:, first:, :3], scalars[:, first:, :3]
    assert torch.equal(lanes, scalars)
    assert (scalars.amax((0, 1)) > 0.005).all()

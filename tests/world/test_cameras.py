"""What depth images say of a known scene: surfaces that clouds cover, and space that is free."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from cases import mostly_slow
from depth_scenes import LENS, SIZE, cameras, damaged, render, scene, world_of
from warp_collision import (
    HeightField,
    MeshWorld,
    OccupancyMap,
    PointCloud,
    UnitsWarning,
    VoxelGrid,
    in_collision,
    joint_path_in_collision,
    signed_distance,
)
from warp_collision.examples import load_panda

BOXES = scene()
BOUNDS = ((0.2, -0.7, -0.1), (1.6, 0.7, 0.7))


def image(index: int = 0, count: int = 1) -> tuple[Any, Any, Any]:
    """A depth image of the scene with its camera."""
    pose = cameras(count)[index]
    return render(BOXES, pose)[0], LENS, pose


@pytest.mark.parametrize("stride", [1, 3])
def test_a_cloud_covers_what_its_pixels_saw(stride: int) -> None:
    """Each point of the surface that a finer image sees, where pixels are not at an edge."""
    depth, lens, pose = image()
    cloud = PointCloud.from_depth(depth, lens, pose, stride=stride, noise=0.0, noise_per_metre=0.0)
    finer = 5
    fine, cosine = render(BOXES, pose, finer)
    surface = (fine > 0.0) & (cosine > np.cos(1.3))
    # A pixel and all that it stands for is of one box and one side.
    height, width = SIZE
    size = stride * finer
    rows, columns = height // stride * size, width // stride * size
    blocks = np.arccos(np.clip(cosine, 0, 1))[:rows, :columns]
    blocks = blocks.reshape(height // stride, size, width // stride, size)
    steps = fine[:rows, :columns].reshape(blocks.shape)
    ratio = steps.max(axis=(1, 3)) / np.maximum(steps.min(axis=(1, 3)), 1e-9)
    smooth = (np.ptp(blocks, axis=(1, 3)) < 0.05) & (ratio < 1.1)
    whole = np.zeros(fine.shape, bool)
    whole[:rows, :columns] = np.repeat(np.repeat(smooth, size, axis=0), size, axis=1)
    from depth_scenes import rays

    points = pose[:3, 3] + rays(pose, finer) * fine[..., None]
    points = points[surface & whole]
    assert len(points) > 50_000
    gap = cKDTree(cloud.points).query(points)[0]
    nearest = cKDTree(cloud.points).query(points)[1]
    assert (gap <= cloud.radii[nearest] + 1e-6).mean() > 0.999
    world = MeshWorld(device="cpu")
    world.add("cloud", cloud)
    found = signed_distance(torch.tensor(points[::7]).float(), world).distance
    assert (found <= 1e-5).all()


def test_counts_of_pixels() -> None:
    depth, lens, pose = image()
    with_far = PointCloud.from_depth(depth, lens, pose, max_depth=1.2).counts
    assert with_far is not None
    assert with_far.no_return == (depth == 0.0).sum()
    assert with_far.too_far == (depth > 1.2).sum()
    kept = depth.size - with_far.no_return - with_far.too_far - with_far.flying
    assert with_far.points == kept
    flying = damaged(depth, np.random.default_rng(1))
    assert PointCloud.from_depth(flying, lens, pose).counts.flying > with_far.flying  # pyright: ignore
    millimetres = (1000.0 * depth).astype(np.uint16)
    same = PointCloud.from_depth(millimetres, lens, pose, depth_scale=0.001)
    plain = PointCloud.from_depth(depth, lens, pose)
    assert len(same) == len(plain)
    np.testing.assert_allclose(same.points, plain.points, atol=2e-3)
    matrix = np.array([[LENS[0], 0, LENS[2]], [0, LENS[1], LENS[3]], [0, 0, 1]])
    np.testing.assert_array_equal(PointCloud.from_depth(depth, matrix, pose).points, plain.points)
    assert len(PointCloud.from_depth(depth, lens, pose, stride=4)) < len(plain) / 14


def test_flying_pixels_are_dropped() -> None:
    """A plate before a wall, with a column of pixels half way between."""
    depth = np.full((40, 60), 2.0)
    depth[:, :30] = 1.0
    depth[:, 30] = np.random.default_rng(1).uniform(1.15, 1.85, 40)
    cloud = PointCloud.from_depth(depth, (130.0, 130.0, 29.5, 19.5), np.eye(4), max_angle=1.2)
    assert cloud.counts is not None
    assert 35 <= cloud.counts.flying <= 40
    assert not ((cloud.points[:, 2] > 1.1) & (cloud.points[:, 2] < 1.9)).any()


def test_the_robot_is_left_out_by_link() -> None:
    robot = load_panda()
    joints = torch.zeros(robot.n_joints)
    spheres = robot.spheres(joints).numpy()
    spheres = spheres[spheres[:, 3] > 0.0]
    eye = np.array([1.6, 0.3, 0.6])
    from depth_scenes import look

    pose = look(eye, np.array([0.0, 0.0, 0.4]))
    fx, fy, cx, cy = LENS
    x, y = np.meshgrid((np.arange(160) - cx) / fx, (np.arange(120) - cy) / fy)
    way = np.stack((x, y, np.ones_like(x)), axis=-1) @ pose[:3, :3].T
    depth = np.full(SIZE, 4.0)
    square = (way**2).sum(axis=-1)
    for *center, radius in spheres:
        to = np.array(center) - eye
        middle = way @ to / square
        gap = (to**2).sum() - middle**2 * square
        hit = gap < radius**2
        depth[hit] = np.minimum(depth, middle - np.sqrt(np.maximum(radius**2 - gap, 0) / square))[
            hit
        ]
    seen = depth < 4.0
    assert seen.sum() > 800
    cloud = PointCloud.from_depth(
        depth, LENS, pose, robot=robot, joints=joints, robot_margin=0.01, max_angle=1.5
    )
    assert cloud.counts is not None
    assert sum(cloud.counts.robot.values()) + cloud.counts.flying >= seen.sum()
    assert {"panda_link2", "panda_hand"} <= {*cloud.counts.robot}
    away = np.linalg.norm(cloud.points[:, None] - spheres[:, :3], axis=2) - spheres[:, 3]
    assert away.min() > 0.01
    seen_map = OccupancyMap(((-0.5, -0.5, 0.0), (1.0, 0.5, 1.0)), 0.02)
    counts = seen_map.integrate(
        depth, LENS, pose, robot=robot, joints=joints, robot_margin=0.01, max_angle=1.5
    )
    assert counts.robot == cloud.counts.robot
    assert not (seen_map.states == 2).any()
    with pytest.raises(ValueError, match="joints must be given with a robot"):
        seen_map.integrate(depth, LENS, pose, robot=robot)


@pytest.mark.parametrize("count", mostly_slow((1, 2, 3, 6), (1, 3)))
def test_nothing_unseen_is_free(count: int) -> None:
    """Damaged images: whatever is free of the map, unseen voxels occupied, is free of the scene."""
    rng = np.random.default_rng(count)
    seen = OccupancyMap(BOUNDS, 0.01)
    for pose in cameras(count):
        seen.integrate(damaged(render(BOXES, pose)[0], rng), LENS, pose)
    world = MeshWorld(device="cpu")
    world.add("map", seen.to_voxel_grid(outside="occupied"))
    lower, upper = map(np.array, BOUNDS)
    centers = rng.uniform(lower, upper, (60_000, 3))
    spheres = torch.tensor(np.c_[centers, rng.uniform(0.0, 0.05, 60_000)]).float()[None, None]
    free = ~in_collision(spheres, world)
    truth = in_collision(spheres, world_of(BOXES))
    assert not (free & truth).any()
    assert 0.0 < seen.unknown_fraction < 1.0
    # And it is of use: of good images, much of what is free is known to be.
    for pose in cameras(count):
        clean = render(BOXES, pose)[0]
        clean[clean == 0.0] = 9.0
        seen.integrate(clean, LENS, pose, max_depth=3.0)
    world.update("map", seen.to_voxel_grid(outside="occupied"))
    free = ~in_collision(spheres, world)
    assert not (free & truth).any()
    share = float((free & ~truth).sum() / (~truth).sum())
    assert share > {1: 0.3, 2: 0.6, 3: 0.68, 6: 0.72}[count]


def test_states_of_a_wall(device: torch.device) -> None:
    """Free before it, occupied in it, unseen behind it and beside the image."""
    box = ((0.2, -0.3, -0.3), (1.4, 0.3, 0.3))
    seen = OccupancyMap(box, 0.02, evidence="strict", device=device)
    assert seen.unknown_fraction == 1.0
    wall = np.full((120, 160), 1.01)
    camera = (0, 0, 0, 0.5, -0.5, 0.5, -0.5)
    seen.integrate(wall, LENS, camera, time=10.0)
    row = seen.states[:, 15, 15]
    np.testing.assert_array_equal(row[:37], 1)
    assert row[40] == 2
    np.testing.assert_array_equal(row[41:], 0)
    assert seen.states[-1].max() == 0
    # Strictly hits win, until they are forgotten.
    seen.integrate(np.full((120, 160), 1.3), LENS, camera, time=20.0)
    assert seen.states[40, 15, 15] == 2
    assert seen.states[50, 15, 15] == 1
    seen.forget(5.0, time=20.0)
    assert seen.states[40, 15, 15] == 0
    assert seen.states[50, 15, 15] == 1
    seen.forget(0.0, time=30.0)
    assert seen.unknown_fraction == 1.0


def test_far_pixels_are_seen_through_up_to_the_largest_depth() -> None:
    seen = OccupancyMap(((0.2, -0.2, -0.2), (1.4, 0.2, 0.2)), 0.02)
    camera = (0, 0, 0, 0.5, -0.5, 0.5, -0.5)
    counts = seen.integrate(np.full((120, 160), 3.0), LENS, camera, max_depth=1.0)
    assert counts.too_far == 120 * 160
    assert counts.points == 0
    row = seen.states[:, 10, 10]
    assert (row[:37] == 1).all()
    assert not row[41:].any()


def test_fractions_of_swept_space() -> None:
    seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), 0.05)
    states = seen.states
    states[:10], states[10] = 1, 2
    seen._states.copy_(torch.from_numpy(states.T.copy()).reshape(-1))
    spheres = torch.tensor([[0.525, 0.5, 0.5, 0.2], [0.525, 0.5, 0.5, 0.2], [9, 9, 9, -1.0]])
    found = seen.fractions(spheres)
    assert found["beyond"] == 0.0
    assert found["free"] == pytest.approx(found["unseen"], abs=1e-9)
    assert sum(found.values()) == pytest.approx(1.0)
    assert seen.fractions(torch.tensor([[1.0, 0.5, 0.5, 0.2]]))["beyond"] == pytest.approx(
        0.5, abs=0.1
    )


def test_a_path_among_a_map_a_cloud_and_shapes() -> None:
    """Joint paths: what is certified free is free of everything at any sample."""
    robot = load_panda()
    rng = np.random.default_rng(40)
    seen = OccupancyMap(BOUNDS, 0.02)
    for pose in cameras(3):
        seen.integrate(render(BOXES, pose)[0], LENS, pose)
    depth, lens, pose = image(0, 3)
    world = world_of(BOXES[:1])
    world.add("seen", seen.to_voxel_grid().seen)
    world.add("cloud", PointCloud.from_depth(depth, lens, pose, stride=3))
    lower, upper = (row.numpy() for row in robot.joint_limits.T)
    begin = rng.uniform(lower, upper, (40, robot.n_joints))
    end = begin + rng.normal(0.0, 0.3, begin.shape)
    paths = torch.tensor(np.clip(np.stack((begin, end), axis=1), lower, upper)).float()
    hit = joint_path_in_collision(paths, robot, world, self_collision=False)
    hit = hit.reshape(len(paths), -1).any(dim=1)
    fractions = torch.linspace(0, 1, 60)[:, None]
    dense = paths[:, :1] + fractions * (paths[:, 1:] - paths[:, :1])
    sampled = in_collision(robot.spheres(dense), world).flatten(1).any(dim=1)
    assert not (sampled & ~hit).any()
    assert (hit & ~sampled).sum() <= 4
    assert 0.1 < hit.float().mean() < 0.95


@pytest.mark.parametrize("margin", [0.0, 0.03])
def test_where_a_robot_is_nobody_needs_to_look(margin: float) -> None:
    """Voxels that its spheres reach into become free, others not, and hits stay."""
    robot = load_panda()
    joints = torch.stack((torch.zeros(7), torch.full((7,), 0.4)))
    seen = OccupancyMap(((-0.6, -0.6, 0.2), (0.6, 0.6, 1.4)), 0.04)
    camera = (-0.6, 0.0, 0.8, 0.5, -0.5, 0.5, -0.5)
    seen.integrate(np.full((120, 160), 0.62), LENS, camera, time=1.0)
    before = seen.states
    count = seen.clear(robot, joints, margin=margin, time=2.0)
    spheres = robot.spheres(joints).reshape(-1, 4).double().numpy()
    spheres[:, 3] += margin
    low = seen.lower + 0.04 * np.moveaxis(np.indices(seen.shape), 0, -1)
    near = np.zeros(seen.shape, bool)
    edge = np.zeros(seen.shape, bool)
    for *center, radius in spheres:
        way = np.linalg.norm(np.maximum(np.maximum(low - center, center - low - 0.04), 0), axis=-1)
        near |= way <= radius
        edge |= np.abs(way - radius) < 1e-5
    expected = np.where(near & (before != 2), 1, before)
    assert ((expected == 2) & near).any()
    np.testing.assert_array_equal(seen.states[~edge], expected[~edge])
    assert count == ((before == 0) & (seen.states == 1)).sum() > 500
    world = MeshWorld(device="cpu")
    world.add("never seen", seen.to_voxel_grid().unseen)
    inside = ((spheres[:, :3] > seen.lower + 0.2) & (spheres[:, :3] < 0.3)).all(axis=1)
    grown = torch.tensor(spheres[inside]).float()[None, None]
    assert not in_collision(grown, world).any()
    seen.forget(0.5, time=3.0)
    assert (seen.states == 0).all()
    with pytest.raises(ValueError, match="margin must not be negative"):
        seen.clear(robot, joints, margin=-1.0)


class TestBadInput:
    GOOD = np.full(SIZE, 1.0)

    @pytest.mark.parametrize(
        ("depth", "intrinsics", "pose", "options", "error", "message"),
        [
            (GOOD[0], LENS, np.eye(4), {}, ValueError, r"shape \(height, width\), got \(160,\)"),
            (GOOD[:0], LENS, np.eye(4), {}, ValueError, r"got \(0, 160\)"),
            (GOOD > 2, LENS, np.eye(4), {}, TypeError, "depth must be real numbers, got bool"),
            (GOOD.astype(int), LENS, np.eye(4), {}, ValueError, "depth_scale must be given"),
            (GOOD, LENS, np.eye(4), {"depth_scale": 0.1}, ValueError, "depth_scale must not be"),
            (GOOD, LENS[:3], np.eye(4), {}, ValueError, "intrinsics must be 4 numbers"),
            (GOOD, (0, 1, 1, 1), np.eye(4), {}, ValueError, "finite with fx, fy > 0"),
            (GOOD, np.ones((3, 3)), np.eye(4), {}, ValueError, "without skew, got"),
            (GOOD, LENS, 2 * np.eye(4), {}, ValueError, "camera_pose must be a rigid transform"),
            (GOOD, LENS, np.eye(4), {"stride": 0}, ValueError, "stride must be an int of at least"),
            (
                GOOD,
                LENS,
                np.eye(4),
                {"max_angle": 1.6},
                ValueError,
                r"must be in \[0, pi",
            ),
            (GOOD, LENS, np.eye(4), {"max_depth": -1}, ValueError, "max_depth must be positive"),
            (GOOD * np.nan, LENS, np.eye(4), {}, ValueError, "must see a surface, got 0 points"),
            (GOOD, LENS, np.eye(4), {"joints": 1}, ValueError, "got no robot"),
            (GOOD, LENS, np.eye(4), {"robot": 1}, ValueError, "joints must be given with a robot"),
            (GOOD, LENS, np.eye(4), {"robot_margin": -1}, ValueError, "robot_margin must "),
            (GOOD, LENS, np.eye(4), {"noise": -0.1}, ValueError, "noise must not be negative"),
            (GOOD, LENS, np.eye(4), {"noise": "much"}, TypeError, "noise must be a number"),
            (GOOD, LENS, np.eye(4), {"robot": 1, "joints": 1}, TypeError, "robot must be a Robot"),
            (GOOD, LENS, np.eye(4), {"nose": 0.1}, TypeError, "DepthOptions.* argument 'nose'"),
        ],
    )
    def test_is_named(
        self, depth: Any, intrinsics: Any, pose: Any, options: Any, error: Any, message: str
    ) -> None:
        with pytest.raises(error, match=message):
            PointCloud.from_depth(depth, intrinsics, pose, **options)

    def test_millimetres_are_suspected(self) -> None:
        with pytest.warns(UnitsWarning, match="got 300 m in the middle"):
            PointCloud.from_depth(300.0 * self.GOOD[56:62, 76:84], (40, 40, 3.5, 2.5), np.eye(4))

    def test_what_memory_does_not_hold_is_said_before(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("os.sysconf", lambda name: 1000)  # a million bytes
        with pytest.raises(ValueError, match=r"the map must fit into the memory of cpu, 0\.0 GiB"):
            OccupancyMap(((0, 0, 0), (1, 1, 1)), 0.01)
        world = MeshWorld(device="cpu")
        with pytest.raises(ValueError, match="a PointCloud must fit into the memory of cpu"):
            world.add("cloud", PointCloud(np.zeros((70_000, 3)), 0.1))
        with pytest.raises(ValueError, match="a VoxelGrid must fit into the memory of cpu"):
            world.add("grid", VoxelGrid(np.ones((64, 64, 64), bool), 0.1))
        with pytest.raises(ValueError, match="a HeightField must fit into the memory of cpu"):
            world.add("hill", HeightField(np.zeros((500, 600)), (1, 1), 1))
        assert len(world) == 0

    def test_large_things_are_suspected_of_millimetres(self) -> None:
        thick, extent = np.ones((200, 2, 2), bool), "2e[+]03 x 20 x 20 m; multiply millimetres"
        for make, text in (
            (
                lambda: VoxelGrid(thick, 10.0),
                f"voxel_size must be in metres, got a grid of {extent}",
            ),
            (lambda: VoxelGrid.from_esdf(thick * 1.0, 10.0, error=1.0), f"a grid of {extent}"),
            (lambda: OccupancyMap(((0, 0, 0), (2000, 20, 20)), 10.0), f"a map of {extent}"),
            (lambda: HeightField(np.zeros((3, 3)), (4e3, 2e3), 10.0), "a height field of 4e[+]03"),
            (lambda: HeightField(2e3 * np.eye(3), (4, 2), 10.0), "a height field of 4 x 2 x 2e"),
        ):
            with pytest.warns(UnitsWarning, match=text):
                make()

    def test_joints_that_are_not_finite(self) -> None:
        robot, joints = load_panda(), torch.full((7,), torch.nan)
        with pytest.raises(ValueError, match="joints must be finite"):
            PointCloud.from_depth(self.GOOD, LENS, np.eye(4), robot=robot, joints=joints)
        seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), 0.1)
        with pytest.raises(ValueError, match="joints must be finite"):
            seen.clear(robot, joints)
        with pytest.raises(TypeError, match="robot must be a RobotSpheres, got int"):
            seen.clear(3, joints)

    def test_maps(self) -> None:
        for bounds, size, message in (
            (((0, 0, 0), (1, 1)), 0.1, "bounds must be two corners"),
            (((0, 0, 0), (1, 1, 0)), 0.1, "a lower and an upper corner"),
            (((0, 0, 0), (1, 1, 1)), 0.0, "voxel_size must be positive"),
            (((0, 0, 0), (1, 1, 1)), 1e-4, r"must have at most 2e\+09 voxels, got 1e\+12"),
        ):
            with pytest.raises(ValueError, match=message):
                OccupancyMap(bounds, size)
        seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), 0.5)
        with pytest.raises(ValueError, match="seconds must not be negative"):
            seen.forget(-1.0)
        with pytest.raises(ValueError, match=r"noise must be in \[0, 1\), got 2"):
            seen.integrate(self.GOOD, LENS, np.eye(4), noise=2)

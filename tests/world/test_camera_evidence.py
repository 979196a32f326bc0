"""What depth images as cameras give them say of a known scene: nothing in a solid is free."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage

from camera_images import (
    SETTINGS,
    Pinhole,
    depth_in_solids,
    dropouts,
    middle,
    mixed,
    nine_rays,
    random_boxes,
    random_view,
    turned,
)
from cases import mostly_slow
from depth_scenes import Box, look, rays
from warp_collision import Camera, DepthOptions, OccupancyMap, PointCloud
from warp_collision.examples import load_panda
from warp_collision.kernels.depth_pixels import LONE, NO_RETURN
from warp_collision.obstacles.depth_image import DepthImage

WALL = (0, 0, 0, 0.5, -0.5, 0.5, -0.5)  # looks along x
LENS = (75.0, 75.0, 39.5, 29.5)
SHAPE = (60, 80)


def free_of(seen: OccupancyMap) -> Any:
    """Indices (n, 3) of free voxels."""
    return np.argwhere(seen.states == 1)


@pytest.mark.parametrize("spoil", [middle, mixed])
@pytest.mark.parametrize("seed", mostly_slow(range(3), (0,)))
def test_voxels_smaller_than_pixels(seed: int, spoil: Any) -> None:
    """A pixel's rays are 33 to 40 mm apart: where they see no edge, none is free."""
    rng = np.random.default_rng(seed)
    one = [Box(np.full(3, -0.2), np.full(3, 0.2))]
    for boxes, distance, edge in ((one, 3.0, 0.01), (random_boxes(rng, 4, 0.25), 2.0, 0.015)):
        camera = Pinhole(25.0 * distance, 60, 80)
        seen = OccupancyMap((np.full(3, -0.5), np.full(3, 0.5)), edge)
        for _ in range(3):
            pose = random_view(rng, distance)
            depth = spoil(nine_rays(boxes, pose, camera))
            seen.integrate(depth, camera.lens, pose, max_depth=6.0, noise=0, noise_per_metre=0)
        free = free_of(seen)
        assert len(free) > 0.3 * seen.states.size
        assert depth_in_solids(free, seen.lower, edge, boxes).max() == 0.0


@pytest.mark.parametrize("seed", mostly_slow(range(2), ()))
def test_spoiled_images(seed: int) -> None:
    """Each leaves at least 80 % of what ideal ones show, and nothing in a solid is free."""
    rng, camera = np.random.default_rng(seed), Pinhole(260.0, 240, 320)
    floor = Box(np.array([-2.0, -2.0, -0.5]), np.array([2.0, 2.0, -0.4]))
    boxes = [*random_boxes(rng, 4, 0.12), floor]
    poses = [random_view(rng, 1.5) for _ in range(3)]
    fine = [nine_rays(boxes, pose, camera) for pose in poses]
    share = {}
    for name, setting in SETTINGS.items():
        seen = OccupancyMap((np.full(3, -0.5), np.full(3, 0.5)), 0.02)
        for rendered, pose in zip(fine, poses, strict=True):
            depth = setting.spoil(rendered, camera.focal, rng)
            seen.integrate(depth, camera.lens, pose, max_depth=4.0, **setting.options)
        free = free_of(seen)
        assert depth_in_solids(free, seen.lower, 0.02, boxes).max(initial=0.0) == 0.0, name
        share[name] = len(free) / seen.states.size
    ideal = share.pop("ideal")
    assert ideal > 0.5
    assert all(part >= SETTINGS[name].least * ideal for name, part in share.items()), share


def wall_with(*holes: Any, evidence: Any = "images") -> OccupancyMap:
    """A wall at 1 m of which some pixels are other than that."""
    depth = np.full(SHAPE, 1.0)
    for place, value in holes:
        depth[place] = value
    seen = OccupancyMap(((0.3, -0.1, -0.1), (0.9, 0.1, 0.1)), 0.02, evidence=evidence)
    seen.integrate(depth, LENS, WALL, noise=0.0, noise_per_metre=0.0)
    return seen


SMALL = np.s_[28:30, 30:34], np.nan
LARGE = np.s_[28:31, 30:33], np.nan


def test_holes() -> None:
    """Of up to 8 pixels they hide nothing, larger ones and those at the edge of the image do."""
    whole = (wall_with().states == 1).mean()
    assert whole == 1.0
    assert (wall_with(SMALL).states == 1).mean() == whole
    for blocked in (
        wall_with(LARGE),
        wall_with(SMALL, evidence="strict"),
        wall_with(SMALL, ((27, 29), np.nan)),
    ):
        states = blocked.states
        assert 0.5 < (states == 1).mean() < whole
        # All along the rays through the hole, from the camera on.
        assert (states == 0).any(axis=(1, 2)).all()
    seen = OccupancyMap(((0.3, -0.2, -0.2), (0.9, 0.2, 0.2)), 0.02)
    edge = np.full(SHAPE, 1.0)
    edge[0, 40], edge[1, 40] = np.nan, np.nan
    seen.integrate(edge, LENS, WALL)
    assert (seen.states == 0).any()


def test_a_hole_hides_what_is_behind_its_nearest_neighbour() -> None:
    """Dead pixels beside a bar at 0.6 m: what they see may be of the bar."""
    bar = np.s_[25:33, 36:44], 0.6
    hidden = {}
    for name, holes in (("bar", [bar]), ("with a hole", [bar, (np.s_[27:31, 34:36], np.nan)])):
        states = wall_with(*holes).states
        hidden[name] = states != 1
        assert not hidden[name][:14].any()
        assert hidden[name][15:].any(axis=(1, 2)).all()
    assert not (hidden["bar"] & ~hidden["with a hole"]).any()
    assert hidden["with a hole"].sum() > hidden["bar"].sum()


@pytest.mark.parametrize("seed", range(3))
def test_holes_of_any_shape(seed: int) -> None:
    """Against their labels of SciPy: what is around a small one bounds it, a large one hides."""
    rng = np.random.default_rng(seed)
    depth = 1.0 + 0.002 * rng.random((50, 70))
    noise = ndimage.gaussian_filter(rng.random(depth.shape), 1.0 + 0.5 * seed)
    depth[noise > np.quantile(noise, 0.75)] = np.nan
    most = (5, 30, 200)[seed]
    exact = DepthOptions(noise=0.0, noise_per_metre=0.0, max_hole=most)
    image = DepthImage(depth, Camera(LENS, np.eye(4)), exact)
    before = image._bounds.clone().numpy()
    found = image.bounds().numpy()
    kinds = image._kinds
    holes, count = ndimage.label((kinds == int(NO_RETURN)) | (kinds == int(LONE)), np.ones((3, 3)))
    filled = 0
    for hole in range(1, count + 1):
        inside = holes == hole
        beside = ndimage.binary_dilation(inside, np.ones((3, 3))) & ~inside
        at_edge = inside[[0, -1]].any() or inside[:, [0, -1]].any()
        near = found[beside].min()
        if inside.sum() <= most and not at_edge and near > 0.0:
            np.testing.assert_array_equal(found[inside], near)
            filled += 1
        else:
            np.testing.assert_array_equal(found[inside], before[inside])
    assert 2 < filled < count


def test_outliers_are_holes() -> None:
    """A pixel that no neighbour supports neither hides nor hits."""
    seen = wall_with(((20, 30), 0.5), ((40, 50), 0.4))
    assert (seen.states == 1).all()
    strict = wall_with(((20, 30), 0.5), ((40, 50), 0.4), evidence="strict")
    assert 0.0 < (strict.states == 0).mean() < 0.2
    assert not (strict.states == 2).any()


def test_mixed_pixels_are_told_by_both_sides() -> None:
    """Chains of them along silhouettes support each other, and are no surface."""
    rng = np.random.default_rng(3)
    camera, boxes = Pinhole(260.0, 240, 320), random_boxes(rng, 3, 0.2)
    pose = random_view(rng, 1.5)
    fine = nine_rays(boxes, pose, camera, beyond=3.0)
    depth, sides = mixed(fine), fine.transpose(0, 2, 1, 3).reshape(*depth_shape(camera), 9)
    is_mean = np.ptp(sides, axis=2) > 0.2
    apart = np.minimum(depth - sides.min(axis=2), sides.max(axis=2) - depth)
    cloud = PointCloud.from_depth(depth, camera.lens, pose, noise=0.0, noise_per_metre=0.0)
    plain = PointCloud.from_depth(middle(fine), camera.lens, pose)
    assert cloud.counts is not None
    assert plain.counts is not None
    assert (is_mean & (apart > 0.1)).sum() > 200
    local = (cloud.points - pose[:3, 3]) @ pose[:3, :3]
    column = np.rint(local[:, 0] / local[:, 2] * camera.focal + camera.lens[2]).astype(int)
    row = np.rint(local[:, 1] / local[:, 2] * camera.focal + camera.lens[3]).astype(int)
    assert (apart[row, column] > 0.1).sum() <= 0.02 * (apart > 0.1).sum()


def depth_shape(camera: Pinhole) -> tuple[int, int]:
    """Of its images."""
    return camera.height, camera.width


@pytest.mark.parametrize("width", mostly_slow((0.8, 1.2, 1.7, 2.2), (0.8, 1.7)))
def test_a_pole_as_thin_as_pixels_is_never_free(width: float) -> None:
    """Its pixels are means of it and of the wall: nothing is free along them."""
    rng, camera = np.random.default_rng(5), Pinhole(150.0, 120, 160)
    for _ in range(6):
        half = 0.5 * width / camera.focal  # at 1 m
        shift = rng.uniform(-0.5, 0.5) / camera.focal
        pole = Box(np.array([-half + shift, -half, -2.0]), np.array([half + shift, half, 2.0]))
        wall = Box(np.array([-4.0, 1.0, -4.0]), np.array([4.0, 2.0, 4.0]))
        pose = turned(look(np.array([0.0, -1.0, 0.0]), np.zeros(3)), rng.uniform(0.0, 6.3))
        seen = OccupancyMap(((-0.2, -0.3, -0.2), (0.2, 0.3, 0.2)), 0.01)
        depth = mixed(nine_rays([pole, wall], pose, camera))
        seen.integrate(depth, camera.lens, pose, max_depth=4.0, noise=0.0, noise_per_metre=0.0)
        free = free_of(seen)
        assert len(free) > 0.5 * seen.states.size
        assert depth_in_solids(free, seen.lower, 0.01, [pole]).max() == 0.0


def test_dropouts_strictly() -> None:
    """The strict rule has nothing to say where pixels are missing everywhere."""
    rng, camera = np.random.default_rng(6), Pinhole(130.0, 120, 160)
    wall = [Box(np.array([-3.0, 1.0, -3.0]), np.array([3.0, 2.0, 3.0]))]
    pose = look(np.array([0.0, -0.5, 0.0]), np.array([0.0, 0.0, 0.0]))
    depth = dropouts(0.02)(nine_rays(wall, pose, camera), camera.focal, rng)
    share = {}
    for evidence in ("images", "strict"):
        seen = OccupancyMap(((-0.3, 0.0, -0.3), (0.3, 0.9, 0.3)), 0.03, evidence=evidence)
        seen.integrate(depth, camera.lens, pose)
        share[evidence] = (seen.states == 1).mean()
    assert share["images"] > 0.9
    assert share["strict"] < 0.3


def test_hits_are_taken_back(device: torch.device) -> None:
    """A box that has gone: later rays pass where it was; strictly its voxels stay occupied."""
    for evidence, expected in (("images", 1), ("strict", 2)):
        box = ((0.3, -0.1, -0.1), (0.9, 0.1, 0.1))
        seen = OccupancyMap(box, 0.02, evidence=evidence, device=device)  # pyright: ignore
        before = np.full(SHAPE, 1.0)
        before[20:40, 25:50] = 0.61
        seen.integrate(before, LENS, WALL, time=1.0)
        was_hit = seen.states == 2
        assert was_hit.sum() > 30
        assert (seen.states[16:, 8, 8] == 0).all()
        seen.integrate(np.full(SHAPE, 1.0), LENS, WALL, time=2.0)
        assert (seen.states[was_hit] == expected).all()
        assert (seen.states[~was_hit] == 1).all()
        seen.forget(0.5, time=2.0)
        assert (seen.states[was_hit] == (1 if evidence == "images" else 0)).all()
        # And it comes back: what was free is occupied again.
        seen.integrate(before, LENS, WALL, time=3.0)
        assert (seen.states[was_hit] == 2).all()


def test_images_see_through_parts_of_a_voxel() -> None:
    """What one image has left of a voxel another one sees; it is as old as the first of both."""
    box = ((0.5, -0.15, -0.15), (0.8, 0.15, 0.15))
    left, right = np.full(SHAPE, 1.0), np.full(SHAPE, 1.0)
    left[:, 40:], right[:, :40] = np.nan, np.nan
    for evidence in ("images", "strict"):
        seen = OccupancyMap(box, 0.1, evidence=evidence)  # pyright: ignore
        seen.integrate(left, LENS, (0, -0.03, 0, *WALL[3:]), time=1.0)
        one = seen.states == 1
        assert one[:, 2].all()
        assert not one[:, 1].any()
        seen.integrate(right, LENS, (0, 0.03, 0, *WALL[3:]), time=9.0)
        middle_is_free = evidence == "images"
        assert (seen.states[:, 1] == int(middle_is_free)).all()
        assert (seen.states[:, [0, 2]] == 1).all()
        seen.forget(5.0, time=9.0)
        assert not (seen.states[:, 1] == 1).any()


@pytest.mark.parametrize(
    ("options", "terms"),
    [
        ({}, (0.002, 0.002, 0.0)),
        ({"noise": 0.01, "noise_per_metre": 0.0}, (0.01, 0.0, 0.0)),
        ({"noise": (0.001, 0.002, 0.003)}, (0.001, 0.002, 0.003)),
        ({"disparity_noise": 0.5, "baseline": 0.1}, (0.002, 0.002, 0.5 / (75 * 0.1))),
    ],
)
def test_noise_that_grows_with_depth(options: Any, terms: Any) -> None:
    """The balls of a cloud grow by it, and nothing nearer to a wall than it is free."""
    depth = np.full(SHAPE, 2.0)
    exact = PointCloud.from_depth(depth, LENS, np.eye(4), noise=0.0, noise_per_metre=0.0)
    wide = PointCloud.from_depth(depth, LENS, np.eye(4), **options)
    bound = terms[0] + 2.0 * terms[1] + 4.0 * terms[2]
    np.testing.assert_allclose(wide.radii - exact.radii, bound, rtol=1e-4)
    seen = OccupancyMap(((1.0, -0.1, -0.1), (2.0, 0.1, 0.1)), 0.005)
    seen.integrate(depth, LENS, WALL, **options)
    ends = seen.lower[0] + 0.005 * (1 + free_of(seen)[:, 0].max())
    assert 2.0 - bound - 0.015 < ends < 2.0 - bound + 1e-6


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"noise": (1, 2)}, ValueError, "noise must be a number or a, b, c"),
        ({"noise": (0, 0, -1)}, ValueError, "noise must not be negative"),
        (
            {"noise": (0, 0, 0), "noise_per_metre": 0.1},
            ValueError,
            "must not be given with a noise",
        ),
        ({"disparity_noise": 0.1}, ValueError, "disparity_noise must be given with a baseline"),
        ({"baseline": 0.1}, ValueError, "disparity_noise must be given with a baseline"),
        ({"max_hole": 10_001}, ValueError, "max_hole must be from 0 to 10000 pixels, got 10001"),
        ({"max_hole": 1.5}, TypeError, "max_hole must be an int"),
    ],
)
def test_options_that_are_wrong(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        PointCloud.from_depth(np.ones(SHAPE), LENS, np.eye(4), **options)


def test_evidence_is_named() -> None:
    with pytest.raises(ValueError, match="evidence must be 'images' or 'strict', got 'some'"):
        OccupancyMap(((0, 0, 0), (1, 1, 1)), 0.1, evidence="some")  # pyright: ignore


def test_noise_of_the_robot_is_no_hit() -> None:
    """Disparities put its pixels up to 4 cm from it: none is an obstacle beside it."""
    robot, joints = load_panda(), torch.tensor([0.0, -0.8, 0.0, -2.2, 0.0, 1.5, 0.8])
    camera, rng = Pinhole(260.0, 240, 320), np.random.default_rng(9)
    pose = look(np.array([1.7, 0.4, 0.9]), np.array([0.2, 0.0, 0.4]))
    way = rays(pose, 1, camera.lens, (camera.height, camera.width))
    depth = np.full(way.shape[:2], 4.0)
    for *center, radius in robot.spheres(joints).double().numpy():
        to, square = np.array(center) - pose[:3, 3], (way**2).sum(axis=-1)
        middle = way @ to / square
        room = radius**2 - ((to**2).sum() - middle**2 * square)
        front = middle - np.sqrt(np.maximum(room, 0.0) / square)
        depth = np.where((room > 0.0) & (front < depth), front, depth)
    assert (depth < 4.0).mean() > 0.03
    noise = np.clip(rng.normal(0.0, 0.08, depth.shape), -0.24, 0.24)
    depth = camera.focal * 0.05 / (camera.focal * 0.05 / depth + noise)
    options = {"disparity_noise": 0.24, "baseline": 0.05, "noise": 0.0, "noise_per_metre": 0.0}
    seen = OccupancyMap(((-0.6, -0.6, -0.1), (0.9, 0.6, 1.2)), 0.02)
    seen.integrate(depth, camera.lens, pose, robot=robot, joints=joints, max_depth=3.0, **options)
    assert (seen.states == 1).mean() > 0.1
    assert not (seen.states == 2).any()

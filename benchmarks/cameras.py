"""What depth images as cameras give them show of a known scene, judged by coal in the scene itself.

Images of a Panda among boxes have nine rays in each pixel, and are spoiled in fifteen ways. A map
of nine images, of three cameras at three poses of the arm, is asked for random configurations, with
what no camera has seen occupied, but for a margin around the arm where it was: which are called
free, and does one of them touch? A UR5 takes the Panda's place in six of these ways. Then paths of
the Panda are planned to 24 goals in its map, a camera on the hand fills what the others left, 56
problems of MotionBenchMaker are planned from three cameras, and a real image, the Motorcycle of
Middlebury, is carved.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import warp_collision as wc
from benchmarks import sensed_plan
from benchmarks.camera_scenes import (
    BOUNDS,
    CAMERA,
    FARTHEST,
    VOXEL,
    Image,
    Studio,
    photograph,
)
from benchmarks.downloads import downloaded
from benchmarks.harness import Failed, table
from camera_images import SETTINGS, Pinhole, Setting
from warp_collision.planning import optimize_paths

OF_UR5 = ("ideal", "0.1 % dropouts", "2 % dropouts", "mixed edges", "stereo, 0.08 px", "everything")
GOALS = 24
ON_HAND, HAND_IMAGES = Pinhole(260.0, 240, 320), 60
MOTORCYCLE = {
    "scikit-image==0.16.2": "2aa962aa82d815606d7dad7f045f5d7ca55c65b4320d47e15a98fc92612c2d6c"
}
# Of its left image: focal length, principal point and its shift to the right one [pixels], baseline
# [m]; the box that is carved [m].
_LENS, _SHIFT, _BASELINE = (994.978, 994.978, 311.193, 254.877), 31.086, 0.193001
_BOX = ((-1.25, -0.95, 1.5), (1.45, 0.95, 4.3))
_OFF = 0.25  # [pixels] by which disparities may be off
_HOLE = 200  # pixels: what the other eye does not see beside silhouettes


class Figure(NamedTuple):
    """A line of the last table: what was found, and what is wanted."""

    name: str
    found: float
    least: float
    unit: str = ""
    most: float = float("inf")

    def cells(self) -> list[str]:
        """Name, found, wanted, and whether that is so."""
        wanted = f"at least {self.least:g}" if self.most == float("inf") else f"{self.most:g}"
        return [self.name, f"{self.found:.3g}{self.unit}", wanted + self.unit, self.verdict()]

    def verdict(self) -> str:
        """Yes or no."""
        return "yes" if self.least <= self.found <= self.most else "**no**"


def map_of(studio: Studio, images: list[Image], setting: Setting, seed: int) -> wc.OccupancyMap:
    """All images, spoiled."""
    rng, seen = np.random.default_rng(seed), wc.OccupancyMap(BOUNDS, VOXEL)
    for image in images:
        add_image(seen, studio, image, setting, rng)
    return seen


def add_image(
    seen: wc.OccupancyMap,
    studio: Studio,
    image: Image,
    setting: Setting,
    rng: np.random.Generator,
) -> None:
    """One image, and that the arm fits where it was."""
    depth = setting.spoil(image.fine, image.camera.focal, rng)
    options = {"robot": studio.robot, "joints": image.joints, "max_depth": FARTHEST}
    seen.integrate(depth, image.camera.lens, image.pose, **options, **setting.options)
    seen.clear(studio.robot, image.joints, margin=studio.margin)


def world_of(seen: wc.OccupancyMap) -> wc.MeshWorld:
    """What was seen, what was not, and nothing but the map."""
    world, grid = wc.MeshWorld(device="cpu"), seen.to_voxel_grid("occupied", "occupied")
    world.add("seen", grid.seen)
    world.add("never seen", grid.unseen)
    return world


def called_free(studio: Studio, world: wc.MeshWorld) -> np.ndarray:
    """(n,) of the configurations."""
    rows = studio.joints, studio.robot, world
    options = {"self_collision": False, "ignore": studio.stands}
    return ~wc.configuration_in_collision(*rows, **options).numpy()


def settings(
    studio: Studio, images: list[Image], names: Sequence[str] = tuple(SETTINGS), of: str = ""
) -> tuple[str, list[Figure]]:
    """A row for each of some ways to spoil images, and figures of a robot.

    Raises:
        Failed: where the arm was, an obstacle is within the margin that counts as free.
    """
    if studio.room < studio.margin:
        raise Failed(f"the arm is {studio.room:.3f} m from an obstacle: the margin is wrong")
    seeable = ~studio.touches & studio.can_be_seen(images)
    rows, shares, wrong = [], {}, 0
    for seed, name in enumerate(names):
        setting = SETTINGS[name]
        free = called_free(studio, world_of(map_of(studio, images, setting, seed)))
        false = int((free & studio.touches).sum())
        right = int((free & ~studio.touches).sum())
        wrong, shares[name] = wrong + false, right
        part = f"{100 * right / max(shares['ideal'], 1):.0f} %"
        rows.append([name, str(right), part, str(false), setting.assumes])
        print(*rows[-1], sep="  ", flush=True)
        if name == "ideal":
            known = (free & seeable).sum() / max(seeable.sum(), 1)
    head = ["images", "called free", "of ideal", "false free", "what is assumed"]
    intro = (
        f"{len(studio.joints):,} configurations, {int((~studio.touches).sum()):,} of them free by "
        f"coal, and {int(seeable.sum()):,} of these where a camera sees or the arm has been. "
        f"Nine images of {CAMERA.width} x {CAMERA.height}, voxels of {100 * VOXEL:g} cm.\n\n"
    )
    least = min(shares[n] / max(shares["ideal"], 1) for n in names if SETTINGS[n].least > 0.0)
    seen = 100.0 * float(known)
    figures = [
        Figure(f"false free, all images{of}", wrong, 0.0, most=0.0),
        Figure(f"called free where it can be seen, ideal images{of}", seen, 60.0, " %"),
        Figure(f"least part of that with spoiled images{of}", 100.0 * least, 80.0, " %"),
    ]
    return intro + table(head, rows), figures


def other_robot(count: int, margin: float) -> tuple[str, list[Figure]]:
    """A UR5 in the place of the Panda."""
    studio = Studio.of_ur5(count)._replace(margin=margin)
    text, figures = settings(studio, studio.look_around(), OF_UR5, ", UR5")
    return f"A UR5 with a gripper: {text}", figures


def plan_to(
    studio: Studio, goals: torch.Tensor, world: wc.MeshWorld
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Which of the goals (n, 7) are reached from the first pose of the arm, and the paths there."""
    found = optimize_paths(
        studio.poses[:1].expand(len(goals), -1),
        goals,
        studio.robot,
        world,
        until="first",
        on_invalid_endpoints="mark",
        ignore=studio.stands if "seen" in world.names() else (),
        generator=torch.Generator().manual_seed(0),
    )
    free = found.free.numpy()
    return free, [path for path, is_free in zip(found.joints.numpy(), free, strict=True) if is_free]


def planning(studio: Studio, images: list[Image]) -> tuple[str, list[Figure]]:
    """Paths to goals that can be reached where the scene is known."""
    known = wc.MeshWorld.from_mapping(_scene_mapping(), device="cpu")
    is_free = ~wc.configuration_in_collision(studio.joints, studio.robot, known).numpy()
    seeable = is_free & ~studio.touches & studio.can_be_seen(images)
    candidates = studio.joints[np.flatnonzero(seeable)[: 2 * GOALS]]
    reached, _ = plan_to(studio, candidates, known)
    goals = candidates[reached][:GOALS]
    rows, figures = [], []
    for name in ("ideal", "2 % dropouts", "mixed edges", "everything"):
        world = world_of(map_of(studio, images, SETTINGS[name], 1))
        solved, paths = plan_to(studio, goals, world)
        hit = sum(studio.judge.judge(path, studio.scene).world < 0.0 for path in paths)
        rows.append([name, str(len(goals)), str(int(solved.sum())), str(hit)])
        print(*rows[-1], sep="  ", flush=True)
        figures.append(Figure(f"paths that touch, {name}", hit, 0.0, most=0.0))
        if name == "ideal":
            figures.append(Figure(f"goals of {len(goals)} reached", float(solved.sum()), 12.0))
    head = ["images", "goals reached where the scene is known", "in the map", "that touch"]
    return table(head, rows), figures


def _scene_mapping() -> dict[str, Any]:
    from benchmarks.camera_scenes import SCENE

    return SCENE


def moving(studio: Studio, images: list[Image]) -> tuple[str, list[Figure]]:
    """A camera on the hand that takes images along a path, after those that stand."""
    setting, rng = SETTINGS["everything"], np.random.default_rng(5)
    seen = map_of(studio, images, setting, 0)
    before, rows = seen.unknown_fraction, []
    free = called_free(studio, world_of(seen))
    rows.append(["three that stand, nine images", f"{100 * before:.1f} %", *_counts(studio, free)])
    mount, at_hand = np.eye(4), studio.robot.link_names.index("panda_hand")
    mount[:3, 3] = 0.08, 0.0, 0.02  # beside the fingers
    for joints in hand_path(studio):
        hand = studio.robot.link_transforms(joints)[at_hand].double().numpy()
        add_image(seen, studio, _on_hand(studio, joints, hand @ mount), setting, rng)
    free = called_free(studio, world_of(seen))
    after = f"and {HAND_IMAGES} of a camera on the hand"
    rows.append([after, f"{100 * seen.unknown_fraction:.1f} %", *_counts(studio, free)])
    print(*rows, sep="\n", flush=True)
    head = ["cameras", "unseen", "called free", "false free"]
    return table(head, rows), [
        Figure("false free, camera on the hand", float(rows[1][3]), 0.0, most=0.0),
        Figure("called free with it, times", int(rows[1][2]) / max(int(rows[0][2]), 1), 1.1),
    ]


def _counts(studio: Studio, free: np.ndarray) -> list[str]:
    return [str(int((free & ~studio.touches).sum())), str(int((free & studio.touches).sum()))]


def _on_hand(studio: Studio, joints: torch.Tensor, pose: np.ndarray) -> Image:
    return photograph(studio.scene, studio.judge, joints, pose, ON_HAND)


def hand_path(studio: Studio) -> torch.Tensor:
    """(60, 7) joint values along a path that is free of the known scene."""
    known = wc.MeshWorld.from_mapping(_scene_mapping(), device="cpu")
    stops = torch.tensor(
        [
            [0.0, -0.8, 0.0, -2.2, 0.0, 1.5, 0.8],
            [-1.6, -0.9, 0.0, -2.2, 0.2, 1.3, 0.8],
            [-2.6, -0.9, 0.0, -2.0, 0.0, 1.2, 0.8],
            [0.6, -0.9, 0.4, -2.0, 0.2, 1.3, 0.8],
            [1.6, -0.9, 0.0, -2.2, -0.2, 1.3, 0.8],
            [2.7, -0.9, 0.0, -1.9, 0.0, 1.2, 0.8],
        ]
    )
    found = optimize_paths(
        stops[:-1],
        stops[1:],
        studio.robot,
        known,
        until="first",
        generator=torch.Generator().manual_seed(0),
    )
    if not found.free.all():
        raise Failed("the way of the camera on the hand is not free in the known scene")
    path = found.joints.reshape(-1, found.joints.shape[-1])
    return path[torch.linspace(0, len(path) - 1, HAND_IMAGES).long()]


def problems(names: list[str]) -> tuple[str, list[Figure]]:
    """The planning problems of `sensed-plan`."""
    counts = sensed_plan.solve(names)
    total = sum(counts.values())
    return sensed_plan.table_of(counts), [
        Figure(f"problems of {total[0]} solved", float(total[1]), 50.0 / 56.0 * float(total[0])),
        Figure("that touch", float(total[2]), 0.0, most=0.0),
    ]


def _unpack(files: Path, folder: Path) -> None:
    with zipfile.ZipFile(next(files.glob("*.whl"))) as wheel:
        data = wheel.read("skimage/data/motorcycle_disp.npz")
    (folder / "disparity.npz").write_bytes(data)


def motorcycle() -> tuple[str, list[Figure]]:
    """A real image: how much of a box is free, and whether a point of its surface is in that."""
    options = "--python-version 37 --platform manylinux1_x86_64 --only-binary=:all:"
    folder = downloaded("motorcycle", MOTORCYCLE, options, _unpack)
    disparity = np.load(folder / "disparity.npz")["arr_0"].astype(np.float64)
    depth = _LENS[0] * _BASELINE / (disparity + _SHIFT)
    noise = {"disparity_noise": _OFF, "baseline": _BASELINE}
    seen = wc.OccupancyMap(_BOX, VOXEL)
    counts = seen.integrate(
        depth, _LENS, np.eye(4), noise=0.0, noise_per_metre=0.0, max_hole=_HOLE, **noise
    )
    height, width = depth.shape
    x, y = np.meshgrid((np.arange(width) - _LENS[2]), (np.arange(height) - _LENS[3]))
    points = np.stack((x * depth / _LENS[0], y * depth / _LENS[1], depth), axis=-1)
    points = points[np.isfinite(depth)]
    within = ((points >= seen.lower) & (points < seen.lower + VOXEL * np.array(seen.shape))).all(1)
    cells = np.floor((points[within] - seen.lower) / VOXEL).astype(int)
    in_free = int((seen.states[tuple(cells.T)] == 1).sum())
    share, plain = (seen.states == 1).mean(), _carved(seen, depth)
    line = (
        f"A real image, {width} x {height}, {counts.no_return / depth.size:.1%} without a return, "
        f"into {seen.shape} voxels of {100 * VOXEL:g} cm: {share:.1%} of the box is free, "
        f"{plain:.1%} by rays without proof; of {len(cells):,} points of its surface {in_free} are "
        f"in free voxels. Assumed: disparities are right up to {_OFF} px, and holes of up to "
        f"{_HOLE} pixels, which the other eye does not see, hide nothing nearer than what is "
        "around them.\n"
    )
    print(line, flush=True)
    return line, [
        Figure("Motorcycle, free part of its box", 100.0 * float(share), 18.0, " %"),
        Figure("points of its surface in free voxels", in_free, 0.0, most=0.0),
    ]


def _carved(seen: wc.OccupancyMap, depth: np.ndarray) -> float:
    """Part of the voxels whose centers are before what their pixel sees."""
    centers = seen.lower + VOXEL * (np.moveaxis(np.indices(seen.shape), 0, -1) + 0.5)
    column = np.rint(_LENS[0] * centers[..., 0] / centers[..., 2] + _LENS[2]).astype(int)
    row = np.rint(_LENS[1] * centers[..., 1] / centers[..., 2] + _LENS[3]).astype(int)
    inside = (row >= 0) & (row < depth.shape[0]) & (column >= 0) & (column < depth.shape[1])
    found = np.zeros(seen.shape, bool)
    found[inside] = centers[inside][:, 2] < depth[row[inside], column[inside]]
    return float(found.mean())


PARTS = ("settings", "ur5", "planning", "moving", "problems", "motorcycle")


def add_options(parser: Any) -> None:
    """Which parts, and of how many configurations."""
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--configurations", type=int, default=2_000)
    where = "around the arm where it was: nothing else is there [m] (default 0.02)"
    parser.add_argument("--margin", type=float, default=0.02, help=where)


def run(options: Any) -> str:
    """The tables; fails where a figure is not what is wanted."""
    texts, figures = [], []
    studio = Studio.of_panda(options.configurations)._replace(margin=options.margin)
    images = studio.look_around()
    made = {
        "settings": lambda: settings(studio, images),
        "ur5": lambda: other_robot(options.configurations, options.margin),
        "planning": lambda: planning(studio, images),
        "moving": lambda: moving(studio, images),
        "problems": lambda: problems(list(sensed_plan.problems())),
        "motorcycle": motorcycle,
    }
    for part in options.parts:
        text, found = made[part]()
        texts.append(text)
        figures += found
    if options.write:
        from benchmarks.camera_picture import draw

        seen = map_of(studio, images, SETTINGS["everything"], 0)
        draw(studio, images, seen, options.write.with_suffix(".png"))
    texts.append(table(["figure", "found", "wanted", ""], [f.cells() for f in figures]))
    text = "\n".join(texts)
    if any(figure.verdict() != "yes" for figure in figures):
        if options.write:  # with what is not as wanted
            options.write.with_suffix(".md").write_text(text.rstrip("\n") + "\n")
        raise Failed(text)
    return text

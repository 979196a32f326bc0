"""Which of several cameras shows most of what a path needs, against images that are then taken."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from depth_scenes import LENS, SIZE, cameras, look, render, scene
from warp_collision import Camera, MeshWorld, OccupancyMap, in_collision

BOXES = scene()
BOUNDS = ((0.2, -0.7, -0.1), (1.6, 0.7, 0.7))
POSES = cameras(6)


def map_of(*poses: Any) -> OccupancyMap:
    """Images of the scene from some poses."""
    seen = OccupancyMap(BOUNDS, 0.02)
    for pose in poses:
        depth = render(BOXES, pose)[0]
        depth[depth == 0.0] = 9.0
        seen.integrate(depth, LENS, pose, max_depth=3.0, noise=0.0, noise_per_metre=0.0)
    return seen


def path_of(rng: np.random.Generator) -> torch.Tensor:
    """(40, 4) spheres along a line between the boxes."""
    ends = np.array([[0.7, -0.5, 0.2], [1.2, 0.4, 0.4]]) + rng.uniform(-0.05, 0.05, (2, 3))
    places = ends[0] + np.linspace(0.0, 1.0, 40)[:, None] * (ends[1] - ends[0])
    return torch.tensor(np.column_stack((places, np.full(40, 0.06))))


@pytest.mark.parametrize("seed", range(2))
def test_the_best_view_is_the_one_that_shows_most(seed: int) -> None:
    """Of five views beside the first, by what their images free; none shows more than is said."""
    path = path_of(np.random.default_rng(seed))
    first = map_of(POSES[0])
    lens = Camera(LENS, POSES[0], size=SIZE)
    before = first.fractions(path)["unseen"]
    assert before > 0.05
    ranked = first.best_views([lens.at(pose) for pose in POSES[1:]], path, max_depth=3.0)
    assert sorted(index for index, _ in ranked) == list(range(5))
    parts = [part for _, part in ranked]
    assert parts == sorted(parts, reverse=True)
    shown = {}
    for index, part in ranked:
        after = map_of(POSES[0], POSES[1 + index]).fractions(path)["unseen"]
        shown[index] = (before - after) / before
        assert shown[index] <= part + 0.1
    assert shown[ranked[0][0]] >= 0.9 * max(shown.values())
    assert max(shown.values()) > 0.3
    assert min(shown.values()) < 0.7 * max(shown.values())


def test_what_is_before_hides() -> None:
    """A camera behind a wall that was seen shows nothing, nor does one that is too far."""
    seen = OccupancyMap(((0, -0.5, -0.5), (2, 0.5, 0.5)), 0.05)
    wall = (0.0, 0.0, 0.0, 0.5, -0.5, 0.5, -0.5)  # looks along x
    seen.integrate(np.full(SIZE, 1.02), LENS, wall)
    path = torch.tensor([[1.5, 0.0, 0.0, 0.1]])
    lens = Camera(LENS, look(np.array([-0.5, 0.1, 0.0]), np.array([1.5, 0, 0])), size=SIZE)
    behind = lens.at(look(np.array([3.0, 0.2, 0.1]), np.array([1.5, 0, 0])))
    assert seen.best_views([lens, behind], path) == [(1, 1.0), (0, 0.0)]
    assert seen.best_views([lens, behind], path, max_depth=1.0) == [(0, 0.0), (1, 0.0)]
    free = torch.tensor([[0.5, 0.0, 0.0, 0.1]])
    assert seen.best_views([lens, behind], free) == [(0, 0.0), (1, 0.0)]


def test_a_plan_that_is_blocked_by_what_nobody_saw() -> None:
    """It is named, the view that would help is found, and with its image the path is free."""
    hidden = torch.tensor([[1.0, 0.35, 0.1, 0.04], [1.0, 0.4, 0.12, 0.04]])

    def blockers(seen: OccupancyMap) -> list[str]:
        grid, found = seen.to_voxel_grid(), []
        for name, part in (("seen", grid.seen), ("never seen", grid.unseen)):
            world = MeshWorld(device="cpu")
            world.add(name, part)
            if in_collision(hidden[None, None], world).any():
                found.append(name)
        return found

    first = map_of(POSES[3])
    assert blockers(first) == ["never seen"]
    lens = Camera(LENS, POSES[0], size=SIZE)
    ranked = first.best_views([lens.at(pose) for pose in POSES], hidden, max_depth=3.0)
    best, worst = ranked[0][0], ranked[-1][0]
    assert blockers(map_of(POSES[3], POSES[best])) == []
    assert blockers(map_of(POSES[3], POSES[worst])) == ["never seen"]


def test_wrong_cameras() -> None:
    seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), 0.1)
    path = torch.tensor([[0.5, 0.5, 0.5, 0.1]])
    with pytest.raises(ValueError, match="cameras must be at least one"):
        seen.best_views([], path)
    with pytest.raises(ValueError, match="cameras must have a size"):
        seen.best_views([Camera(LENS, POSES[0])], path)
    with pytest.raises(TypeError, match="cameras must be Cameras, got tuple"):
        seen.best_views([LENS], path)  # pyright: ignore
    with pytest.raises(ValueError, match="max_depth must be positive"):
        seen.best_views([Camera(LENS, POSES[0], size=SIZE)], path, max_depth=0.0)
    with pytest.raises(TypeError, match="cameras must be a sequence of Cameras, got one Camera"):
        seen.best_views(Camera(LENS, POSES[0], size=SIZE), path)  # pyright: ignore


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (torch.zeros(7), ValueError, r"must be spheres \(\.\.\., 4\) x, y, z, .*got shape \(7,\)"),
        (torch.zeros(()), ValueError, r"must be spheres .*, got shape \(\)"),
        (None, TypeError, r"must be spheres .*, got NoneType"),
        (object(), TypeError, r"must be spheres .*, got object"),
        (torch.tensor([[0.5, math.nan, 0.5, 0.1]]), ValueError, r"must be finite, got \[0\.5, nan"),
        (torch.tensor([[0.5, 0.5, 0.5, math.nan]]), ValueError, "must be finite"),
        (torch.tensor([[0.5, 0.5, 0.5, math.inf]]), ValueError, "must be finite"),
    ],
)
def test_wrong_spheres(path: object, error: type[Exception], message: str) -> None:
    seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), 0.1)
    with pytest.raises(error, match=f"path {message}"):
        seen.best_views([Camera(LENS, POSES[0], size=SIZE)], path)
    with pytest.raises(error, match=f"spheres {message}"):
        seen.fractions(path)


def test_disabled_spheres_need_not_be_finite() -> None:
    seen = OccupancyMap(((0, 0, 0), (1, 1, 1)), 0.1)
    spheres = torch.tensor([[math.nan, 0.5, 0.5, -1.0], [0.5, 0.5, 0.5, 0.2]])
    assert seen.fractions(spheres) == seen.fractions(spheres[1:])

"""An image that fails to enter a map, or is interrupted, leaves the map as before or after it."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch

from injected import Trial
from warp_collision import OccupancyMap
from warp_collision.examples import load_panda

WRITERS = "obstacles/occupancy_map.py", "obstacles/depth_image.py", "launching"
HEIGHT, WIDTH = 24, 32
INTRINSICS = (30.0, 30.0, 15.5, 11.5)
CAMERA = (-0.6, 0.05, 0.1, 0.5, -0.5, 0.5, -0.5)  # looks along x
BESIDE = (-0.55, 0.1, 0.12, 0.52, -0.48, 0.5, -0.5)
PANDA = load_panda()


def image(seed: int) -> np.ndarray:
    """A slanted wall with a box before it and some noise [m]."""
    depth = np.linspace(0.9, 1.2, WIDTH) + np.random.default_rng(seed).normal(
        0.0, 1e-3, (HEIGHT, WIDTH)
    )
    depth[8:15, 10:18] = 0.5
    return depth.astype(np.float32)


IMAGES = image(0), image(1)
FIRST = OccupancyMap(((-0.3, -0.4, -0.3), (0.6, 0.4, 0.5)), 0.03)
FIRST.integrate(IMAGES[0], INTRINSICS, CAMERA, time=10.0)

EDITS: dict[str, Callable[[OccupancyMap], object]] = {
    "integrate": lambda seen: seen.integrate(IMAGES[1], INTRINSICS, BESIDE, time=11.0),
    "clear": lambda seen: seen.clear(PANDA, torch.zeros(7), margin=0.02, time=11.0),
    "forget": lambda seen: seen.forget(0.5, time=11.0),
}


def content(seen: OccupancyMap) -> list[list[float]]:
    return [part.tolist() for part in (seen._states, seen._parts, seen._stamps)]


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize(
    "most", [5, pytest.param(np.inf, marks=pytest.mark.slow)], ids=["few", "all"]
)
@pytest.mark.parametrize("what", ["memory", "interrupts"])
def test_all_or_nothing(name: str, most: float, what: str) -> None:
    edited = copy.deepcopy(FIRST)
    EDITS[name](edited)
    assert content(edited) != content(FIRST)
    trial = Trial(lambda: copy.deepcopy(FIRST), EDITS[name], content, WRITERS)
    getattr(trial, what)(most)


def test_an_image_twice_at_one_time_is_as_once() -> None:
    """What an image sees through beside its own hits is no evidence against them."""
    once, twice = copy.deepcopy(FIRST), copy.deepcopy(FIRST)
    EDITS["integrate"](once)
    EDITS["integrate"](twice)
    EDITS["integrate"](twice)
    assert content(once) == content(twice)

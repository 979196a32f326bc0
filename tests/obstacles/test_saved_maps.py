"""Maps in files: what was seen, and images that are added later."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depth_scenes import LENS, cameras, render, scene
from warp_collision import OccupancyMap

BOUNDS = ((-0.4, -0.5, 0.0), (0.5, 0.4, 0.7))


@pytest.mark.parametrize("evidence", ["images", "strict"])
def test_a_saved_map_goes_on_as_the_map_itself(evidence: Any, tmp_path: Path) -> None:
    poses = cameras(3)
    images = [render(scene(), pose)[0] for pose in poses]
    seen = OccupancyMap(BOUNDS, 0.05, evidence=evidence)
    seen.integrate(images[0], LENS, poses[0], time=100.0)
    seen.save(tmp_path / "map.npz", time=103.0)
    again = OccupancyMap.load(tmp_path / "map.npz", time=7.0)  # of another clock
    assert repr(again) == repr(seen)
    assert 0.0 < again.unknown_fraction < 1.0
    np.testing.assert_array_equal(again.states, seen.states)
    for i in (1, 2):
        seen.integrate(images[i], LENS, poses[i], time=103.0 + i)
        again.integrate(images[i], LENS, poses[i], time=7.0 + i)
        np.testing.assert_array_equal(again.states, seen.states)
    seen.forget(3.5, time=105.0)  # the first image alone is older
    again.forget(3.5, time=9.0)
    np.testing.assert_array_equal(again.states, seen.states)


def test_files_that_hold_no_map(tmp_path: Path) -> None:
    file = tmp_path / "map.npz"
    with pytest.raises(ValueError, match=r"path must end with \.npz, \.bt or \.ot, got"):
        OccupancyMap(BOUNDS, 0.1).save(tmp_path / "map.bin")
    with pytest.raises(FileNotFoundError):
        OccupancyMap.load(file)
    file.write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"map\.npz: "):
        OccupancyMap.load(file)
    OccupancyMap(BOUNDS, 0.1).save(file)
    arrays = dict(np.load(file))
    for change, expected in [
        ({"states": arrays["states"][:-1]}, "states must have one unsigned integer for each of"),
        ({"states": arrays["states"] + np.uint8(3)}, "states must be 0, 1 or 2"),
        ({"ages": np.full_like(arrays["ages"], np.nan)}, "ages not negative"),
        ({"voxel_size": np.float64(-1.0)}, "voxel_size must be positive"),
        ({"evidence": np.array("none")}, "evidence must be 'images' or 'strict', got 'none'"),
    ]:
        np.savez(file, **{**arrays, **change})
        with pytest.raises(ValueError, match=expected):
            OccupancyMap.load(file)
    np.savez(file, **{name: array for name, array in arrays.items() if name != "ages"})
    with pytest.raises(ValueError, match=r"map\.npz: a map must have the arrays \['ages'\]"):
        OccupancyMap.load(file)

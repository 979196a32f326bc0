"""OctoMap files: bytes written by hand from the format's description, and maps there and back."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from warp_collision import MeshWorld, OccupancyMap, signed_distance
from warp_collision.formats.octomap_files import ORIGIN, read_octomap, write_octomap

HEADER = (
    "# Octomap OcTree{} file\n# (feel free to add comments)\n#\nid OcTree\nsize {}\nres {}\ndata\n"
)
INNER = 3


def by_hand(suffix: str) -> bytes:
    """Voxel (0, 0, 0) free and (1, 0, 0) occupied of an edge of 0.25 m, and a free leaf of eight.

    The first voxel has the key 32768 = 2^15: the root's last child, then always the first one. The
    leaf is the fourth child, (1, 1, 0), of the node at level 14.
    """
    if suffix == ".bt":
        nodes = [INNER << 14] + 13 * [INNER] + [INNER | 1 << 6] + [1 | 2 << 2]
        content = b"".join(struct.pack("<H", bits) for bits in nodes)
        return HEADER.format(" binary", len(nodes) + 3, 0.25).encode() + content
    rows = [(0.4, 1 << 7)] + 13 * [(0.4, 1)] + [(0.4, 1 | 1 << 3), (0.4, 3)]
    rows += [(-0.1, 0), (0.4, 0), (-2.0, 0)]
    content = b"".join(struct.pack("<fB", *row) for row in rows)
    return HEADER.format("", len(rows), 0.25).encode() + content


@pytest.mark.parametrize("suffix", [".bt", ".ot"])
def test_files_by_hand(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"map{suffix}"
    file.write_bytes(by_hand(suffix))
    seen = OccupancyMap.load(file)
    expected = np.zeros((4, 4, 2), np.uint8)
    expected[0, 0, 0], expected[1, 0, 0], expected[2:, 2:] = 1, 2, 1
    np.testing.assert_array_equal(seen.states, expected)
    np.testing.assert_array_equal(seen.lower, 0.0)
    assert seen.voxel_size == 0.25
    part = OccupancyMap.load(file, bounds=((0.25, 0, -0.25), (0.75, 0.75, 0.25)))
    np.testing.assert_array_equal(part.states[..., 1], expected[1:3, :3, 0])
    assert not part.states[..., 0].any()
    seen.save(file)
    again = file.read_bytes()
    if suffix == ".bt":
        assert again.partition(b"data\n")[2] == by_hand(suffix).partition(b"data\n")[2]
    assert b"\nsize 19\n" in again
    np.testing.assert_array_equal(OccupancyMap.load(file).states, expected)


@pytest.mark.parametrize("suffix", [".bt", ".ot"])
@pytest.mark.parametrize("seed", range(3))
def test_voxels_there_and_back(suffix: str, seed: int, tmp_path: Path) -> None:
    """Blocks of all sizes at any place; few nodes where much is the same."""
    rng = np.random.default_rng(seed)
    states = np.zeros(rng.integers(20, 60, 3), np.uint8)
    for _ in range(12):
        low = rng.integers(0, states.shape)
        high = low + rng.integers(1, 30, 3)
        states[tuple(map(slice, low, high))] = rng.integers(0, 3)
    states[0, 0, 0] = states[-1, -1, -1] = 2
    corner = rng.integers(0, 2 * ORIGIN - 60, 3)
    file = tmp_path / f"map{suffix}"
    write_octomap(file, states, corner, 0.02)
    leaves = read_octomap(file)
    assert leaves.resolution == 0.02
    found = np.zeros_like(states)
    covered = 0
    for begin, size, hit in zip(
        leaves.corners - corner, leaves.sizes, leaves.is_occupied, strict=True
    ):
        found[tuple(slice(b, b + size) for b in begin)] = 1 + hit
        covered += int(size) ** 3
    np.testing.assert_array_equal(found, states)
    assert covered == (states > 0).sum()  # no leaf covers another
    assert len(leaves.sizes) < 0.5 * covered


def test_voxels_across_others(tmp_path: Path) -> None:
    """A map that begins between multiples of its edge: nothing of it is free that was not."""
    seen = OccupancyMap(((0.013, -0.207, 0.1), (0.413, 0.193, 0.5)), 0.02)
    states = np.random.default_rng(1).choice(3, seen.shape, p=(0.1, 0.85, 0.05)).astype(np.uint8)
    seen._states.copy_(torch.from_numpy(states.T.copy().reshape(-1)))
    seen.save(tmp_path / "map.bt")
    other = OccupancyMap.load(tmp_path / "map.bt")
    corners = 0.02 * np.moveaxis(np.indices(other.shape), 0, -1).reshape(-1, 3) + other.lower
    samples = np.random.default_rng(2).uniform(0.001, 0.019, (12, 3))
    for offset in (*samples, *(0.001 + 0.018 * np.indices((2, 2, 2)).reshape(3, -1).T)):
        cell = np.floor((corners + offset - seen.lower) / 0.02).astype(int)
        inside = ((cell >= 0) & (cell < seen.shape)).all(axis=1)
        truth = np.zeros(len(cell), int)
        truth[inside] = states[tuple(cell[inside].T)]
        found = other.states.reshape(-1)
        assert (truth[found == 1] == 1).all()
        assert (found[truth == 2] == 2).all()
    assert (other.states == 1).mean() > 0.2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"OcTree\n", "must begin with '# Octomap OcTree binary file'"),
        (by_hand(".bt").replace(b"res 0.25", b"res -1"), "res must be positive"),
        (by_hand(".bt").replace(b"size 19", b"size 20"), "the 20 nodes of its header, got 19"),
        (by_hand(".bt").replace(b"id OcTree", b"id Mine"), "id must be OcTree, got 'Mine'"),
        (by_hand(".bt").replace(b"size 19\n", b""), r"id, size and res, got none of \['size'\]"),
        (by_hand(".bt")[:-1], "unpack"),
        (by_hand(".bt").replace(b"\ndata\n", b"\n"), "a line 'data'"),
    ],
)
def test_damaged_files(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "map.bt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        OccupancyMap.load(file)


def test_what_no_file_has(tmp_path: Path) -> None:
    seen: Any = OccupancyMap(((0, 0, 0), (1, 1, 1)), 0.5)
    with pytest.raises(ValueError, match=r"must end with \.npz, \.bt or \.ot"):
        seen.save(tmp_path / "map.pcd")
    seen.save(tmp_path / "map.ot")
    with pytest.raises(ValueError, match="bounds must be given for an OctoMap without voxels"):
        OccupancyMap.load(tmp_path / "map.ot")
    assert OccupancyMap.load(tmp_path / "map.ot", bounds=((0, 0, 0), (1, 2, 1))).shape == (2, 4, 2)
    seen.save(tmp_path / "map.npz")
    with pytest.raises(ValueError, match=r"bounds must be given for \.bt and \.ot files alone"):
        OccupancyMap.load(tmp_path / "map.npz", bounds=((0, 0, 0), (1, 1, 1)))
    far = OccupancyMap(((4e4, 0, 0), (4e4 + 1, 1, 1)), 0.5)
    with pytest.raises(ValueError, match="within 32768 voxels of 0"):
        far.save(tmp_path / "map.bt")


@pytest.mark.parametrize("unknown", ["occupied", "free"])
def test_distances_for_other_planners(unknown: Any) -> None:
    """As the library has them of the voxels, up to where they are cut off."""
    seen = OccupancyMap(((-0.3, 0.1, 0.0), (0.5, 0.7, 0.44)), 0.04)
    states = np.random.default_rng(4).choice(3, seen.shape, p=(0.002, 0.995, 0.003))
    seen._states.copy_(torch.tensor(states.T.reshape(-1), dtype=torch.uint8))
    found = seen.to_esdf(0.17, unknown=unknown)
    world = MeshWorld(device="cpu")
    world.add("map", seen.to_voxel_grid(unknown))
    centers = seen.lower + 0.04 * (np.moveaxis(np.indices(seen.shape), 0, -1) + 0.5)
    truth = signed_distance(torch.tensor(centers).float().reshape(-1, 3), world).distance
    expected = truth.numpy().reshape(seen.shape).clip(-0.17, 0.17)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found.max() == np.float32(0.17)
    assert np.abs(seen.to_esdf(2.4, unknown=unknown)).max() < 0.8
    for wrong in (0.0, 2.5):
        with pytest.raises(ValueError, match="max_distance must be from one voxel to 60"):
            seen.to_esdf(wrong)

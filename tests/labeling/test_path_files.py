"""Readers of paths: HDF5 in the layout of MPiNets, LeRobot episodes, Parquet in slices."""

import json
from pathlib import Path

import numpy as np
import pytest

from labels import problem_rows, world_of
from warp_collision.examples import load_panda
from warp_collision.labeling import PathFiles, PathLabeler

h5py = pytest.importorskip("h5py")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

JOINTS = tuple(f"panda_joint{index}" for index in range(1, 8))


def all_rows(paths: list[Path], size: int = 4, **options) -> list:
    files = PathFiles(paths, joint_names=JOINTS, **options)
    return [row for part in files.slices(size) for row in files.read(part)]


def write_mpinets(file: Path, count: int) -> list:
    """The paths of problems with their obstacles in slots, some of which are empty."""
    rows = problem_rows(count, seed=7, horizon=9)
    sizes = {"cuboid": 16, "cylinder": 12}
    with h5py.File(file, "w") as archive:
        archive["hybrid_solutions"] = np.stack([row.path for row in rows])
        for kind, slots in sizes.items():
            centers, turns = np.zeros((count, slots, 3)), np.zeros((count, slots, 4))
            size = np.zeros((count, slots, 3 if kind == "cuboid" else 2))
            for index, row in enumerate(rows):
                for slot, entry in enumerate(world_of(row.world)[kind].values(), 1):
                    centers[index, slot], turns[index, slot] = entry["pose"][:3], entry["pose"][3:]
                    values = entry.get("dims") or [entry["radius"], entry["height"]]
                    size[index, slot] = values
            # A slot that is full but for its size is empty, too.
            turns[:, 0, 0], centers[:, 0] = 1.0, 0.4
            archive[f"{kind}_centers"], archive[f"{kind}_quaternions"] = centers, turns
            if kind == "cuboid":
                archive["cuboid_dims"] = size
            else:
                archive["cylinder_radii"] = size[..., :1]
                archive["cylinder_heights"] = size[..., 1:]
    return rows


def test_mpinets(tmp_path):
    file = tmp_path / "train.hdf5"
    rows = write_mpinets(file, 10)
    read = all_rows([file])
    assert [row.id for row in read] == [f"train.hdf5:{index}" for index in range(10)]
    np.testing.assert_array_equal(np.stack([r.path for r in read]), [r.path for r in rows])
    panda = load_panda()
    found = PathLabeler(panda).label(read)
    expected = PathLabeler(panda, {row.world: world_of(row.world) for row in rows}).label(rows)
    assert found["error"].tolist() == [None] * 10
    for name in ("free", "clearance", "first_contact", "link"):
        np.testing.assert_array_equal(found[name], expected[name])
    assert not found["free"].all()


def test_a_wrong_slot_of_mpinets_is_an_error_of_its_row(tmp_path):
    file = tmp_path / "train.h5"
    write_mpinets(file, 3)
    with h5py.File(file, "r+") as archive:
        archive["cuboid_dims"][1, 2, 0] = np.nan
        archive["cuboid_quaternions"][1, 2] = [1, 0, 0, 0]
    errors = PathLabeler(load_panda()).label(all_rows([file]))["error"].tolist()
    assert errors[0] is None
    assert errors[2] is None
    assert "cuboid 2" in errors[1]
    with h5py.File(tmp_path / "other.h5", "w") as archive:
        archive["solutions"] = np.zeros((2, 3, 7))
    (row,) = all_rows([tmp_path / "other.h5"])
    assert "must have an array 'hybrid_solutions' or 'global_solutions'" in row.error
    assert len(all_rows([tmp_path / "other.h5"], columns={"path": "solutions"})) == 2
    (tmp_path / "torn.h5").write_bytes(b"\x89HDF")
    assert all_rows([tmp_path / "torn.h5"])[0].error.startswith(str(tmp_path / "torn.h5"))


def write_lerobot(folder: Path, lengths: list[int], version: str = "v3.0") -> np.ndarray:
    """A data set of some episodes in two files; returns all frames."""
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps({"codebase_version": version}))
    data = folder / "data" / "chunk-000"
    data.mkdir(parents=True)
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    frames = np.concatenate([np.arange(length) for length in lengths])
    states = np.random.default_rng(0).normal(size=(len(frames), 7)).astype(np.float32)
    half = sum(lengths[: len(lengths) // 2])
    for index, part in enumerate((slice(0, half), slice(half, None))):
        table = {
            "observation.state": pa.array([*states[part]], pa.list_(pa.float32(), 7)),
            "action": pa.array([*states[part]], pa.list_(pa.float32())),
            "episode_index": episodes[part],
            "frame_index": frames[part],
        }
        pq.write_table(pa.table(table), data / f"file-{index:03d}.parquet", row_group_size=5)
    return states


def test_lerobot_episodes_are_paths(tmp_path):
    lengths = [3, 6000, 1, 8]  # one goes over several batches that are read
    states = write_lerobot(tmp_path / "set", lengths)
    rows = all_rows([tmp_path / "set"])
    assert [row.id for row in rows] == [0, 1, 2, 3]
    assert [len(row.path) for row in rows] == lengths
    np.testing.assert_array_equal(np.concatenate([row.path for row in rows]), states)
    assert not any(row.error for row in rows)
    actions = all_rows([tmp_path / "set"], columns={"path": "action"})
    np.testing.assert_array_equal(actions[3].path, rows[3].path)
    (row, *_) = all_rows([tmp_path / "set"], columns={"path": "observation.joints"})
    assert "must have a column 'observation.joints'" in row.error
    write_lerobot(tmp_path / "old", [2, 2], "v2.1")
    with pytest.raises(ValueError, match=r"codebase_version must be v3, got 'v2\.1'"):
        all_rows([tmp_path / "old"])


def test_an_episode_that_is_torn_is_an_error(tmp_path):
    write_lerobot(tmp_path / "set", [4, 4])
    file = tmp_path / "set" / "data" / "chunk-000" / "file-001.parquet"
    pq.write_table(pq.read_table(file).slice(2), file)
    rows = all_rows([tmp_path / "set"])
    assert rows[0].error is None
    assert rows[1].error == "episode must begin in this file with frame 0, got frame 2"


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_slices_of_parquet(tmp_path, size):
    rows = problem_rows(20, seed=8)
    table = pa.table({"joints": [row.path.tolist() for row in rows], "extra": range(20)})
    pq.write_table(table, tmp_path / "paths.parquet", row_group_size=6)
    files = PathFiles([tmp_path / "paths.parquet"], joint_names=JOINTS)
    assert files.count() == 20
    parts = [*files.slices(size)]
    assert max(part.end - part.begin for part in parts) == min(size, 6)  # a row group
    read = [row for part in parts for row in files.read(part)]
    assert [row.id for row in read] == [f"paths.parquet:{index}" for index in range(20)]
    for one, other in zip(read, rows, strict=True):
        np.testing.assert_array_equal(one.path, other.path)


def test_ids_are_unique_and_independent_of_the_place(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "paths.npy", np.zeros((2, 3, 7)))
    rows = all_rows([tmp_path])
    assert [row.id for row in rows] == [f"{n}/paths.npy:{i}" for n in "ab" for i in (0, 1)]
    rows = all_rows([tmp_path / "a", tmp_path / "b"])
    assert len({row.id for row in rows}) == 4


def test_a_row_is_found_by_its_id(tmp_path):
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(5)
    paths = rng.uniform(-1, 1, (90, 4, 7)).astype(np.float32)
    with h5py.File(tmp_path / "b.h5", "w") as archive:
        archive["hybrid_solutions"] = paths
        archive["cuboid_dims"] = rng.uniform(0.1, 0.2, (90, 2, 3))
        archive["cuboid_centers"] = rng.uniform(-1, 1, (90, 2, 3))
        archive["cuboid_quaternions"] = np.tile([1.0, 0, 0, 0], (90, 2, 1))
        sizes = archive["cuboid_dims"][77, 1].tolist()
    alone = PathFiles([tmp_path / "b.h5"], joint_names=JOINTS)
    for wanted in ("77", "b.h5:77"):
        row = alone.find(wanted)
        np.testing.assert_array_equal(row.path, paths[77])
        assert row.world["cuboid"]["cuboid 1"]["dims"] == sizes
    with pytest.raises(ValueError, match="got '90' of no row"):
        alone.find("90")
    columns = {"name": ["x", "y", "x", None], "path": paths[:4].tolist()}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=3)
    both = PathFiles([tmp_path], columns={"id": "name"}, joint_names=JOINTS)
    np.testing.assert_array_equal(both.find("y").path, paths[1])
    np.testing.assert_array_equal(both.find("a.parquet:3").path, paths[3])
    np.testing.assert_array_equal(both.find("b.h5:3").path, paths[3])
    with pytest.raises(ValueError, match=r"'x' of the rows a.parquet:0, a.parquet:2"):
        both.find("x")
    with pytest.raises(ValueError, match="got '3' of no row"):
        both.find("3")

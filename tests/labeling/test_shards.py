"""Shards of WebDataset: a path for each sample, in whatever members it is."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_label_command import label, read, write_paths

from labels import assert_same, problem_rows, world_of
from robots import PANDA
from warp_collision.cli.__main__ import main
from warp_collision.examples import load_panda
from warp_collision.labeling import PathFiles, PathLabeler

JOINTS = tuple(f"panda_joint{index}" for index in range(1, 8))


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def write_shard(file: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(file, "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file


def rows_of(file: Path | str, **options: Any) -> list:
    files = PathFiles([file], joint_names=JOINTS, **options)
    return [row for part in files.slices(4) for row in files.read(part)]


def test_samples_are_paths(tmp_path):
    rows = problem_rows(6, seed=12)
    pose = [0.1, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    turned = [*JOINTS[::-1]]
    members = [
        ("run/0.0/000.npz", npz(path=rows[0].path, times_of_day=np.zeros(3))),
        ("run/0.0/000.json", json.dumps({"world": world_of(rows[0].world)}).encode()),
        ("./001.jpg", b"not read"),
        ("./001.json", json.dumps({"world": world_of(rows[1].world), "id": 71}).encode()),
        ("./001.npy", npy(rows[1].path)),
        ("002.joints.npy", npy(rows[2].path)),
        ("002.world.json", json.dumps(world_of(rows[2].world)).encode()),
        ("003.meta.JSON", json.dumps({"joints": rows[3].path.tolist(), "env": 0}).encode()),
        ("003.npz", npz(base_pose=pose, world=json.dumps(world_of(rows[3].world)))),
        ("004.npz", npz(path=rows[4].path[:, ::-1], joint_names=turned)),
        ("004.json", json.dumps({"world": world_of(rows[4].world)}).encode()),
        ("README", b"no sample"),
    ]
    file = write_shard(tmp_path / "shard-000000.tar", members)
    found = rows_of(file)
    assert [row.id for row in found] == ["run/0.0/000", 71, "002", "003", "004"]
    assert [row.source for row in found] == [("shard-000000.tar", index) for index in range(5)]
    assert [row.error for row in found] == [None] * 5
    for row, other in zip(found, rows[:5], strict=True):
        np.testing.assert_array_equal(np.array(row.path, np.float32), other.path)
    worlds = {row.world: world_of(row.world) for row in rows}
    expected = [rows[0], rows[1], rows[2], rows[3]._replace(base_pose=pose), rows[4]]
    labels = PathLabeler(load_panda()).label(found)
    assert_same(labels, PathLabeler(load_panda(), worlds).label(expected))
    assert labels["error"].tolist() == [None] * 5


def test_what_is_wrong_is_an_error_of_its_sample(tmp_path):
    good = npy(np.zeros((2, 7)))
    members = [
        ("0.npy", good),
        ("1.json", b"{"),
        ("2.npz", b"PK"),
        ("3.json", b"[1]"),
        ("4.jpg", b""),
        ("5.npz", npz(path=np.zeros((2, 7)), times=[0.0, 1.0], velocities=np.zeros((2, 7)))),
        ("6.npy", npy(np.array([{}], dtype=object))),
        ("7.npz", npz(path=np.zeros((2, 7)), joint_names=["a"] * 7)),
        ("8.json", b"[" * 100_000),
        ("9.npy", good),
    ]
    errors = {row.id: row.error for row in rows_of(write_shard(tmp_path / "a.tar", members))}
    assert [key for key, error in errors.items() if error is None] == ["0", "9"]
    assert len(errors) == 10
    assert errors["1"].startswith("sample '1': .json: ")
    assert ".npz: " in errors["2"]
    assert "must be a mapping, got [1]" in errors["3"]
    assert "the column of paths must be" in errors["4"]
    assert "a trajectory must be a file of its own" in errors["5"]
    assert "6" in errors
    assert "joint names must be panda_joint1" in errors["7"]


@pytest.mark.parametrize("left", [0.3, 0.5, 0.7, 0.9])
def test_a_shard_that_is_cut_off_is_an_error(tmp_path, left):
    """Also between two samples, where a reader of tar files sees the end of the file."""
    members = [(f"{index}.npy", npy(np.zeros((2, 7)))) for index in range(40)]
    content = write_shard(tmp_path / "a.tar", members).read_bytes()
    content = content[: 40 * 1024]  # without the zeros of its end
    for cut in (int(left * 40) * 1024, int(left * 40) * 1024 + 512, int(left * 40) * 1024 + 700):
        (tmp_path / "a.tar").write_bytes(content[:cut])
        *whole, last = rows_of(tmp_path / "a.tar")
        assert last.error is not None
        assert "a.tar" in last.error
        assert all(row.error is None for row in whole)
        assert len(whole) <= cut // 1024


def test_the_command_labels_shards(tmp_path):
    """With the bits of the same rows in a Parquet file; in two shards, at two times."""
    pq = pytest.importorskip("pyarrow.parquet")
    table = pq.read_table(write_paths(tmp_path, 30)).to_pylist()
    assert label(tmp_path, "whole", "--quiet") == 0
    expected = read(tmp_path / "whole")
    (tmp_path / "shards").mkdir()
    for part in range(3):
        members = []
        for row in table[part * 10 : part * 10 + 10]:
            about = {"world": row["world"], "id": row["id"]}
            key = row["id"].replace(" ", "-")
            members += [(f"{key}.npz", npz(path=np.float32(row["path"])))]
            members += [(f"{key}.json", json.dumps(about).encode())]
        write_shard(tmp_path / "shards" / f"paths-{part:06d}.tar", members)
    command = ["label", str(tmp_path / "shards"), f"--robot={PANDA}", "--device=cpu", "--quiet"]
    command += [f"--world={tmp_path / 'worlds'}", f"--out={tmp_path / 'out'}"]
    for shard in ("1/2", "0/2"):
        assert main([*command, "--shard", shard]) == 0
    found = read(tmp_path / "out")
    assert sorted(set(found.source)) == [f"paths-{part:06d}.tar" for part in range(3)]
    columns = [name for name in expected.columns if name not in ("source", "row")]
    import pandas as pd

    pd.testing.assert_frame_equal(found[columns], expected[columns], check_exact=True)


def test_a_row_is_found_by_its_key_or_number(tmp_path):
    for part in range(2):
        members = [(f"{key}.npy", npy(np.full((2, 7), part + 0.1))) for key in "ab"]
        write_shard(tmp_path / f"{part}.tar", members)
    files = PathFiles([tmp_path], joint_names=JOINTS)
    assert files.count() is None
    row = files.find("1.tar:1")
    assert (row.id, row.path[0, 0]) == ("b", 1.1)
    with pytest.raises(ValueError, match=r"got 'a' of the rows 0\.tar:0, 1\.tar:0"):
        files.find("a")
    with pytest.raises(ValueError, match=r"got '1\.tar:2' of no row"):
        files.find("1.tar:2")


@pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning")  # it closes no file
def test_shards_of_webdataset_itself(tmp_path):
    """Written by the library, and labels read by it."""
    webdataset = pytest.importorskip("webdataset")
    rows = problem_rows(4, seed=13)
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as tar:
        for index, row in enumerate(rows):
            about = {"world": world_of(row.world)}
            tar.write({"__key__": f"{index:06d}", "npy": row.path, "json": about})
    found = rows_of(tmp_path / "a.tar")
    assert [row.id for row in found] == [f"{index:06d}" for index in range(4)]
    assert not any(PathLabeler(load_panda()).label(found)["error"])
    read = webdataset.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False)
    assert [sample["__key__"] for sample in read] == [row.id for row in found]

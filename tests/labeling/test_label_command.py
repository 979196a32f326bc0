"""`warp-collision label`: parts, resumed runs, and a cluster whose workers are killed."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from trimesh.creation import box

from cases import mostly_slow
from labels import problem_rows, world_of
from robots import PANDA
from warp_collision import RobotSpheres
from warp_collision.cli.__main__ import main
from warp_collision.examples import load_panda
from warp_collision.labeling import PathFiles, PathLabeler, PathRow
from warp_collision.labeling.on_ray import SliceLabeler
from warp_collision.labeling.parts import PartWriter, WrittenRows, labelled

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()


def write_paths(folder: Path, count: int, horizon: int | None = None) -> Path:
    """A Parquet file of paths of problems, and a file for each of their worlds."""
    rows = problem_rows(count, seed=9, horizon=horizon)
    (folder / "worlds").mkdir(exist_ok=True)
    for name in {row.world for row in rows}:
        (folder / "worlds" / f"{name}.yaml").write_text(json.dumps(world_of(name)))
    table = {
        "id": [row.id for row in rows],
        "path": [row.path.tolist() for row in rows],
        "world": [f"{row.world}.yaml" for row in rows],
    }
    pq.write_table(pa.table(table), folder / "paths.parquet", row_group_size=1000)
    return folder / "paths.parquet"


def label(folder: Path, out: str, *arguments: object) -> int:
    options = [f"--robot={PANDA}", f"--world={folder / 'worlds'}", f"--out={folder / out}"]
    paths = str(folder / "paths.parquet")
    return main(["label", paths, *options, "--device=cpu", *map(str, arguments)])


def parts_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("part-*.parquet"))


def read(folder: Path) -> "pd.DataFrame":
    return pd.read_parquet(folder).sort_values("id", ignore_index=True)


def test_one_command_and_pandas(tmp_path, capsys):
    write_paths(tmp_path, 40)
    assert label(tmp_path, "out", "--part-rows=16", "--batch-rows=8", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    parts = parts_of(tmp_path / "out")
    assert [name[-14:] for name in parts] == [f"{index:06d}.parquet" for index in range(3)]
    labels = read(tmp_path / "out")
    assert len(labels) == summary["labelled"] == 40
    assert labels.free.sum() == summary["free"] > 3
    assert summary["with_errors"] == labels.error.notna().sum() == 0
    assert summary["first_error"] is None
    assert labels.clearance.dtype == np.float32
    assert (labels.clearance[labels.free] > 0.0).all()
    assert labels.first_contact.isna().equals(labels.free)
    # Another batch size, another cache: the same bits.
    assert label(tmp_path, "again", "--batch-rows=64", "--cache-mib=2", "--quiet") == 0
    pd.testing.assert_frame_equal(read(tmp_path / "again"), labels, check_exact=True)


def test_the_first_error_is_told(tmp_path, capsys):
    """Else nobody knows why all rows of a wrong robot or of spheres have errors."""
    write_paths(tmp_path, 2)
    np.save(tmp_path / "spheres.npy", np.zeros((2, 3, 4)))
    world = next((tmp_path / "worlds").iterdir())
    robot = [f"--robot={PANDA}", f"--world={world}", "--device=cpu"]
    wrong = str(tmp_path / "spheres.npy")
    assert main(["label", wrong, *robot, f"--out={tmp_path / 'out'}"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("note: of path ")
    assert "joints must have shape (7,)" in lines[0]
    assert lines[1].startswith("1 paths labelled: 0 proven free, 1 with errors")


def test_worlds_that_are_not_found_ask_for_their_folder(tmp_path, capsys):
    file = str(write_paths(tmp_path, 2))
    assert main(["label", file, f"--robot={PANDA}", f"--out={tmp_path / 'out'}"]) == 2
    assert "--world names the folder that files of worlds are in" in capsys.readouterr().out


def test_what_is_written_is_not_computed_again(tmp_path, capsys):
    write_paths(tmp_path, 40)
    assert label(tmp_path, "whole", "--quiet") == 0
    assert label(tmp_path, "out", "--part-rows=8", "--batch-rows=8", "--quiet") == 0
    out = tmp_path / "out"
    # As a run leaves it that was killed while it wrote its third part.
    for name in parts_of(out)[2:]:
        (out / name).unlink()
    left = out / parts_of(out)[0].replace("part-", "_part-").replace("000000.parquet", "000002.tmp")
    left.write_bytes(b"PAR1")
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    capsys.readouterr()
    assert label(tmp_path, "out", "--part-rows=8", "--batch-rows=8", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["written_before"], summary["labelled"]) == (16, 24)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    pd.testing.assert_frame_equal(read(out), read(tmp_path / "whole"), check_exact=True)
    assert not left.exists()
    assert label(tmp_path, "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["labelled"] == 0


def test_errors_are_rows(tmp_path, capsys):
    file = write_paths(tmp_path, 6)
    table = pq.read_table(file).to_pylist()
    table[1]["path"][0][0] = float("nan")
    table[2]["world"] = "none.yaml"
    table[3]["path"] = [[0.0] * 6] * 2
    pq.write_table(pa.Table.from_pylist(table), file)
    assert label(tmp_path, "out") == 1
    told = capsys.readouterr().out
    assert "6 paths labelled: " in told
    assert "3 rows of " in told
    assert "  1 x path must be finite, got nan at waypoint 0" in told
    labels = read(tmp_path / "out")
    assert labels.error.notna().tolist() == [False, True, True, True, False, False]
    assert labels.error[2].endswith("none.yaml: no such file")
    assert not labels.free[1:4].any()


def test_the_three_most_frequent_reasons_are_told(tmp_path, capsys):
    """Of all rows in the folder, the most frequent first, and of those of earlier runs too."""
    file = write_paths(tmp_path, 14)
    rows = pq.read_table(file).to_pylist()
    for index, row in enumerate(rows[:11]):
        if index < 4:
            row["path"] = [[0.0] * 6] * 2
        elif index < 7:
            row["world"] = "none.yaml"
        elif index < 9:
            row["path"][0][0] = float("inf")
        elif index < 10:
            row["path"] = []
        else:
            row["path"][0][0] = 1e30
    order = np.random.default_rng(4).permutation(14)
    pq.write_table(pa.Table.from_pylist([rows[index] for index in order]), file)
    for count in (14, 0):
        assert label(tmp_path, "out", "--part-rows=4", "--batch-rows=3") == 1
        lines = capsys.readouterr().out.splitlines()
        (begin,) = (i for i, line in enumerate(lines) if line.endswith("have errors, most often:"))
        assert lines[begin] == f"11 rows of {tmp_path / 'out'} have errors, most often:"
        assert lines[begin + 1] == "  4 x path must have shape (horizon, 7), got (2, 6)"
        assert lines[begin + 2].startswith("  3 x ")
        assert lines[begin + 2].endswith("none.yaml: no such file")
        assert lines[begin + 3] == "  2 x path must be finite, got inf at waypoint 0"
        assert lines[begin + 4] == "--retry-errors labels them again"
        assert lines[begin - 1].startswith(f"{count} paths labelled")
    assert label(tmp_path, "out", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [*found["errors"].values()] == [4, 3, 2]
    assert (found["labelled"], found["errors_in_all"]) == (0, 11)


def test_wrong_usage(tmp_path, capsys):
    write_paths(tmp_path, 2)
    assert label(tmp_path, "out", "--workers=2") == 2
    assert "--workers and --gpus-per-worker must be given with --ray" in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    assert label(tmp_path, "full") == 2
    assert "full: must be empty or have parts of an earlier run" in capsys.readouterr().err
    assert label(tmp_path, "out", "--outputs", "freedom") == 2
    assert "outputs must be of free, clearance" in capsys.readouterr().err


def flat(text: str) -> str:
    """A text without the ends of its lines."""
    return " ".join(text.split())


def with_ids(folder: Path, ids: list[object]) -> None:
    """Gives the rows of the paths other ids."""
    table = pq.read_table(folder / "paths.parquet")
    column = table.column_names.index("id")
    pq.write_table(table.set_column(column, "id", pa.array(ids)), folder / "paths.parquet")


def test_ids_that_occur_twice_are_rows_of_their_own(tmp_path, capsys):
    write_paths(tmp_path, 24)
    with_ids(tmp_path, [f"row {index % 5}" for index in range(24)])
    assert label(tmp_path, "out", "--part-rows=4", "--batch-rows=4", "--quiet") == 0
    for name in parts_of(tmp_path / "out")[3:]:
        (tmp_path / "out" / name).unlink()
    assert label(tmp_path, "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["labelled"] == 12
    assert sorted(read(tmp_path / "out")["row"]) == [*range(24)]


def test_slices_of_a_cluster_have_all_rows_whose_ids_occur_twice(tmp_path):
    """What a worker of Ray calls, without Ray."""
    file = write_paths(tmp_path, 24)
    with_ids(tmp_path, [index % 12 for index in range(24)])
    files = PathFiles([file], joint_names=load_panda().joint_names)
    labeler = PathLabeler(load_panda(), folder=tmp_path / "worlds", outputs=["free"])
    written = WrittenRows()
    written.add((file.name, row) for row in (3, 15, 16))
    label_slices = SliceLabeler(files, labeler, written, files.id_type())
    tables = []
    for one in files.slices(5):
        columns = one._replace(end=-1 if one.end is None else one.end)._asdict()
        tables.append(label_slices({name: np.array([value]) for name, value in columns.items()}))
    found = pa.concat_tables(tables)
    assert found["row"].to_pylist() == [row for row in range(24) if row not in (3, 15, 16)]
    assert found["id"].to_pylist() == [row % 12 for row in found["row"].to_pylist()]


def test_ids_keep_their_type(tmp_path):
    write_paths(tmp_path, 8)
    with_ids(tmp_path, [*range(100, 108)])
    assert label(tmp_path, "out", "--quiet") == 0
    labels = pd.read_parquet(tmp_path / "out")
    assert labels["id"].dtype == np.int64
    joined = pd.read_parquet(tmp_path / "paths.parquet").merge(labels, on="id")
    assert len(joined) == 8


def test_the_data_loader_of_the_page_finds_the_rows_that_are_free(tmp_path):
    """By ids that are numbers, in the labels that the command wrote."""
    paths = write_paths(tmp_path, 40, horizon=8)
    with_ids(tmp_path, [*range(100, 140)])
    assert label(tmp_path, "out", "--quiet") == 0
    (block,) = (text for text in PAGE.split("```python\n") if "class FreePaths" in text)
    names: dict = {"pq": pq}
    exec(block.partition("loader =")[0], names)
    data = names["FreePaths"](paths, tmp_path / "out")
    found = [*names["DataLoader"](data, batch_size=None)]
    joined = pd.read_parquet(paths).merge(read(tmp_path / "out"), on="id")
    expected = joined[joined.free]
    assert 3 < len(found) == len(expected) < 40
    for (path, clearance), row in zip(found, expected.itertuples(), strict=True):
        np.testing.assert_array_equal(path.numpy(), np.stack(row.path))
        assert clearance == row.clearance


def test_another_run_into_the_folder_is_refused(tmp_path, capsys, monkeypatch):
    """Else old and new answers would stand in one table."""
    file = write_paths(tmp_path, 8)
    assert label(tmp_path, "out", "--outputs", "free", "--quiet") == 0
    before = read(tmp_path / "out")
    assert label(tmp_path, "out", "--quiet") == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "has labels of another run, whose outputs was ['free'], got None" in told
    world = next((tmp_path / "worlds").iterdir())
    content, about = world.read_text(), world.stat()
    world.write_text(content.replace("0", "1", 1))  # of the same size and time
    os.utime(world, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert label(tmp_path, "out", "--outputs", "free", "--quiet") == 2
    assert f"other files of the worlds: {world.name} changed;" in flat(capsys.readouterr().err)
    world.unlink()
    assert label(tmp_path, "out", "--outputs", "free", "--quiet") == 2
    assert f"other files of the worlds: {world.name} removed;" in flat(capsys.readouterr().err)
    world.write_text(content)  # at another time
    (tmp_path / "worlds" / "notes.txt").touch()
    assert label(tmp_path, "out", "--outputs", "free", "--quiet") == 0
    robot = tmp_path / "panda.urdf"
    robot.write_text(PANDA.read_text() + "<!-- -->")
    (tmp_path / "meshes").symlink_to(PANDA.parent / "meshes")
    assert label(tmp_path, "out", "--outputs", "free", "--quiet", f"--robot={robot}") == 2
    assert "with other files of the robot: panda.urdf changed" in capsys.readouterr().err
    monkeypatch.setattr("warp_collision.cli.label_paths.version", lambda name: "0.0")
    assert label(tmp_path, "out", "--outputs", "free", "--quiet") == 2
    assert "whose version was" in capsys.readouterr().err
    monkeypatch.undo()
    file.write_bytes(file.read_bytes())  # at another time
    assert label(tmp_path, "out", "--outputs", "free", "--quiet") == 2
    assert "with other files of the inputs: paths.parquet changed;" in capsys.readouterr().err
    pd.testing.assert_frame_equal(read(tmp_path / "out"), before, check_exact=True)
    assert label(tmp_path, "out", "--overwrite", "--quiet") == 0
    assert "clearance" in read(tmp_path / "out")
    assert len(read(tmp_path / "out")) == 8


def write_robot(folder: Path, size: float) -> Path:
    """A robot of one joint, whose link is a box in a mesh file."""
    box((size, size, size)).export(folder / "arm.stl")
    (folder / "arm.urdf").write_text(
        '<robot name="arm"><link name="base"/><link name="arm"><collision><geometry>'
        '<mesh filename="arm.stl"/></geometry></collision></link><joint name="j" type="revolute">'
        '<parent link="base"/><child link="arm"/><axis xyz="0 0 1"/>'
        '<limit lower="-3" upper="3" effort="1" velocity="1"/></joint></robot>'
    )
    return folder / "arm.urdf"


@pytest.mark.parametrize("saved", [False, True])
def test_a_mesh_of_the_robot_that_changed_is_noticed(tmp_path, capsys, saved):
    robot, paths = write_robot(tmp_path, 0.1), tmp_path / "arm.npy"
    np.save(paths, np.linspace(-1, 1, 24).reshape(4, 6, 1))
    if saved:
        RobotSpheres(robot).save(robot := tmp_path / "arm.yaml")
    (tmp_path / "world.yaml").write_text(json.dumps(world_of("cage_1")))
    command = ["label", str(paths), f"--robot={robot}", f"--world={tmp_path / 'world.yaml'}"]
    command += [f"--out={tmp_path / 'out'}", "--device=cpu", "--quiet", "--outputs", "free"]
    assert main(command) == 0
    write_robot(tmp_path, 0.2)
    assert main(command) == 2
    assert "with other files of the robot: arm.stl changed; give" in flat(capsys.readouterr().err)
    assert main([*command, "--overwrite"]) == 0


def with_mesh(folder: Path, size: float) -> Path:
    """Writes a world that names a mesh outside of the folder of worlds; returns the mesh."""
    for name in ("meshes", "worlds"):
        (folder / name).mkdir(exist_ok=True)
    box((size, size, size)).export(folder / "meshes" / "ball.stl")
    mesh = {"file_path": "../meshes/ball.stl", "pose": [1, 0, 0, 1, 0, 0, 0]}
    (folder / "worlds" / "a.yaml").write_text(json.dumps({"mesh": {"ball": mesh}}))
    return folder / "meshes" / "ball.stl"


def label_spheres(folder: Path, *options: str) -> int:
    """Labels 8 paths of spheres, the fourth of which may name another world."""
    if not (folder / "paths.parquet").exists():
        with_mesh(folder, 0.1)
        rows = [{"id": i, "path": [[[0.0, 0, i, 0.1]]] * 2, "world": "a.yaml"} for i in range(8)]
        rows[3]["world"] = "b.yaml"
        pq.write_table(pa.Table.from_pylist(rows), folder / "paths.parquet")
    command = ["label", str(folder / "paths.parquet"), f"--world={folder / 'worlds'}"]
    command += [f"--out={folder / 'out'}", "--device=cpu", "--outputs", "free", "--batch-rows=2"]
    return main([*command, "--part-rows=2", *options])


def test_a_mesh_outside_of_the_folder_of_worlds_that_changed_is_noticed(tmp_path, capsys):
    assert label_spheres(tmp_path, "--quiet") == 1
    for part in parts_of(tmp_path / "out")[2:]:
        (tmp_path / "out" / part).unlink()
    mesh = with_mesh(tmp_path, 2.5)
    assert label_spheres(tmp_path, "--quiet") == 2
    told = flat(capsys.readouterr().err)
    assert "with other files of the worlds: ../meshes/ball.stl changed; give" in told
    assert label_spheres(tmp_path, "--quiet", "--retry-errors") == 2
    mesh.unlink()
    assert label_spheres(tmp_path, "--quiet") == 2
    assert "../meshes/ball.stl removed; give" in flat(capsys.readouterr().err)
    with_mesh(tmp_path, 0.1)  # the same bytes at another time
    assert label_spheres(tmp_path, "--quiet") == 1
    assert len(read(tmp_path / "out")) == 8


def test_a_mesh_that_changed_is_noticed_by_another_shard(tmp_path, capsys):
    assert label_spheres(tmp_path, "--quiet", "--shard=0/2") in (0, 1)
    with_mesh(tmp_path, 2.5)
    assert label_spheres(tmp_path, "--quiet", "--shard=1/2") == 2
    assert "../meshes/ball.stl changed; give" in flat(capsys.readouterr().err)


def test_a_mesh_of_a_world_must_not_change_while_paths_are_labelled(tmp_path):
    mesh = with_mesh(tmp_path, 0.1)
    row = PathRow(np.float32([[[0, 0, 0, 0.1]]] * 2), "a.yaml")
    options = {"folder": tmp_path / "worlds", "outputs": ["free"]}
    since = (tmp_path / "worlds" / "a.yaml").stat().st_mtime + 1e-3  # written after the mesh
    labelers = [PathLabeler(**options), PathLabeler(**options, since=since)]
    assert [each.label([row])["error"][0] for each in labelers] == [None, None]
    time.sleep(0.02)
    with_mesh(tmp_path, 2.5)
    rule = "must not change while paths are labelled, but it was written since"
    for labeler in (*labelers, PathLabeler(**options, since=mesh.stat().st_mtime - 1.0)):
        error = labeler.label([row])["error"][0]
        assert rule in error
        assert "ball.stl" in error or "a.yaml" in error


def test_two_states_of_a_world_are_not_in_one_table(tmp_path):
    """As processes of a cluster may read it, each before the other is told."""
    with_mesh(tmp_path, 0.1)
    row = PathRow(np.float32([[[0, 0, 0, 0.1]]] * 2), "a.yaml", "row", source=("p", 0))
    with PartWriter(tmp_path / "out", 10, {}, worlds=tmp_path / "worlds") as writer:
        for size in (0.1, 2.5):
            with_mesh(tmp_path, size)
            labeler = PathLabeler(folder=tmp_path / "worlds", outputs=["free"])
            table = labelled(labeler, [row], "string")
            if size == 0.1:
                writer.add(table)
                continue
            with pytest.raises(
                ValueError, match=r"files of the worlds: \.\./meshes/ball.stl changed"
            ):
                writer.add(table)


def test_a_world_that_is_added_is_no_other_run(tmp_path):
    """Rows that named it have errors, which are repaired."""
    assert label_spheres(tmp_path) == 1
    (tmp_path / "worlds" / "b.yaml").write_text(json.dumps(world_of("cage_1")))
    assert label_spheres(tmp_path, "--retry-errors") == 0
    assert sorted(read(tmp_path / "out")["row"]) == [*range(8)]
    assert label_spheres(tmp_path) == 0


def test_labels_among_the_paths_are_no_paths(tmp_path, capsys):
    with_mesh(tmp_path, 0.1)
    (paths := tmp_path / "paths").mkdir()
    np.save(paths / "a.npy", np.full((3, 2, 1, 4), 0.1))
    command = ["label", str(paths), f"--world={tmp_path / 'worlds' / 'a.yaml'}", "--device=cpu"]
    command += [f"--out={paths / 'out'}", "--outputs=free"]
    for told in ("3 paths labelled: ", "0 paths labelled, 3 were there before\n"):
        assert main(command) == 0
        assert told in capsys.readouterr().out


def test_errors_are_told_of_a_quiet_run(tmp_path, capsys):
    assert label_spheres(tmp_path, "--quiet") == 1
    assert capsys.readouterr().err == f"1 row of {tmp_path / 'out'} has errors\n"


def test_a_part_that_is_cut_off_is_named(tmp_path, capsys):
    assert label_spheres(tmp_path, "--quiet") == 1
    part = tmp_path / "out" / parts_of(tmp_path / "out")[1]
    part.write_bytes(part.read_bytes()[:-20])
    assert label_spheres(tmp_path, "--quiet") == 2
    assert f"{part.name}: must be a part of labels, got one that" in flat(capsys.readouterr().err)


def test_errors_are_labelled_again_when_that_is_wanted(tmp_path, capsys):
    """A file that was not there for a while does not spoil the table for good."""
    write_paths(tmp_path, 12)
    common = ["label", str(tmp_path / "paths.parquet"), f"--robot={PANDA}", "--device=cpu"]
    common += [f"--out={tmp_path / 'out'}", "--part-rows=4", "--batch-rows=4"]
    (tmp_path / "worlds").rename(tmp_path / "gone")
    (tmp_path / "worlds").mkdir()
    command = [*common, f"--world={tmp_path / 'worlds'}"]
    assert main(command) == 2
    assert "12 rows of" in capsys.readouterr().out
    (tmp_path / "worlds").rmdir()
    (tmp_path / "gone").rename(tmp_path / "worlds")
    assert main(command) == 2
    assert "0 paths labelled, 12 were there before" in capsys.readouterr().out
    assert main([*command, "--retry-errors", "--quiet"]) == 0
    assert main([*command, "--quiet"]) == 0
    rows = pq.read_table(tmp_path / "paths.parquet").to_pylist()
    rows[5]["path"][0][0] = float("nan")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "paths.parquet")
    assert main([*command, "--overwrite"]) == 1
    assert main([*command, "--quiet"]) == 1
    assert main([*command, "--retry-errors", "--json"]) == 1
    out = capsys.readouterr().out
    found = json.loads(out[out.rindex("\n{") :])
    assert (found["written_before"], found["labelled"], found["errors_in_all"]) == (11, 1, 1)
    assert sorted(read(tmp_path / "out")["row"]) == [*range(12)]


@pytest.mark.slow
def test_shards_write_into_one_folder_at_the_same_time(tmp_path):
    write_paths(tmp_path, 60)
    assert label(tmp_path, "whole", "--quiet") == 0
    command = [sys.executable, "-m", "warp_collision.cli", "label", tmp_path / "paths.parquet"]
    command += [f"--robot={PANDA}", f"--world={tmp_path / 'worlds'}", f"--out={tmp_path / 'out'}"]
    command += ["--device=cpu", "--quiet", "--batch-rows=4", "--part-rows=4"]
    runs = [
        subprocess.Popen([*map(str, command), f"--shard={index}/2"], stderr=subprocess.PIPE)
        for index in range(2)
    ]
    assert [(run.communicate()[1], run.returncode) for run in runs] == [(b"", 0), (b"", 0)]
    found = read(tmp_path / "out")
    pd.testing.assert_frame_equal(found, read(tmp_path / "whole"), check_exact=True)


def slurm_script() -> str:
    """The array of Slurm jobs that the page on data sets has."""
    (script,) = (block for block in PAGE.split("```") if "#SBATCH" in block)
    assert "#SBATCH --array=0-7 " in script
    return script.removeprefix("text\n")


def test_the_array_of_slurm_jobs_labels_all_rows(tmp_path, monkeypatch):
    write_paths(tmp_path, 30)
    (tmp_path / "panda.urdf").symlink_to(PANDA)
    assert label(tmp_path, "whole", "--quiet") == 0
    monkeypatch.chdir(tmp_path)
    for task in range(8):
        text = slurm_script().replace("$SLURM_ARRAY_TASK_ID", str(task)).replace("\\\n", " ")
        program, *arguments = shlex.split(text, comments=True)
        assert program == "warp-collision"
        # Slices of 512 rows are shares, of which so few rows are one.
        assert main([*arguments, "--device=cpu", "--quiet", "--batch-rows=2"]) == 0
    found = read(tmp_path / "labels")
    pd.testing.assert_frame_equal(found, read(tmp_path / "whole"), check_exact=True)
    assert len({name.split("-")[3] for name in parts_of(tmp_path / "labels")}) == 8


@pytest.mark.slow
def test_the_text_of_the_slurm_script_runs_as_it_is(tmp_path):
    """By a shell, a job after the other; where SIGTERM comes, Slurm runs the job again."""
    write_paths(tmp_path, 30)
    (tmp_path / "panda.urdf").symlink_to(PANDA)
    assert label(tmp_path, "whole", "--quiet") == 0
    (tmp_path / "job.sh").write_text(slurm_script())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for task in range(8):
        environment = {**os.environ, "PATH": path, "SLURM_ARRAY_TASK_ID": str(task)}
        subprocess.run(["bash", "job.sh"], cwd=tmp_path, env=environment, check=True)
    found = read(tmp_path / "labels")
    pd.testing.assert_frame_equal(found, read(tmp_path / "whole"), check_exact=True)


def test_two_runs_of_one_shard_are_refused(tmp_path, capsys):

    write_paths(tmp_path, 4)
    with PartWriter(tmp_path / "out", 10, {}):
        assert label(tmp_path, "out") == 2
        assert "another process is labelling into this folder" in capsys.readouterr().err
        assert label(tmp_path, "out", "--shard=1/2", "--overwrite") == 2
        assert "--overwrite must be given without --shard" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        label(tmp_path, "out", "--shard=2/2")
    assert "must be I/N with I from 0 to N - 1, got '2/2'" in capsys.readouterr().err


def test_a_row_names_no_file_outside_of_the_worlds(tmp_path):
    write_paths(tmp_path, 3)
    table = pq.read_table(tmp_path / "paths.parquet").to_pylist()
    (tmp_path / "own.yaml").write_text(
        json.dumps(world_of(table[1]["world"].removesuffix(".yaml")))
    )
    table[0]["world"] = "/etc/passwd"
    table[1]["world"] = "../own.yaml"
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "paths.parquet")
    assert label(tmp_path, "out", "--quiet") == 1
    errors = read(tmp_path / "out").set_index("row").error
    assert errors[0].startswith("world must be a file in ")
    assert "'../own.yaml'" in errors[1]
    assert pd.isna(errors[2])
    assert label(tmp_path, "out", "--allow-world-outside", "--overwrite", "--quiet") == 1
    errors = read(tmp_path / "out").set_index("row").error
    assert "passwd" in errors[0]
    assert pd.isna(errors[1])


def test_values_beyond_float32_are_errors(tmp_path):
    write_paths(tmp_path, 2)
    table = pq.read_table(tmp_path / "paths.parquet").to_pylist()
    table[1]["path"][0][0] = 1e30
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "paths.parquet")
    assert label(tmp_path, "out", "--quiet") == 1
    labels = read(tmp_path / "out").set_index("row")
    assert labels.error[1] == "path must have values of at most 1e+06, got 1e+30 at waypoint 0"


@pytest.mark.parametrize("sent", mostly_slow((signal.SIGTERM, signal.SIGINT), (signal.SIGINT,)))
def test_a_signal_loses_nothing(tmp_path, sent):
    write_paths(tmp_path, 160)
    command = [sys.executable, "-m", "warp_collision.cli", "label", tmp_path / "paths.parquet"]
    command += [f"--robot={PANDA}", f"--world={tmp_path / 'worlds'}", f"--out={tmp_path / 'out'}"]
    command += ["--device=cpu", "--batch-rows=2", "--part-rows=40"]
    with subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 300.0
        while not parts_of(tmp_path / "out"):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(sent)
        told, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "interrupted: what was labelled is written" in errors
    assert "Traceback" not in errors
    written = read(tmp_path / "out")
    assert 40 <= len(written) < 160
    assert f"{len(written)} paths labelled" in told
    assert label(tmp_path, "out", "--batch-rows=2", "--part-rows=40", "--quiet") == 0
    assert sorted(read(tmp_path / "out")["row"]) == [*range(160)]


@pytest.mark.slow
def test_kills_at_random_moments_lose_nothing(tmp_path):
    """A hundred times, with random options, shards and signals; see `killed_runs.py`."""
    script = Path(__file__).parents[1] / "support" / "killed_runs.py"
    command = [sys.executable, str(script), str(tmp_path / "trial"), "--kills=100"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kills"] == 100
    assert found["finished"] >= 3, "too few folders were finished for the kills to matter"
    assert "Traceback" not in done.stderr


_PEAK = """
import sys
from pathlib import Path
from warp_collision.cli.__main__ import main
status = main(sys.argv[1:])
# Of this program: getrusage counts the process that started it, too.
peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
print(peak)
sys.exit(status)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_data_set(tmp_path):
    """Ten times as many rows, in as many worlds, have the same peak."""
    peaks = []
    for count in (6_000, 60_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        write_paths(folder, count, horizon=32)
        command = [sys.executable, "-c", _PEAK, "label", folder / "paths.parquet", "--quiet"]
        command += [f"--robot={PANDA}", f"--world={folder / 'worlds'}", f"--out={folder / 'out'}"]
        command += ["--outputs", "free", "--device=cpu", "--part-rows=1000"]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) << 10)
        assert len(read(folder / "out")) == count
    # The paths themselves would take 48 MB more, and as lists of Python twenty times that.
    assert peaks[1] - peaks[0] < 24 << 20


def workers() -> list[int]:
    """Processes of Ray that label."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            name = (process / "cmdline").read_bytes() if process.name.isdecimal() else b""
        except OSError:
            continue
        if b"ray::MapWorker" in name:
            found.append(int(process.name))
    return found


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_nothing(tmp_path):
    """SIGKILL in the middle: every row is there once, with the bits that one process writes."""
    pytest.importorskip("ray")
    write_paths(tmp_path, 1200, horizon=20)
    assert label(tmp_path, "one", "--quiet") == 0
    command = [sys.executable, "-m", "warp_collision.cli", "label", tmp_path / "paths.parquet"]
    command += [f"--robot={PANDA}", f"--world={tmp_path / 'worlds'}", f"--out={tmp_path / 'out'}"]
    command += ["--device=cpu", "--json", "--batch-rows=8", "--part-rows=8"]
    command += ["--ray", "--workers=2"]
    before = {*workers()}
    with subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        out, deadline = tmp_path / "out", time.monotonic() + 300.0
        while len([*out.glob("*.parquet")]) < 3:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ours = [pid for pid in workers() if pid not in before]
        os.kill(ours[0], signal.SIGKILL)
        written = len(read(out))
        told, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert written < 1000, "it was killed too late"
    assert json.loads(told)["labelled"] == 1200
    pd.testing.assert_frame_equal(read(out), read(tmp_path / "one"), check_exact=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray warns of itself
def test_the_command_does_not_wait_for_gpus_that_no_machine_has(tmp_path, capsys):
    pytest.importorskip("ray")
    write_paths(tmp_path, 2)
    assert label(tmp_path, "out", "--ray", "--gpus-per-worker=64") == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "gpus_per_worker must be at most" in told
    assert "as many GPUs as a machine of the cluster has, got 64" in told


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray warns of itself
def test_label_dataset(tmp_path):
    ray = pytest.importorskip("ray")
    from warp_collision.examples import load_panda
    from warp_collision.labeling import PathLabeler, label_dataset

    file = write_paths(tmp_path, 60)
    options = {"folder": tmp_path / "worlds", "keep": ["world"]}
    expected = PathLabeler(load_panda(), **options)(pq.read_table(file)).to_pandas()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        data = ray.data.read_parquet(str(file))
        found = label_dataset(data, load_panda(), workers=2, batch_size=16, **options).to_pandas()
    finally:
        ray.shutdown()
    found = found.sort_values("id", ignore_index=True)
    expected = expected.sort_values("id", ignore_index=True)
    pd.testing.assert_frame_equal(found, expected, check_exact=True, check_dtype=False)

"""`warp-collision label`: parts, resumed runs, and a cluster whose workers are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from labels import problem_rows, world_of
from robots import PANDA
from warp_collision.cli.__main__ import main

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")


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


def read(folder: Path) -> "pd.DataFrame":
    return pd.read_parquet(folder).sort_values("id", ignore_index=True)


def test_one_command_and_pandas(tmp_path, capsys):
    write_paths(tmp_path, 40)
    assert label(tmp_path, "out", "--part-rows=16", "--batch-rows=8", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    parts = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert parts == [f"part-{index:06d}.parquet" for index in range(3)]
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
    assert main(["label", wrong, *robot, f"--out={tmp_path / 'out'}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("note: of path ")
    assert "joints must have shape (7,)" in lines[0]
    assert lines[1].startswith("1 paths labelled: 0 proven free, 1 with errors")


def test_what_is_written_is_not_computed_again(tmp_path, capsys):
    write_paths(tmp_path, 40)
    assert label(tmp_path, "whole", "--quiet") == 0
    assert label(tmp_path, "out", "--part-rows=8", "--batch-rows=8", "--quiet") == 0
    out = tmp_path / "out"
    # As a run leaves it that was killed while it wrote its third part.
    for index in (2, 3, 4):
        (out / f"part-{index:06d}.parquet").unlink()
    (out / "part-000002.tmp").write_bytes(b"PAR1")
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    capsys.readouterr()
    assert label(tmp_path, "out", "--part-rows=8", "--batch-rows=8", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["written_before"], summary["labelled"]) == (16, 24)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    pd.testing.assert_frame_equal(read(out), read(tmp_path / "whole"), check_exact=True)
    assert label(tmp_path, "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["labelled"] == 0


def test_errors_are_rows(tmp_path, capsys):
    file = write_paths(tmp_path, 6)
    table = pq.read_table(file).to_pylist()
    table[1]["path"][0][0] = float("nan")
    table[2]["world"] = "none.yaml"
    table[3]["path"] = [[0.0] * 6] * 2
    pq.write_table(pa.Table.from_pylist(table), file)
    assert label(tmp_path, "out") == 0
    assert "6 paths labelled: " in capsys.readouterr().out
    labels = read(tmp_path / "out")
    assert labels.error.notna().tolist() == [False, True, True, True, False, False]
    assert labels.error[2].endswith("none.yaml: no such file")
    assert not labels.free[1:4].any()


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

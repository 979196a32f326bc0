"""`warp-collision check` of many paths, as a script calls it: files, tables, statuses."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from robots import PANDA
from warp_collision.cli.__main__ import main

FREE = [-0.9, 0, 0, -1.6, 0, 1.6, 0.8]
BEYOND = [0.9, 0, 0, -1.6, 0, 1.6, 0.8]  # behind the plate, to which the arc leads through it
NEAR = [-0.5, 0, 0, -1.6, 0, 1.6, 0.8]
PLATE = "cuboid: {plate: {dims: [0.5, 0.001, 0.5], pose: [0.5, 0, 0.5, 1, 0, 0, 0]}}"
BATCH = np.array([[FREE, NEAR], [FREE, BEYOND], [FREE, FREE]], dtype=np.float64)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The current folder, with a world."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "world.yaml").write_text(PLATE)
    return tmp_path


@pytest.fixture
def check(folder, capsys):
    """Runs the command; returns status, stdout and stderr."""

    def run(*arguments, world="world.yaml", robot=True):
        options = [f"--robot={PANDA}"] if robot else []
        status = main(["check", world, *map(str, arguments), *options, "--device=cpu"])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def rows_of(out: str) -> dict[str, dict]:
    return {row["path"]: row for row in json.loads(out)["paths"]}


def test_a_line_for_each_path_worst_first(check, folder):
    np.save(folder / "paths.npy", BATCH)
    status, out, err = check("paths.npy")
    assert (status, err) == (1, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [f"paths.npy:{i}" for i in (1, 0, 2)]
    assert "NOT FREE" in lines[1]
    assert "plate" in lines[1]
    assert "NOT FREE" not in "".join(lines[2:4])
    assert lines[-1].startswith("collision: 1 of 3 paths are not proven free; deepest contact 0.")
    assert "note: the spheres leave out up to 80 %" in out


def test_json_and_csv_are_the_same_rows(check, folder):
    np.save(folder / "paths.npy", BATCH)
    status, out, _ = check("paths.npy", "--json")
    assert status == 1
    result = json.loads(out)
    assert (result["n_paths"], result["n_not_free"], result["n_bad"]) == (3, 1, 0)
    assert result["collision"] is True
    assert result["worst"] == result["paths"][0]
    first = result["paths"][0]
    assert first["path"] == "paths.npy:1"
    assert first["clearance"] < -0.03
    # The certified bound is below the depth by at most the tolerance.
    assert 0.0 <= -first["depth"] - first["clearance"] <= 1e-3 + 1e-4
    assert 0.0 < first["first_contact"] < first["position"] < 1.0
    assert first["obstacle"] == "plate"
    status, out, _ = check("paths.npy", "--csv")
    assert status == 1
    read = [*csv.DictReader(io.StringIO(out))]
    assert [row["path"] for row in read] == [row["path"] for row in result["paths"]]
    assert float(read[0]["clearance"]) == first["clearance"]
    assert read[1]["link"] == result["paths"][1]["link"]


def test_files_folders_and_a_bad_one_among_them(check, folder):
    np.save(folder / "one.npy", BATCH[0])
    (folder / "more" / "deep").mkdir(parents=True)
    bad = BATCH.copy()
    bad[1, 1, 3] = np.nan
    np.savez(folder / "more" / "batch.npz", joints=bad)
    names = ",".join(f"panda_joint{i}" for i in range(1, 8))
    lines = [",".join(map(str, row)) for row in (FREE, NEAR)]
    (folder / "more" / "deep" / "a.csv").write_text("\n".join([names, *lines]))
    (folder / "more" / "torn.npy").write_bytes(b"\x93NUMPY")
    np.save(folder / "more" / "wide.npy", np.zeros((2, 3, 6)))
    status, out, err = check("one.npy", "more", "--json")
    assert status == 2
    rows = rows_of(out)
    free = {name for name, row in rows.items() if row["free"]}
    assert free == {"one.npy:0", "batch.npz:0", "batch.npz:2", "deep/a.csv:0"}
    assert rows["batch.npz:1"]["error"] == "path must be finite, got nan at waypoint 1"
    assert "joints must have shape (7,), (horizon, 7)" in rows["wide.npy:0"]["error"]
    assert len(err.splitlines()) == 3
    assert "warp-collision: error: batch.npz:1: path must be finite" in err
    assert "torn.npy" in err


def test_quiet_says_nothing(check, folder):
    np.save(folder / "paths.npy", BATCH)
    assert check("paths.npy", "--quiet") == (1, "", "")
    np.save(folder / "paths.npy", BATCH[[0, 2]])
    assert check("paths.npy", "--quiet") == (0, "", "")
    status, out, err = check("none.npy", "--quiet")
    assert (status, out) == (2, "")
    assert "none.npy: no such file" in err


def test_first_stops_there(check, folder):
    np.save(folder / "paths.npy", np.concatenate([BATCH, BATCH[[1] * 300]]))
    status, out, _ = check("paths.npy", "--first")
    assert status == 1
    assert "collision: path 2 is the first that is not proven free" in out
    assert sum("NOT FREE" in line for line in out.splitlines()) == 1
    result = json.loads(check("paths.npy", "--first", "--json")[1])
    assert result["n_paths"] == 2
    assert [row["path"] for row in result["paths"]] == ["paths.npy:1"]
    assert result["paths"][0]["obstacle"] == "plate"


def test_minimum_clearance(check, folder):
    np.save(folder / "paths.npy", BATCH[[0, 2]])
    result = rows_of(check("paths.npy", "--json")[1])
    near, far = (result[f"paths.npy:{i}"]["clearance"] for i in (0, 1))
    assert 0.0 < near < far
    between = f"{0.5 * (near + far):.4f}"
    status, out, _ = check("paths.npy", "--json", "--min-clearance", between)
    assert status == 1
    assert {name: row["free"] for name, row in rows_of(out).items()} == {
        "paths.npy:0": False,
        "paths.npy:1": True,
    }
    assert check("paths.npy", "--quiet", "--min-clearance", between)[0] == 1


def test_limits_count_where_they_are_respected(check, folder):
    beyond = BATCH[[0, 2]].copy()
    beyond[1, :, 3] = 0.2
    np.save(folder / "paths.npy", beyond)
    status, out, _ = check("paths.npy")
    assert status == 0
    assert "note: joint values are beyond the limits in 1 paths" in out
    status, out, _ = check("paths.npy", "--respect-limits", "--json")
    assert status == 1
    assert json.loads(out)["n_beyond_limits"] == 1


def test_worlds_by_row(check, folder):
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "empty.yaml").write_text(PLATE.replace("0.5, 0, 0.5, 1", "9.0, 0, 0.5, 1"))
    inline = json.dumps({"sphere": {"ball": {"radius": 0.3, "position": [0.5, 0.0, 0.5]}}})
    worlds = ["world.yaml", "empty.yaml", "none.yaml", inline, "world.yaml"]
    table = {"id": [*"abcde"], "path": [BATCH[1].tolist()] * 5, "world": worlds}
    table["path"][4] = [[0.0] * 6] * 2
    pq.write_table(pa.table(table), folder / "paths.parquet")
    status, out, err = check("paths.parquet", "--json", "--parquet", "out.parquet", world=".")
    assert status == 2
    rows = rows_of(out)
    assert [rows[name]["free"] for name in "abcde"] == [False, True, False, False, False]
    assert rows["d"]["obstacle"] == "ball"
    assert rows["c"]["error"].endswith("none.yaml: no such file")
    assert rows["e"]["error"] == "path must have shape (horizon, 7), got (2, 6)"
    assert err.count("warp-collision: error: ") == 2
    written = pq.read_table(folder / "out.parquet").to_pylist()
    assert [row["path"] for row in written] == [row["path"] for row in json.loads(out)["paths"]]
    assert written[0]["clearance"] == json.loads(out)["paths"][0]["clearance"]


def test_the_table_as_a_file(check, folder):
    np.save(folder / "batch.npy", BATCH)
    status, out, _ = check("batch.npy", "--csv", "-o", "out.csv")
    assert (status, (folder / "out.csv").read_text()) == (1, out)
    assert out.count("\n") == 1 + len(BATCH)
    status, out, err = check("batch.npy", "-o", "out.txt")
    assert (status, out) == (2, "")
    assert "--output must end in .parquet or .csv, got " in err


def test_spheres_of_many_paths(check, folder):
    (folder / "world.yaml").write_text(
        "cuboid: {wall: {dims: [0.01, 4, 4], pose: [0, 0, 0, 1, 0, 0, 0]}}"
    )
    through = [[[-0.5, 0, 0, 0.1], [-2, 0, 0, 0.1]], [[0.5, 0, 0, 0.1], [-2, 0, 0, 0.1]]]
    along = [[[-0.5, 0, 0, 0.1], [-2, 0, 0, 0.1]], [[-0.5, 1, 0, 0.1], [-2, 0, 0, 0.1]]]
    np.save(folder / "spheres.npy", [through, along])
    assert check("spheres.npy", robot=False)[0] == 0  # waypoints alone
    status, out, _ = check("spheres.npy", "--swept", "--json", robot=False)
    assert status == 1
    rows = rows_of(out)
    assert [rows[f"spheres.npy:{i}"]["free"] for i in (0, 1)] == [False, True]
    hit = rows["spheres.npy:0"]
    assert hit["depth"] == pytest.approx(0.105, abs=1e-4)
    assert (hit["link"], hit["obstacle"]) == ("sphere 0", "wall")
    assert hit["position"] == pytest.approx(0.5, abs=1e-3)
    assert rows["spheres.npy:1"]["clearance"] == pytest.approx(0.395, abs=1.1e-3)


def test_a_single_path_is_in_the_same_rows(check, folder):
    """A script need not know how many paths there are; a single one has its waypoints, too."""
    np.save(folder / "paths.npy", BATCH[1:2])
    result = json.loads(check("paths.npy", "--json")[1])
    assert result["motions"][0]["proven_free"] is False
    np.save(folder / "other.npy", BATCH[:1])
    both = json.loads(check("paths.npy", "other.npy", "--json")[1])
    assert result["paths"] == both["paths"][:1]
    told = check("paths.npy", world=".")  # it names no world
    assert told[0] == 2
    assert "paths.npy:0: world must be given, got none" in told[2]
    assert "--detail must be given with one file" in check("paths.npy", "other.npy", "--detail")[2]
    assert "--detail must be given with one file" in check("paths.npy", "--detail", "--csv")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--column=path=",), "must be ROLE=NAME, got 'path='"),
        (("--min-clearance=-1",), "must be a number of at least 0"),
    ],
)
def test_wrong_usage(check, folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as left:
        check("paths.npy", *arguments)
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_files_of_other_kinds(check, folder):
    (folder / "notes.txt").write_text("none")
    status, _, err = check("notes.txt")
    assert status == 2
    assert (
        "notes.txt: paths must be files that end in .npy, .npz, .csv, .json, .parquet, .h5" in err
    )
    (folder / "nothing").mkdir()
    assert "nothing: must have files that end in" in check("nothing")[2]


@pytest.mark.parametrize("command", ["check", "label"])
def test_help_is_quick_and_loads_nothing_heavy(command):
    code = (
        "import sys\n"
        "from warp_collision.cli.__main__ import main\n"
        "try:\n    main([sys.argv[1], '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'warp', 'numpy', 'scipy', 'trimesh', 'pyarrow', 'ray', 'h5py', 'yaml'}\n"
        "assert not heavy & {*sys.modules}, heavy & {*sys.modules}\n"
        # 190 of Python and of the command line, which take 0.1 s.
        "assert len(sys.modules) < 250, sorted(sys.modules)\n"
    )
    run = [sys.executable, "-c", code, command]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "exit status" in done.stdout


@pytest.mark.slow
def test_progress_on_a_terminal_alone(folder, capsys):
    np.save(folder / "paths.npy", BATCH[[0] * 300])
    arguments = ["check", "world.yaml", "paths.npy", f"--robot={PANDA}", "--device=cpu"]
    assert main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    command = [sys.executable, "-m", "warp_collision.cli", *arguments]
    main_end, terminal = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        told = b""
        try:
            while part := os.read(main_end, 4096):
                told += part
        except OSError:  # the other end is closed
            pass
        os.close(main_end)
    assert process.returncode == 0
    assert b"256 of 300 paths, 0 not free, " in told
    assert b"s left" in told
    assert told.endswith(b"\r\x1b[K")


@pytest.mark.slow
def test_memory_stays_flat(folder):
    """10,000 paths take little more than 1,000: their file, and a line for each."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from warp_collision.cli.__main__ import main\n"
        "status = main(sys.argv[1:])\n"
        "peak = Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0]\n"
        "print(peak, file=sys.stderr)\n"
        "sys.exit(status)\n"
    )
    peaks = []
    for count in (1_000, 10_000):
        np.save(folder / "paths.npy", np.tile(BATCH[:1], (count, 15, 1)).astype(np.float32))
        command = [sys.executable, "-c", code, "check", "world.yaml", "paths.npy", "--json"]
        command += [f"--robot={PANDA}", "--device=cpu"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert json.loads(done.stdout)["n_paths"] == count
        peaks.append(int(done.stderr.split()[-1]) << 10)
    assert peaks[1] - peaks[0] < 60 << 20

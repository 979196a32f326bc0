"""Labels on object stores, by patterns of names, on full and read-only disks; interrupts."""

import contextlib
import errno
import os
import resource
import signal

import numpy as np
import pytest
from test_label_command import label, parts_of, read, with_ids, write_paths

from gcs_server import GcsServer
from robots import PANDA
from warp_collision.cli.__main__ import main
from warp_collision.labeling import PathFiles
from warp_collision.labeling.on_ray import require_gpus
from warp_collision.labeling.parts import PartWriter
from warp_collision.labeling.places import file_system

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
fs = pytest.importorskip("pyarrow.fs")
pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def s3():
    """The URI of a place in a bucket of an S3 server, as a function of its name."""
    server_of = pytest.importorskip("moto.server", reason="moto is not installed")
    import boto3

    with pytest.MonkeyPatch.context() as patch:
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
            patch.setenv(f"AWS_{name}", "testing")
        server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket="data")
        options = f"?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
        yield lambda name: f"s3://data/{name}{options}"
        server.stop()


@pytest.fixture(scope="module")
def gs():
    """The same of a server of Google Cloud Storage."""
    with GcsServer() as server:
        yield server.uri


@pytest.fixture(params=["s3", "gs"])
def bucket(request):
    return request.getfixturevalue(request.param)


def copy_to(uri: str, file) -> None:
    system, path = file_system(uri)
    with system.open_output_stream(path) as stream:
        stream.write(file.read_bytes())


def read_uri(uri: str) -> "pd.DataFrame":
    system, path = file_system(uri)
    table = pq.read_table(path, filesystem=system)
    return table.to_pandas().sort_values("id", ignore_index=True)


@pytest.mark.parametrize(
    "bucket", ["s3", pytest.param("gs", marks=pytest.mark.slow)], indirect=True
)
def test_object_stores_are_read_and_written(bucket, tmp_path, capsys):
    file = write_paths(tmp_path, 24)
    assert label(tmp_path, "here", "--quiet") == 0
    expected = read(tmp_path / "here")
    copy_to(bucket("in/paths.parquet"), file)
    robot = f"--robot={PANDA}"
    command = ["label", bucket("in"), robot, f"--world={tmp_path / 'worlds'}", "--device=cpu"]
    command += ["--out", bucket("out"), "--part-rows=8", "--batch-rows=4", "--quiet"]
    for shard in ("0/2", "1/2"):
        assert main([*command, "--shard", shard]) == 0
    pd.testing.assert_frame_equal(read_uri(bucket("out")), expected, check_exact=True)
    # It goes on where it was: a part that is missing is written again, alone.
    system, path = file_system(bucket("out"))
    parts = sorted(one.path for one in system.get_file_info(fs.FileSelector(path))
                   if "/part-" in one.path)  # fmt: skip
    system.delete_file(parts[0])
    for shard in ("0/2", "1/2"):
        assert main([*command, "--shard", shard]) == 0
    pd.testing.assert_frame_equal(read_uri(bucket("out")), expected, check_exact=True)
    assert main([*command, "--outputs", "free"]) == 2
    assert "has labels of another run" in " ".join(capsys.readouterr().err.split())
    assert main([*command, "--outputs", "free", "--overwrite"]) == 0
    assert "clearance" not in read_uri(bucket("out"))
    assert len(read_uri(bucket("out"))) == 24
    # What is not there, and what is no store.
    wrong = [*command[:1], bucket("none"), *command[2:-4], bucket("other")]
    assert main(wrong) == 2
    assert "no such file" in capsys.readouterr().err
    assert main([*command[:1], "none://data/in", *command[2:]]) == 2
    assert "none://data/in" in capsys.readouterr().err
    assert not [*tmp_path.glob("*:")]


def test_files_on_object_stores(bucket, tmp_path):
    h5py = pytest.importorskip("h5py")
    file = write_paths(tmp_path, 5)
    with h5py.File(tmp_path / "paths.h5", "w") as archive:
        archive["path"] = np.zeros((3, 4, 7))
    for name in ("a/x.parquet", "a/b/y.parquet", "c/x.parquet"):
        copy_to(bucket(f"files/{name}"), file)
    copy_to(bucket("files/a/paths.h5"), tmp_path / "paths.h5")
    names = [f"j{i}" for i in range(7)]

    def of(pattern: str) -> list[str]:
        return [name for name, *_ in PathFiles([bucket(pattern)], joint_names=names).listing()]

    assert of("files") == ["a/b/y.parquet", "a/paths.h5", "a/x.parquet", "c/x.parquet"]
    assert of("files/*/x.parquet") == ["a/x.parquet", "c/x.parquet"]
    assert of("files/a/*.parquet") == ["x.parquet"]
    assert of("files/a/x.parquet") == ["x.parquet"]
    files = PathFiles([bucket("files/a")], joint_names=names)
    rows = [row for part in files.slices(2) for row in files.read(part)]
    assert [row.id for row in rows if row.source[0] == "paths.h5"] == [
        f"paths.h5:{index}" for index in range(3)
    ]
    assert len(rows) == files.count() == 13
    local = PathFiles([tmp_path / "paths.parquet"], joint_names=names)
    stored = [row for row in rows if row.source[0] == "x.parquet"]
    for row, other in zip(stored, local.rows(), strict=True):
        np.testing.assert_array_equal(row.path, other.path)
    copy_to(bucket("array/x.npy"), file)
    with pytest.raises(ValueError, match="must be on a file system of this machine"):
        of("array")


def test_a_store_that_fails_names_the_place(gs, tmp_path, capsys):
    write_paths(tmp_path, 2)
    command = ["label", str(tmp_path / "paths.parquet"), f"--robot={PANDA}", "--device=cpu"]
    command += [f"--world={tmp_path / 'worlds'}", "--quiet", "--out"]
    other = gs("out").replace("@data", "@none")
    assert main([*command, other]) == 2
    assert "gs://anonymous@none/out" in "".join(capsys.readouterr().err.split())
    nobody = "gs://anonymous@data/out?scheme=http&endpoint_override=127.0.0.1:9"
    assert main([*command, f"{nobody}&retry_limit_seconds=0.1"]) == 2
    assert "gs://anonymous@data/out" in "".join(capsys.readouterr().err.split())


def test_stores_without_locks_notice_another_run(bucket):
    rows = pa.table({"id": ["a"], "source": ["f"], "row": [0], "error": [None]})
    rows = rows.set_column(3, "error", pa.array([None], pa.string()))
    with PartWriter(bucket("twice"), 1, {}) as first:
        with PartWriter(bucket("twice"), 1, {}) as second:
            second.add(rows)
        with pytest.raises(ValueError, match="another process is labelling shard 0of1"):
            first.add(rows)
    assert len(read_uri(bucket("twice"))) == 1


@pytest.mark.parametrize(
    ("ids", "repeated"), [(["a", "b"], 0), ([-1, -2], 0), ([3, -2, 3, -2, 3], 5), (["a", "a"], 2)]
)
def test_rows_that_share_an_id_are_counted_over_runs(ids, repeated, tmp_path):
    for index, one in enumerate(ids):
        rows = pa.table({"id": [one], "source": ["f"], "row": [index]})
        rows = rows.append_column("error", pa.array([None], pa.string()))
        with PartWriter(tmp_path, 1, {}) as writer:
            writer.add(rows)
    assert writer.repeated_ids == repeated


def test_a_note_counts_rows_that_share_an_id(tmp_path, capsys):
    write_paths(tmp_path, 8)
    for ids, note in (([1, 2, 3, 1, 2, 1, 7, 8], True), ([*range(8)], False)):
        with_ids(tmp_path, ids)
        assert label(tmp_path, f"out {note}", "--outputs=free") == 0
        assert (
            "note: 5 rows have an id that another row has too" in capsys.readouterr().err
        ) == note


def test_quoted_patterns_of_names(tmp_path, monkeypatch):
    for name in ("run-1/a.npy", "run-1/deep/b.npy", "run-2/a.npy", "other/a.npy", "run-2/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / name, np.zeros((1, 2, 3))) if name.endswith("npy") else (
            tmp_path / name
        ).touch()
    monkeypatch.chdir(tmp_path)

    def of(pattern: str) -> list[str]:
        return [name for name, *_ in PathFiles([pattern], joint_names="abc").listing()]

    assert of("run-*/a.npy") == ["run-1/a.npy", "run-2/a.npy"]
    assert of("run-?/*.npy") == ["run-1/a.npy", "run-2/a.npy"]
    assert of(f"{tmp_path}/run-[1]/**/*.npy") == ["run-1/a.npy", "run-1/deep/b.npy"]
    assert of("run-*") == ["run-1/a.npy", "run-1/deep/b.npy", "run-2/a.npy"]
    with pytest.raises(FileNotFoundError, match=r"none-\*: must match files that end in .npy"):
        of("none-*")
    (tmp_path / "run-*").mkdir()  # a name is no pattern where there is such a file
    np.save(tmp_path / "run-*" / "c.npy", np.zeros((1, 2, 3)))
    assert of("run-*") == ["c.npy"]


def test_a_full_disk_names_the_file(tmp_path, capsys):
    """The parts before it stay, and the same command goes on."""
    write_paths(tmp_path, 16)
    assert label(tmp_path, "out", "--part-rows=8", "--batch-rows=8", "--quiet") == 0
    out = tmp_path / "out"
    (out / parts_of(out)[1]).unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
        assert label(tmp_path, "out", "--part-rows=8", "--batch-rows=8", "--quiet") == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    told = "".join(capsys.readouterr().err.split())
    assert f"{out}/part-" in told
    assert os.strerror(errno.EFBIG).replace(" ", "") in told
    assert not [*out.glob("*.tmp")]
    assert len(read(out)) == 8
    assert label(tmp_path, "out", "--part-rows=8", "--batch-rows=8", "--quiet") == 0
    assert len(read(out)) == 16


def test_an_interrupt_that_a_library_takes_for_an_error_is_one(tmp_path, monkeypatch):
    """As NumPy does while it compares structured arrays."""

    def swallow(*_: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise TypeError("no common dtype")

    write_paths(tmp_path, 1)
    monkeypatch.setattr("warp_collision.cli.label_paths._labeler", swallow)
    assert label(tmp_path, "out") == 130


def test_a_read_only_folder_is_named(tmp_path, capsys, monkeypatch):
    write_paths(tmp_path, 2)
    (tmp_path / "file").touch()
    assert label(tmp_path, "file/out") == 2
    assert f"{tmp_path}/file/out" in "".join(capsys.readouterr().err.split())

    def refuse(path, *arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    assert label(tmp_path, "out") == 2
    told = capsys.readouterr().err
    assert "Read-only file system" in told
    assert f"{tmp_path}/out" in "".join(told.split())


def test_a_shard_changes_its_own_parts_alone(tmp_path, capsys):
    """Another one may be labelling at the same time, and has read what is written."""
    file = write_paths(tmp_path, 8)
    rows = pq.read_table(file).to_pylist()
    for row in rows:
        row["path"][0][0] = float("nan")
    pq.write_table(pa.Table.from_pylist(rows), file)
    for shard in ("0/2", "1/2"):
        assert label(tmp_path, "out", "--batch-rows=2", "--quiet", "--shard", shard) == 2
    other = next(path for path in (tmp_path / "out").glob("part-*1of2*"))
    before = other.stat().st_mtime_ns
    command = ["--batch-rows=2", "--shard=0/2", "--retry-errors"]
    assert label(tmp_path, "out", *command) == 2
    assert "4 paths labelled: 0 proven free, 4 with errors" in capsys.readouterr().out
    assert other.stat().st_mtime_ns == before
    assert sorted(read(tmp_path / "out")["row"]) == [*range(8)]


def test_a_cluster_without_gpus_is_told_at_once():
    """Ray waits for ever for an actor that fits no machine."""
    nodes = [{"Resources": {"CPU": 8.0}}, {"Resources": {"CPU": 8.0, "GPU": 2.0}}]
    require_gpus(nodes, 2.0)
    with pytest.raises(ValueError, match="gpus_per_worker must be at most 2, as many GPUs as a"):
        require_gpus(nodes, 4.0)
    with pytest.raises(ValueError, match=r"at most 0, .* got 0\.5"):
        require_gpus(nodes[:1], 0.5)

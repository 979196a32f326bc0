"""More rows than memory holds are labelled as a stream: what a process keeps does not grow."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from warp_collision.examples import load_panda
from warp_collision.labeling import PathFiles, PathLabeler
from warp_collision.labeling.parts import batches, labelled

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SHELF = {"cuboid": {"shelf": {"dims": [0.4, 0.8, 0.02], "pose": [0.6, 0, 0.5, 1, 0, 0, 0]}}}


def write_waypoints(file: Path, count: int) -> None:
    """A Parquet file of paths of one waypoint."""
    rng = np.random.default_rng(2)
    joints = rng.uniform(-1.5, 1.5, (count, 7)).astype(np.float32)
    points = pa.FixedSizeListArray.from_arrays(pa.array(joints.reshape(-1)), 7)
    paths = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32), points)
    table = pa.table({"id": np.arange(count), "path": paths})
    pq.write_table(table, file, row_group_size=10_000, compression="none", use_dictionary=False)


def own_bytes() -> int:
    """Memory of this process that no other one has."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


def test_rows_are_a_stream(tmp_path):
    write_waypoints(tmp_path / "paths.parquet", 60_000)
    files = PathFiles([tmp_path / "paths.parquet"], joint_names=load_panda().joint_names)
    labeler = PathLabeler(load_panda(), SHELF, outputs=["free"], device="cpu")
    objects, arrow, held, rows, free = [], [], [], 0, 0
    for batch in batches(files.rows(), 2048):
        table = labelled(labeler, batch, files.id_type())
        rows += table.num_rows
        free += sum(table["free"].to_pylist())
        del table, batch
        gc.collect()
        objects.append(sys.getallocatedblocks())
        arrow.append(pa.total_allocated_bytes())
        held.append(own_bytes())
    assert rows == 60_000
    assert 0.1 < free / rows < 0.9
    # The first batches compile and fill caches, the last one ends the file. Between them come
    # 45,000 rows: 1.6 MB of Arrow, or several objects of Python each.
    assert objects[-2] - objects[5] < 5_000
    assert arrow[-2] - arrow[5] < 200_000
    # Memory comes in pages of 2 MB, so that this sees only what each batch leaves behind.
    assert held[-2] - held[5] < 32 << 20


_STREAM = """
import json, logging, sys
from pathlib import Path
import ray
from warp_collision.labeling import label_dataset

world, folder = json.loads(sys.argv[1]), sys.argv[2]

def own_bytes():
    # Of this process and the actors, without the store that all share.
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            name = (status.parent / "cmdline").read_bytes()
            if b"ray::MapWorker" in name:
                total += int(status.read_text().partition("RssAnon:")[2].split()[0]) << 10
        except (OSError, IndexError):
            pass
    text = Path("/proc/self/status").read_text()
    return total + (int(text.partition("RssAnon:")[2].split()[0]) << 10)

ray.init(
    num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=150 << 20,
    logging_level=logging.ERROR,
)
context = ray.data.DataContext.get_current()
context.enable_progress_bars = False
context.target_max_block_size = 8 << 20  # labels of a block are kept until it is whole
from warp_collision.examples import load_panda
paths = ray.data.read_parquet(folder)
labels = label_dataset(
    paths, load_panda(), world, workers=1, batch_size=4096, outputs=["free"]
)
rows = free = ids = 0
held = []
for table in labels.iter_batches(batch_size=20_000, batch_format="pyarrow"):
    rows += table.num_rows
    free += table["free"].to_numpy().sum()
    ids += table["id"].to_numpy().sum()
    held.append((rows, own_bytes()))
print(json.dumps({"rows": rows, "free": int(free), "ids": int(ids), "held": held}))
"""


@pytest.mark.slow
def test_ten_million_rows_have_flat_memory(tmp_path):
    """`label_dataset` on Ray, with a store that holds a small part of them."""
    pytest.importorskip("ray")
    count, copies = 200_000, int(os.environ.get("WARP_COLLISION_STREAM_FILES", "50"))
    write_waypoints(tmp_path / "0.parquet", count)
    for copy in range(1, copies):
        os.link(tmp_path / "0.parquet", tmp_path / f"{copy}.parquet")
    command = [sys.executable, "-c", _STREAM, json.dumps(SHELF), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == count * copies
    assert found["ids"] == copies * count * (count - 1) // 2, "a row is missing or there twice"
    assert found["free"] % copies == 0, "copies of a file have different labels"
    early = [held for rows, held in found["held"] if rows <= count * copies // 4]
    late = [held for rows, held in found["held"] if rows > count * copies // 4]
    print(max(early) >> 20, max(late) >> 20, "MiB")
    # The labels that came since then take 94 MB, their paths 270 MB. What Python made of them on
    # the way was 6 GB once.
    assert max(late) - max(early) < 64 << 20

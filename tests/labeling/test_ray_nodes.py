"""Labels on a cluster of two nodes: workers and a whole node are killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_label_command import label, read, workers, write_paths

from robots import PANDA

pd = pytest.importorskip("pandas")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # Ray warns of itself

ROWS = 1200
STORE = 80 << 20  # bytes of the objects of a node


@pytest.fixture
def cluster() -> Iterator:
    """Two nodes of two CPUs each, on this machine."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": STORE}
    found = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    found.second = found.add_node(**node)
    yield found
    found.shutdown()


def parents(pids: list[int]) -> set[int]:
    """The processes that began others: a node's workers have its own."""
    found = set()
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        found.add(int(status.rpartition(")")[2].split()[1]))
    return found


@pytest.mark.parametrize("killed", ["worker", "node"])
def test_every_row_is_there_once_whatever_is_killed(tmp_path, cluster, killed):
    """With the bits that one process writes."""
    write_paths(tmp_path, ROWS, horizon=20)
    assert label(tmp_path, "one", "--quiet") == 0
    command = [sys.executable, "-m", "warp_collision.cli", "label", tmp_path / "paths.parquet"]
    command += [f"--robot={PANDA}", f"--world={tmp_path / 'worlds'}", f"--out={tmp_path / 'out'}"]
    command += ["--device=cpu", "--json", "--batch-rows=8", "--part-rows=8"]
    command += ["--ray", cluster.address, "--workers=4"]
    before, nodes, out = {*workers()}, set[int](), tmp_path / "out"
    with subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 300.0
        while len([*out.glob("*.parquet")]) < 3 or len(nodes) < 2:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            ours = [pid for pid in workers() if pid not in before]
            nodes |= parents(ours)
            time.sleep(0.05)
        if killed == "worker":
            os.kill(ours[0], signal.SIGKILL)
        else:
            cluster.remove_node(cluster.second, allow_graceful=False)
        written = len(read(out))
        told, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert written < ROWS - 200, "it was killed too late"
    assert json.loads(told)["labelled"] == ROWS
    pd.testing.assert_frame_equal(read(out), read(tmp_path / "one"), check_exact=True)

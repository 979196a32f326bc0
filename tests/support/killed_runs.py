"""Runs of `warp-collision label` that are killed at random moments, with random options.

    python tests/support/killed_runs.py FOLDER --seed 5 --kills 100 [--seconds 600]

A process that has loaded all it needs forks one for each run, so that runs begin at once, and most
signals come while rows are labelled and written. After each, what is in the folder is whole: every
part can be read, no row is there twice, and all have the bits of one undisturbed run.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from labels import problem_rows, world_of
from robots import PANDA
from warp_collision.cli.__main__ import main

_ROWS = 60
_STATUS_OF_INTERRUPT, _STATUS_OF_USAGE = 130, 2


def write_inputs(folder: Path) -> None:
    """Two files of paths with their worlds; some rows are wrong, and some ids occur twice."""
    rows = problem_rows(_ROWS, seed=31)
    (folder / "worlds").mkdir(parents=True)
    for name in {row.world for row in rows}:
        (folder / "worlds" / f"{name}.yaml").write_text(json.dumps(world_of(name)))
    paths = [row.path.tolist() for row in rows]
    for index in range(7, _ROWS, 13):
        paths[index][0][0] = float("nan")
    worlds = [f"{row.world}.yaml" for row in rows]
    worlds[11] = "none.yaml"
    (folder / "paths").mkdir()
    for name, part in (("a", slice(0, 37)), ("b", slice(37, _ROWS))):
        ids = [index % 20 for index in range(_ROWS)][part]
        table = pa.table({"id": ids, "path": paths[part], "world": worlds[part]})
        pq.write_table(table, folder / "paths" / f"{name}.parquet", row_group_size=16)


def table_of(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of a folder of labels, each as a reader of data sets finds them.

    Raises:
        AssertionError: a row is there twice.
    """
    parts = [path for path in folder.glob("part-*") if path.suffix == ".parquet"]
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    found = {(row["source"], row["row"]): row for row in rows}
    assert len(found) == len(rows), "a row was written twice"
    return found


def require_rows(found: dict, expected: dict) -> None:
    """Requires that all rows are as they should be, to the last bit."""
    for key, row in found.items():
        for name, value in row.items():
            wanted = expected[key][name]
            both_nan = value != value and wanted != wanted
            assert value == wanted or both_nan, (key, name, value, wanted)


def run(arguments: Sequence[str]) -> int:
    """Begins the command in another process; returns its number."""
    pid = os.fork()
    if pid:
        return pid
    status = 99
    try:
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            status = main(arguments)
    except SystemExit as error:
        status = int(error.code or 0)
    except KeyboardInterrupt:  # before the command began, or after it ended
        status = _STATUS_OF_INTERRUPT
    finally:
        os._exit(status)


def status_of(pid: int) -> int:
    """Waits for a process; the status it ended with, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@dataclass
class Trial:
    """Random runs into random folders of labels, until enough were killed.

    Attributes:
        folder: has the inputs; labels are written below it.
        rng: draws all that is random.
        expected: the labels of each row.
        whole: seconds that an undisturbed run takes.
    """

    folder: Path
    rng: np.random.Generator
    expected: dict
    whole: float
    kills: int = 0
    interrupts: int = 0
    refused: int = 0
    finished: int = 0

    def command(self, *options: str) -> list[str]:
        return [*command(self.folder, self.folder / "out"), *options]

    def one_folder(self, is_over: Callable[[], bool]) -> None:
        """Labels into one folder, with signals, until all rows are there."""
        out, rng = self.folder / "out", self.rng
        shutil.rmtree(out, ignore_errors=True)
        shards = int(rng.choice([1, 1, 2, 3]))
        size = int(rng.integers(1, 9))
        sizes = [f"--batch-rows={size}", f"--part-rows={rng.integers(1, 12)}"]
        outputs = [[], ["--outputs", "free"], ["--outputs", "free", "clearance"]]
        options = [*sizes, *outputs[rng.integers(3)]]
        missing, first = {*range(shards)}, True
        while missing and not is_over():
            chosen = sorted(rng.permutation([*missing])[: rng.integers(1, len(missing) + 1)])
            extra = []
            if not first and rng.random() < 0.2:
                extra = ["--retry-errors"]
            elif shards == 1 and rng.random() < 0.1:
                extra = ["--overwrite"]
            begun = {
                int(shard): run(self.command(*options, *extra, f"--shard={shard}/{shards}"))
                for shard in chosen
            }
            for shard, pid in begun.items():
                time.sleep(float(rng.uniform(0.0, 1.2 * self.whole)))
                sent = rng.choice([signal.SIGKILL] * 4 + [signal.SIGTERM, signal.SIGINT])
                os.kill(pid, int(sent))
                status = status_of(pid)
                self.count(status)
                if status in (0, 1):
                    missing.discard(shard)
            require_rows(table_of(out), self.expected)
            if (out / "_manifest.json").exists() and rng.random() < 0.15:
                self.refuse(options, out, shards)
            first = False
        if is_over():
            return
        for shard in range(shards):  # nothing is left to do
            assert status_of(run(self.command(*options, f"--shard={shard}/{shards}"))) in (0, 1)
        found = table_of(out)
        assert found.keys() == self.expected.keys(), "rows are missing"
        require_rows(found, self.expected)
        left = sorted(path.name for path in out.iterdir() if not path.name.startswith("part-"))
        left = [name for name in left if not name.startswith("_lock-")]  # of refused runs, too
        assert left == ["_manifest.json"], left
        self.finished += 1

    def count(self, status: int) -> None:
        """Counts how a run ended; each of these ends is one that it may have."""
        if status == -signal.SIGKILL:
            self.kills += 1
        elif status in (_STATUS_OF_INTERRUPT, -signal.SIGTERM, -signal.SIGINT):
            self.interrupts += 1  # by a signal, if it came before the command began to label
        else:
            assert status in (0, 1), status

    def refuse(self, options: Sequence[str], out: Path, shards: int) -> None:
        """Another run into the folder is refused, and changes nothing."""
        before = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
        other = [["--min-clearance=0.01"], ["--no-self-collision"], ["--tolerance=0.002"]]
        wrong = [*options, *other[self.rng.integers(3)], f"--shard=0/{shards}"]
        if shards > 1 and self.rng.random() < 0.3:
            wrong = [*options, f"--shard=0/{shards + 1}"]
        assert status_of(run(self.command(*wrong))) == _STATUS_OF_USAGE
        assert before == {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
        self.refused += 1


def command(folder: Path, out: Path) -> list[str]:
    """The command line that labels the inputs of a folder."""
    robot = [f"--robot={PANDA}", f"--world={folder / 'worlds'}", "--device=cpu", "--quiet"]
    return ["label", str(folder / "paths"), *robot, f"--out={out}"]


def run_trial(folder: Path, seed: int, kills: int, seconds: float) -> Trial:
    """Kills runs until there were so many kills, or so many seconds have passed."""
    torch.set_num_threads(1)
    write_inputs(folder)
    # Loads kernels; runs are forked from what is loaded. The second is as quick as they are.
    assert main(command(folder, folder / "loaded")) == 1
    assert main(command(folder, folder / "whole")) == 1
    begin = time.monotonic()
    assert status_of(run([*command(folder, folder / "again"), "--batch-rows=4"])) == 1
    whole = time.monotonic() - begin
    expected = table_of(folder / "whole")
    assert len(expected) == _ROWS
    trial = Trial(folder, np.random.default_rng(seed), expected, whole)
    end = time.monotonic() + seconds

    def is_over() -> bool:
        return trial.kills >= kills or time.monotonic() > end

    while not is_over():
        trial.one_folder(is_over)
    return trial


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    done = run_trial(given.folder, given.seed, given.kills, given.seconds)
    counts = {name: getattr(done, name) for name in ("kills", "interrupts", "refused", "finished")}
    print(json.dumps({**counts, "seconds a run": done.whole}))
    sys.exit(0)

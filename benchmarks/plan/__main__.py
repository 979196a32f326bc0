"""Solves the problem sets and judges the paths: `python -m benchmarks.plan --help`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.plan import report
from benchmarks.plan.data import ROBOTS, robot_folder
from benchmarks.plan.motions import measure
from benchmarks.plan.planners import PLANNERS
from benchmarks.plan.problems import list_problems
from benchmarks.plan.run import Row, run
from benchmarks.progress import progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; 1 if the judge refused a path that was called free."""
    options = _parser().parse_args(arguments)
    results = report.read(options.out)
    if options.report:
        return _finish(results, options.out)
    refused = 0
    for robot in options.robots:
        folder = robot_folder(robot, options.archive)
        if robot == ROBOTS[0]:
            results["motions"] = measure(folder, robot)
        problems = list_problems(folder, robot, options.every)
        rows: list[Row] = []
        begin = time.monotonic()
        with progress(len(problems)) as (announce, say):
            solving = run(
                folder,
                robot,
                problems,
                planners=options.planners,
                limit=options.limit,
                seed=options.seed,
                jobs=options.jobs,
            )
            for found in solving:
                announce(f"{robot} {found[0]['type']}/{found[0]['index']:04d}")
                for row in found:
                    if not row["solved"] or row["refused"]:
                        say(f"{row['planner']}: {row['reason']}")
                rows += found
                if len(rows) % 100 < len(found):
                    report.write_figures(
                        report.replaced(results, robot, rows, options), options.out
                    )
        results = report.replaced(results, robot, rows, options)
        report.write_figures(results, options.out)
        refused += sum(row["refused"] for row in rows)
        print(f"{robot}: {len(problems)} problems in {time.monotonic() - begin:.0f} s", flush=True)
    return max(_finish(results, options.out), int(refused > 0))


def _finish(results: report.Results, folder: Path) -> int:
    for file in report.write(results, folder):
        print(file)
    print(report.markdown(results))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plan",
        description="Solves problem sets of MotionBenchMaker with the library's optimizer and with "
        "OMPL's RRT-Connect, and lets an independent judge look at every path. Results of robots "
        "that are not run again are kept.",
    )
    parser.add_argument("--robots", nargs="+", choices=ROBOTS, default=ROBOTS, metavar="ROBOT")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every n-th problem")
    parser.add_argument("--planners", nargs="+", choices=PLANNERS, default=[*PLANNERS])
    parser.add_argument(
        "--limit", type=float, default=30.0, help="seconds for a planner and a problem (default 30)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="of both planners")
    parser.add_argument(
        "--archive",
        type=Path,
        metavar="FILE",
        help="vamp-planner's source distribution, if at hand",
    )
    parser.add_argument(
        "--out", type=Path, default=report.RESULTS, metavar="FOLDER", help="where results go"
    )
    parser.add_argument(
        "--report", action="store_true", help="only writes tables and pictures of results again"
    )
    return parser


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())

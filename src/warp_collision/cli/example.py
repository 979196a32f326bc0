"""`warp-collision example`: writes the files that the other commands are shown with."""

from __future__ import annotations

import argparse
from pathlib import Path

from warp_collision.cli import common
from warp_collision.cli.terminal import print_text

SUMMARY = "write a robot, a world and a path to try the other commands with"
DESCRIPTION = """\
Writes into FOLDER a Franka Panda (panda.urdf with its meshes, panda.srdf), the
obstacles of a planning problem (cage.glb), and the straight path of its joints
from start to goal (straight.npz), which collides.
"""
EPILOG = """\
example:
  warp-collision example
  warp-collision check cage.glb straight.npz --robot panda.urdf
"""
_PROBLEM = "cage_2"
_WAYPOINTS = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path(),
        metavar="FOLDER",
        help="is made if it does not exist (default: this folder)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    common.start("cpu")
    written = write_example(options.folder, force=options.force)
    print_text("\n".join(map(str, written)))
    return 0


def write_example(folder: Path, *, force: bool = False) -> list[Path]:
    """Writes the files of the example; returns their paths.

    Raises:
        FileExistsError: one of them exists already, and `force` is not set. Then none is written.
    """
    from importlib.resources import as_file, files

    import numpy as np

    from warp_collision.examples import load_panda, load_problem, straight_path
    from warp_collision.io import save_world_file

    problem = load_problem(_PROBLEM)
    with as_file(files("warp_collision.assets") / "panda") as panda:
        contents = {
            folder / path.relative_to(panda): path.read_bytes()
            for path in (*sorted(panda.glob("panda.*")), *sorted(panda.glob("meshes/*")))
        }
        contents[folder / "meshes" / "LICENSE"] = (panda / "LICENSE").read_bytes()
    world, path = folder / "cage.glb", folder / "straight.npz"
    there = [str(file) for file in (*contents, world, path) if file.exists()]
    if there and not force:
        raise FileExistsError(f"{there[0]} exists already; --force overwrites it")
    for file, content in contents.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    save_world_file(world, problem.obstacles)
    joints = straight_path(problem, load_panda(), _WAYPOINTS)
    np.savez(path, joints=joints.numpy(), joint_names=problem.joint_names)
    return [*contents, world, path]

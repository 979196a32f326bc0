"""The command `warp-collision`: a demo, and collision checks of files.

Heavy modules are imported by the functions that need them, so that help and usage errors are quick.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warp_collision.cli.terminal import Parser, print_text
from warp_collision.cli.text_table import align
from warp_collision.messages import escaped

if TYPE_CHECKING:
    import torch

FREE, COLLISION, BAD_INPUT, INTERNAL_ERROR = 0, 1, 2, 3  # exit statuses

_DEMO_DESCRIPTION = """\
Moves a Franka Panda, modelled by spheres, along a straight path in joint space
through a motion-planning problem, prints what each waypoint collides with, and
draws it.
"""

_CHECK_DESCRIPTION = """\
Prints for every waypoint the smallest clearance, the sphere and the mesh that
have it, and the collision cost of all spheres. A clearance is the distance from
a sphere's surface to the nearest mesh, negative by the depth of a penetration.
"""

_CHECK_EPILOG = """\
WORLD is a mesh or scene file (.glb, .obj, .stl, .ply, ...), a URDF, MJCF (.xml)
or USD file, a planning scene of MoveIt (.yaml), or a YAML file in metres:

  mesh:     {shelf: {file_path: shelf.stl, pose: [0.6, 0, 0, 1, 0, 0, 0]}}
  cuboid:   {table: {dims: [1, 0.6, 0.04], pose: [0.5, 0, 0.4, 1, 0, 0, 0]}}
  cylinder: {can: {radius: 0.03, height: 0.1, pose: [0.5, 0, 0.5, 1, 0, 0, 0]}}
  sphere:   {ball: {radius: 0.05, position: [0.5, 0.2, 0.47]}}

A pose is x, y, z, qw, qx, qy, qz. What a check does not see is named.

SPHERES is a .npy file, or an .npz file with an array "spheres": x, y, z, radius
along the last axis, of shape (spheres, 4), (waypoints, spheres, 4) or (batch,
waypoints, spheres, 4). A negative radius disables a sphere.

exit status:
  0 free, 1 collision, 2 wrong usage or input, 3 an error of the program

example, two spheres that move through a table top:
  echo 'cuboid: {top: {dims: [1, 1, 0.1], pose: [0, 0, 0, 1, 0, 0, 0]}}' >w.yaml
  python3 -c 'import numpy as np; np.save("path.npy", [[[0, 0, z, 0.05],
      [0.2, 0, z, 0.1]] for z in (0.3, 0.1, -0.1, -0.3)])'
  warp-collision check w.yaml path.npy             each waypoint
  warp-collision check w.yaml path.npy --swept     and the way between them
"""

_EPILOG = """\
examples:
  warp-collision demo                            a robot, a problem, a picture
  warp-collision check world.yaml spheres.npy    is anything in collision?
  warp-collision check kitchen.glb path.npz --swept --json

`warp-collision check --help` describes the files.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: without the program's name; by default those of the process.

    Returns:
        The exit status: 0 free, 1 collision, 2 wrong input, 3 an error of the program. Wrong usage
        and `--help` leave by SystemExit, as argparse does.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (OSError, ValueError, ImportError) as error:
        message = " ".join(str(error).split())
        print_text(f"warp-collision: error: {message}", sys.stderr)
        return BAD_INPUT
    except Exception:  # Python's own status, 1, would read as a collision
        print_text(traceback.format_exc(), sys.stderr, end="")
        return INTERNAL_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="warp-collision",
        description="Collision checks of spheres, such as those of a robot, against meshes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"warp-collision {version('warp-collision')}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_check(commands)
    return parser


def _add_demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="check a robot's path on a motion-planning problem and draw it",
        description=_DEMO_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--problem", metavar="NAME", help="the problem (default: a cage); a wrong name lists all"
    )
    parser.add_argument(
        "--waypoints",
        type=_count,
        default=32,
        metavar="N",
        help="waypoints of the path (default 32)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo.png"),
        metavar="PNG",
        help="the picture to write (default demo.png)",
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("demo-report.json"),
        metavar="FILE",
        help="the report to write, JSON or, by its ending, text (default demo-report.json)",
    )
    parser.add_argument(
        "--no-picture", dest="picture", action="store_false", help="write the report only"
    )
    parser.set_defaults(run=_demo)


def _add_check(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="check spheres in a file against the meshes in a file",
        description=_CHECK_DESCRIPTION,
        epilog=_CHECK_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "world", type=Path, metavar="WORLD", help="the obstacles: a file, see below"
    )
    parser.add_argument("spheres", type=Path, metavar="SPHERES", help="the spheres: .npy or .npz")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument(
        "--device", help="cpu, cuda or cuda:N (default: cuda where there is one, else cpu)"
    )
    parser.add_argument(
        "--activation-distance",
        type=_distance,
        default=0.02,
        metavar="M",
        help="a sphere costs from this clearance on, in metres (default 0.02)",
    )
    parser.add_argument(
        "--swept",
        action="store_true",
        help="check the straight way between the waypoints too: the cost is the swept cost, and a "
        "collision on the way counts",
    )
    parser.add_argument(
        "--strict", action="store_true", help="fail if WORLD has what a check does not see"
    )
    parser.add_argument(
        "--package-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="where package:// names in a URDF file are looked for; may be repeated",
    )
    parser.set_defaults(run=_check)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 2, got {text!r}")
    return int(text)


def _distance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return value


def _demo(options: argparse.Namespace) -> int:
    _start_warp(_device(None))
    from warp_collision.cli.demo import run_demo

    return run_demo(
        problem=options.problem,
        waypoints=options.waypoints,
        output=options.output,
        report=options.report,
        picture=options.picture,
    )


def _check(options: argparse.Namespace) -> int:
    device = _device(options.device)
    _start_warp(device)
    from warp_collision import MeshWorld
    from warp_collision.io import LeftOutWarning, load_spheres

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LeftOutWarning)
        world = MeshWorld.from_file(
            options.world, device, strict=options.strict, package_dirs=options.package_dir
        )
    for warning in caught:
        print_text(f"warp-collision: warning: {warning.message}", sys.stderr)
    spheres = load_spheres(options.spheres).to(device)
    rows = _check_rows(spheres, world, options.activation_distance, swept=options.swept)
    if options.json:
        print_text(json.dumps(_summary(rows, options, device), indent=1, allow_nan=False))
    else:
        print_text("\n".join(_table(rows, swept=options.swept)))
    return COLLISION if any(row["collision"] for row in rows) else FREE


def _device(name: str | None) -> torch.device:
    import torch

    count = torch.cuda.device_count()
    if name is None:
        name = "cuda" if count else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:  # no device at all
        device = torch.device("meta")
    if device.type == "cpu":
        return device
    index = device.index or 0
    if device.type != "cuda" or index >= count:
        found = f"cuda:N with N < {count}" if count else "there is no CUDA device here"
        raise ValueError(f"--device must be cpu or cuda ({found}), got {name!r}")
    return torch.device("cuda", index)


def _start_warp(device: torch.device) -> None:
    """Starts Warp without its greeting and, for a check on the CPU, without a warning of no GPU."""
    import warp as wp

    from warp_collision.launching.warp_runtime import silence_warp

    silence_warp()
    if device.type != "cpu":
        wp.init()
        return
    # Warp's native library writes the warning, whatever the log level, so the file is set aside.
    stderr = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        wp.init()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _check_rows(
    spheres: torch.Tensor, world: Any, activation_distance: float, *, swept: bool
) -> list[dict[str, Any]]:
    """Reduces a check to one row per batch entry and waypoint.

    Args:
        spheres: (batch, horizon, n_spheres, 4) on the world's device.
        world: the MeshWorld.
        activation_distance: [m].
        swept: whether the cost is that of the moving spheres.

    Returns:
        Rows with batch, waypoint, clearance [m], sphere, mesh, cost, collision, and with `swept`
        also collision_on_the_way: nothing touches at the waypoint, but on a half-segment beside it.
        Clearance, sphere and mesh are None where all spheres are disabled.
    """
    from warp_collision import clearance, sphere_cost, swept_sphere_cost

    closest = clearance(spheres, world)
    smallest, sphere = closest.clearance.min(dim=-1)
    mesh = closest.mesh.gather(-1, sphere[..., None])[..., 0]
    cost_of = swept_sphere_cost if swept else sphere_cost
    cost = cost_of(spheres, world, activation_distance=activation_distance).sum(dim=-1)
    hit = smallest < 0
    # Without an activation distance the swept cost is the depth of the deepest contact on the way.
    way = (
        (swept_sphere_cost(spheres, world, activation_distance=0.0) > 0).any(dim=-1)
        if swept
        else hit
    )
    names = world.names()
    table = zip(
        *(t.flatten().tolist() for t in (smallest, sphere, mesh, cost, hit, way)), strict=True
    )
    rows = []
    for index, (depth, which, what, price, touches, touches_on_way) in enumerate(table):
        enabled = math.isfinite(depth)
        row = {
            "batch": index // spheres.shape[1],
            "waypoint": index % spheres.shape[1],
            "clearance": depth if enabled else None,
            "sphere": which if enabled else None,
            "mesh": names[what] if enabled else None,
            "cost": price,
            "collision": touches or touches_on_way,
        }
        if swept:
            row["collision_on_the_way"] = touches_on_way and not touches
        rows.append(row)
    return rows


def _worst(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The row of the smallest clearance, None where all spheres are disabled."""
    with_sphere = [row for row in rows if row["clearance"] is not None]
    return min(with_sphere, key=lambda row: row["clearance"], default=None)


def _summary(
    rows: list[dict[str, Any]], options: argparse.Namespace, device: torch.device
) -> dict[str, Any]:
    return {
        "world": str(options.world),
        "spheres": str(options.spheres),
        "device": str(device),
        "activation_distance": options.activation_distance,
        "swept": options.swept,
        "collision": any(row["collision"] for row in rows),
        "worst": _worst(rows),
        "rows": rows,
    }


def _table(rows: list[dict[str, Any]], *, swept: bool) -> list[str]:
    head = ("batch", "waypoint", "clearance [m]", "sphere", "mesh", "cost", "")
    cells = [head] + [
        (
            str(row["batch"]),
            str(row["waypoint"]),
            "-" if row["clearance"] is None else f"{row['clearance']:.4f}",
            "-" if row["sphere"] is None else str(row["sphere"]),
            escaped(row["mesh"] or "-"),
            f"{row['cost']:.4g}",
            _verdict(row),
        )
        for row in rows
    ]
    lines = align(cells, right=(0, 1, 2, 3, 5))
    return [*lines, "", _conclusion(rows, swept=swept)]


def _verdict(row: dict[str, Any]) -> str:
    if not row["collision"]:
        return ""
    return "COLLISION on the way" if row.get("collision_on_the_way") else "COLLISION"


def _conclusion(rows: list[dict[str, Any]], *, swept: bool) -> str:
    hits = sum(row["collision"] for row in rows)
    worst = _worst(rows)
    state = f"collision at {hits} of {len(rows)} waypoints" if hits else "free"
    if hits and swept:
        state += " or on the way beside them"
    if worst is None:
        return f"{state}: all spheres are disabled"
    return (
        f"{state}; smallest clearance at a waypoint {worst['clearance']:.4f} m: batch "
        f"{worst['batch']}, waypoint {worst['waypoint']}, sphere {worst['sphere']}, "
        f"mesh {escaped(worst['mesh'])}"
    )


if __name__ == "__main__":
    sys.exit(main())

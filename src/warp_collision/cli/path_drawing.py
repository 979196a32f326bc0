"""Pictures of joint paths that commands write, and how far a command is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from torch import Tensor

from warp_collision.cli.terminal import print_text
from warp_collision.extras import is_installed, require_extra
from warp_collision.robot import JointCurve
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer import render


def draw(
    paths: Mapping[str, Tensor | JointCurve],
    scene: RobotScene,
    output: Path,
    *,
    title: str,
    facts: str,
) -> bool:
    """Draws paths (horizon, n_joints) and curves by name, side by side, into a PNG file.

    Without matplotlib it says so instead, and returns false.
    """
    try:
        require_extra("matplotlib", "drawing")
    except ModuleNotFoundError as error:
        print_text(f"no picture: {error}", sys.stderr)
        return False
    with show_progress("drawing the picture") as progress:
        render(
            scene.world, scene.robot, paths, output=output, title=title, facts=facts,
            progress=progress, **scene.placed,
        )  # fmt: skip
    return True


@contextlib.contextmanager
def show_progress(title: str) -> Iterator[Callable[[float], None]]:
    """Shows progress on the standard error stream while it is a terminal and rich is installed."""
    if sys.stderr is None or not sys.stderr.isatty() or not is_installed("rich"):
        yield lambda fraction: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(title), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda fraction: bar.update(task, total=1.0, completed=fraction)

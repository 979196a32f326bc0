"""Spheres over how far they stick out: of links of other people's robots, see `robots`.

Each link's overshoot is a share of its size, the diagonal of the box around its shapes. By default
it is 5 %, and larger where that would take more than 40 spheres: the columns say how far spheres
stick out then, at half of the links and at most, as length and as share of the size. The other
columns have the spheres of all links, and of the link with most, at one share for all links.
"""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.robots import URDFS, data_folder, package_dirs
from warp_collision.robot.model.link_shapes import mesh_in_link, spheres_of_shapes
from warp_collision.robot.model.urdf_model import LinkSphere, UrdfModel, read_urdf_model

SHARES = 0.05, 0.1, 0.2
_MOST_LINKS = 5  # that `--links` names


class Fitted(NamedTuple):
    """Spheres of a robot's links that have fitted ones alone.

    Attributes:
        counts: by link.
        overshoots: by link [m].
    """

    counts: dict[str, int]
    overshoots: dict[str, float]

    def text(self) -> str:
        """All spheres, and those of the link with most."""
        return f"{sum(self.counts.values())}, {max(self.counts.values())}"


def link_sizes(model: UrdfModel) -> dict[str, float]:
    """The diagonal of the box around the shapes of each link without spheres of its own [m]."""
    corners: dict[str, list[np.ndarray]] = {}
    for shape in model.collisions:
        if not isinstance(shape, LinkSphere):
            corners.setdefault(shape.link, []).append(np.asarray(mesh_in_link(shape).bounds))
    balls = {shape.link for shape in model.collisions if isinstance(shape, LinkSphere)}
    return {
        link: float(np.linalg.norm(np.ptp(np.concatenate(some), axis=0)))
        for link, some in corners.items()
        if link not in balls
    }


def fitted(model: UrdfModel, sizes: dict[str, float], share: float | None) -> Fitted:
    """Spheres with an overshoot of a share of each link's size; the default ones for None."""
    lengths = None if share is None else {link: share * size for link, size in sizes.items()}
    found = spheres_of_shapes(model, lengths)
    return Fitted(
        {link: len(found.model.bodies[link].spheres) for link in sizes},
        {link: max(report.overshoot for report in found.fits[link]) for link in sizes},
    )


def line(name: str, model: UrdfModel, shares: Sequence[float], most_links: int) -> str:
    """A robot's line of the table, and lines of the links whose spheres stick out most."""
    sizes = link_sizes(model)
    default = fitted(model, sizes, None)
    lengths = np.array([default.overshoots[link] for link in sizes])
    parts = lengths / np.array([*sizes.values()])
    cells = [
        f"{name} | {len(sizes)} | {default.text()}",
        f"{1e3 * np.median(lengths):.0f}, {1e3 * lengths.max():.0f} mm "
        f"| {np.median(parts):.1%}, {parts.max():.1%}",
        *(fitted(model, sizes, share).text() for share in shares),
    ]
    lines = [f"| {' | '.join(cells)} |"]
    for i in np.argsort(-lengths)[:most_links]:
        link = [*sizes][i]
        lines.append(
            f"  {link} of {1e3 * sizes[link]:.0f} mm: {default.counts[link]} spheres stick out by "
            f"{1e3 * lengths[i]:.1f} mm, {parts[i]:.1%}"
        )
    return "\n".join(lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds which robots, and how much of them."""
    parser.add_argument("--robots", nargs="+", choices=[*URDFS], default=[*URDFS], metavar="NAME")
    parser.add_argument("--shares", nargs="*", type=float, default=SHARES, metavar="SHARE")
    parser.add_argument("--links", action="store_true", help="name links that stick out most")


def run(options: Any) -> str:
    """Fits the robots, and prints each as soon as it is done."""
    shares = [f"{share:.0%}" for share in options.shares]
    head = "robot", "links", "by default", "sticks out", "of the size", *shares
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for name in options.robots:
        model = read_urdf_model(data_folder() / URDFS[name], package_dirs())
        lines.append(line(name, model, options.shares, _MOST_LINKS if options.links else 0))
        print(lines[-1], flush=True)
    return "## Spheres over how far they stick out\n\n" + "\n".join(lines) + "\n"

"""Sphere models that others published, beside fits that stick out as far.

Of each link with spheres and shapes `coverage` measures how far its published spheres stick out of
its collision shapes, and how much of the surface they leave out. Then `fit_spheres` covers all of
the same shapes with that overshoot. Spheres of links without shapes are not compared, nor those of
links in which they stick out by less than 2 mm, which are a skeleton and no cover.

The Panda of this repository has its spheres from VAMP. Others are read from checkouts that you
have, whose licenses are their own:

    git clone --depth 1 --branch v0.7.8 https://github.com/NVlabs/curobo.git
    git clone https://github.com/CoMMALab/foam.git
    python -m benchmarks published-spheres --curobo curobo --foam foam
"""

import argparse
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Failed
from warp_collision.examples import load_panda
from warp_collision.formats.yaml_values import read_yaml
from warp_collision.io.placing import joined
from warp_collision.obstacles.mesh_report import OpenMeshWarning
from warp_collision.robot import Coverage, coverage, fit_spheres
from warp_collision.robot.model.link_shapes import mesh_in_link, shapes_of_links
from warp_collision.robot.model.urdf_model import LinkSphere, read_urdf_model

_CUROBO = "src/curobo/content"
_ROBOTS = f"{_CUROBO}/assets/robot"
CUROBO = {
    "Panda, cuRobo 0.7.8": ("franka_description/franka_panda.urdf", "franka_mesh.yml"),
    "UR10e, cuRobo 0.7.8": ("ur_description/ur10e.urdf", "ur10e.yml"),
    "iiwa 7, cuRobo 0.7.8": ("iiwa_allegro_description/iiwa.urdf", "iiwa_allegro.yml"),
}
FOAM = {"Fetch, foam": ("assets/fetch/fetch.urdf", "assets/fetch/fetch_spherized_8.urdf")}
_RESOLUTION = 2e-3  # [m], of coverages
_LEAST = 2e-3  # [m], of overshoots that are compared


class Compared(NamedTuple):
    """Spheres of a robot's links that are compared.

    Attributes:
        name: of the robot, and who published the spheres.
        published: coverages of the links, by the published spheres.
        ours: by fitted ones.
    """

    name: str
    published: list[Coverage]
    ours: list[Coverage]


def compare(name: str, urdf: Path, spheres: dict[str, np.ndarray]) -> Compared:
    """Compares spheres of links with fits of their shapes."""
    model = read_urdf_model(urdf)
    collisions = {shape.link for shape in model.collisions}
    published, ours = [], []
    for link, shapes in shapes_of_links(model).items():
        if link not in spheres or link not in collisions:
            continue
        mesh = joined([*map(mesh_in_link, shapes)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OpenMeshWarning)
            found = coverage(spheres[link], mesh, resolution=_RESOLUTION)
            if found.overshoot >= _LEAST:
                published.append(found)
                ours.append(fit_spheres(mesh, max_overshoot=found.overshoot).report)
    return Compared(name, published, ours)


def text(rows: list[Compared]) -> str:
    """The table as Markdown."""
    lines = [
        "| robot, spheres of | links | stick out by, median and most | published | of the surface "
        "left out | fitted | left out |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        overshoots = [1e3 * found.overshoot for found in row.published]
        left_out = np.mean([found.uncovered for found in row.published])
        most = max(found.uncovered for found in row.ours)
        lines.append(
            f"| {row.name} | {len(row.ours)} | {np.median(overshoots):.0f}, {max(overshoots):.0f} "
            f"mm | {sum(found.count for found in row.published)} | {left_out:.0%} "
            f"| {sum(found.count for found in row.ours)} | {most:.0%} |"
        )
    return "\n".join(lines)


def _of_yaml(path: Path, urdf: Path) -> dict[str, np.ndarray]:
    """Spheres of the links that the URDF has: the file of the iiwa has those of a hand too."""
    links = read_urdf_model(urdf).link_names
    return {
        link: np.array([[*ball["center"], ball["radius"]] for ball in balls])
        for link, balls in read_yaml(path)["collision_spheres"].items()
        if link in links
    }


def _of_urdf(path: Path) -> dict[str, np.ndarray]:
    rows: dict[str, list[list[float]]] = {}
    for shape in read_urdf_model(path).collisions:
        if isinstance(shape, LinkSphere):
            rows.setdefault(shape.link, []).append([*shape.center, shape.radius])
    return {link: np.array(some) for link, some in rows.items()}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the checkouts."""
    parser.add_argument("--curobo", type=Path, help="a checkout of cuRobo 0.7.8")
    parser.add_argument("--foam", type=Path, help="a checkout of foam")


def run(options: Any) -> str:
    """Compares the robots of this repository and of the checkouts."""
    panda = load_panda()
    urdf = panda._description.urdf
    cases = {"Panda, VAMP": (urdf, {link: panda.spheres_of(link) for link in panda.link_names})}
    if options.curobo is not None:
        for name, (robot, file) in CUROBO.items():
            path = _existing(options.curobo / _ROBOTS / robot)
            spheres = _existing(options.curobo / _CUROBO / "configs/robot/spheres" / file)
            cases[name] = path, _of_yaml(spheres, path)
    if options.foam is not None:
        for name, (robot, file) in FOAM.items():
            path = _existing(options.foam / robot)
            cases[name] = path, _of_urdf(_existing(options.foam / file))
    rows = []
    for name, (path, spheres) in cases.items():
        rows.append(compare(name, path, {k: v for k, v in spheres.items() if len(v)}))
        print(text(rows[-1:]).splitlines()[-1], flush=True)
    return f"## Published spheres, and fits that stick out as far\n\n{text(rows)}\n"


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise Failed(f"{path} must exist in the checkout", 2)
    return path

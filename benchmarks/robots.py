"""Robots of other people's packages: do they touch where their meshes touch?

The URDFs and meshes come from two wheels, `example-robot-data` and `pybullet`, which pip downloads
once into `~/.cache/warp-collision`, checked by their SHA-256; their licences are in them. Each
robot is read without an SRDF and without options. Then, at random joint values within the limits:

- **contact, meshes**: the share of configurations in which the robot touches itself, as its spheres
  and convex pieces say, and by coal (`pip install coal`) on the meshes of the URDF, of the pairs of
  links that are checked.
- **agree**: the share in which both say the same.
- **missed**: configurations in contact by the meshes alone.
- **home**: whether the neutral configuration is free of contact; if not, how many pairs of links
  touch there in the meshes too.
- **of a link**: the spheres of a link on average, and of the link that has most.
- **pairs, load**: milliseconds to find the pairs of links that are checked, and to read the robot
  from the file that `RobotSpheres.save` writes, the best of five times.

With `--pairs` the pairs of links are named that touch most often where their meshes do not. With
`--near` it is told in how many configurations meshes come within some mm of each other, and do not
touch: a cover that sticks out so far calls these contacts. With `--docs` the table of
docs/robots.md gets the lines. Times are those of one thread; with `--cold` spheres are fitted anew,
without the cache of fits.
"""

import argparse
import contextlib
import hashlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from benchmarks.harness import Failed
from warp_collision.robot import RobotSpheres
from warp_collision.robot.model.link_pairs import random_joints
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.neutral import neutral_joints
from warp_collision.robot.model.shape_gaps import touching_links
from warp_collision.robot.model.urdf_model import LinkSphere, UrdfModel, read_urdf_model

WHEELS = {
    "example-robot-data==6.0.0": "424092a8093411ac2cd4ccc0572382bfc6b5eb4833aa984ef5e671dd67cd0a6e",
    "pybullet==3.2.7": "5d858abf7c12a21ef3ed351cf81dac1b5e486ec25c9ab59bfc84beb89034edff",
}
_ROBOTS, _BULLET = "cmeel.prefix/share/example-robot-data/robots", "pybullet_data"
URDFS = {
    "iiwa": f"{_BULLET}/kuka_iiwa/model.urdf",
    "ur5": f"{_ROBOTS}/ur_description/urdf/ur5_robot.urdf",
    "ur10": f"{_ROBOTS}/ur_description/urdf/ur10_robot.urdf",
    "kinova": f"{_ROBOTS}/kinova_description/robots/kinova.urdf",
    "z1": f"{_ROBOTS}/z1_description/urdf/z1.urdf",
    "so101": f"{_ROBOTS}/so_arm_description/urdf/so101.urdf",
    "a1": f"{_ROBOTS}/a1_description/urdf/a1.urdf",
    "b1-z1": f"{_ROBOTS}/b1_description/urdf/b1-z1.urdf",
    "talos": f"{_ROBOTS}/talos_data/robots/talos_reduced.urdf",
    "pr2": f"{_ROBOTS}/pr2_description/urdf/pr2.urdf",
    "baxter": f"{_ROBOTS}/baxter_description/urdf/baxter.urdf",
    "romeo": f"{_ROBOTS}/romeo_description/urdf/romeo.urdf",
    "tiago": f"{_ROBOTS}/tiago_description/robots/tiago.urdf",
    "tiago-pro": f"{_ROBOTS}/tiago_pro_description/robots/tiago_pro.urdf",
    "centauro": f"{_ROBOTS}/centauro_description/urdf/centauro.urdf",
}
DOCS = Path(__file__).parents[1] / "docs" / "robots.md"
_NEAR = 0.001, 0.002, 0.003, 0.005  # [m], of distances that are told
_AT_ONCE = 64  # configurations
_MOST_PAIRS = 12  # that are named of a robot


class Measured(NamedTuple):
    """A robot beside its meshes.

    Attributes:
        name: of the robot.
        spheres: how many.
        mean: of a link that has some.
        most: of one link.
        seconds: to read it.
        pairs_seconds: to find the pairs of links.
        load_seconds: to read it from a robot file.
        contact: share of configurations in contact, as the library says.
        by_meshes: the same by the meshes.
        agree: share in which both say the same.
        missed: number of configurations.
        home: pairs of links that touch at the neutral configuration.
        touching: those of them whose meshes touch.
        false: pairs of links, in how many configurations they touch but not their meshes, and in
            how many these do too.
    """

    name: str
    spheres: int
    mean: float
    most: int
    seconds: float
    pairs_seconds: float
    load_seconds: float
    contact: float
    by_meshes: float
    agree: float
    missed: int
    home: tuple[tuple[str, str], ...]
    touching: tuple[tuple[str, str], ...]
    false: tuple[tuple[tuple[str, str], int, int], ...]


@cache
def data_folder() -> Path:
    """The folder of the unpacked wheels; raises OSError or `Failed` where they cannot be had."""
    key = hashlib.sha256("".join(WHEELS.values()).encode()).hexdigest()[:12]
    # The user's cache: tests have another one of fits, which ends with them.
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(user) / "warp-collision" / "robots-of-wheels" / key
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        wanted = Path(temporary) / "wheels.txt"
        wanted.write_text("".join(f"{k} --hash=sha256:{v}\n" for k, v in WHEELS.items()))
        # Their data are the same for all Pythons and platforms.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--require-hashes", "--only-binary=:all:", "--python-version=3.11"]
        command += ["--platform=manylinux2014_x86_64", "-d", temporary, "-r", str(wanted)]
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode:
            raise Failed(f"pip could not download the wheels: {found.stderr.strip()[-300:]}")
        unpacked = Path(temporary) / "data"
        for wheel in Path(temporary).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.startswith((_ROBOTS, _BULLET))]
                archive.extractall(unpacked, names)
        try:
            os.replace(unpacked, folder)
        except OSError:  # another process was first
            if not folder.is_dir():
                raise
    return folder


def package_dirs() -> tuple[Path, ...]:
    """Where the packages of the URDFs are."""
    folder = data_folder()
    return folder / _ROBOTS, folder / _ROBOTS / "../..", folder / _BULLET


def load(name: str) -> RobotSpheres:
    """A robot, without an SRDF and without options."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RobotSpheres(data_folder() / URDFS[name], package_dirs=package_dirs())


def random_configurations(robot: RobotSpheres, count: int) -> torch.Tensor:
    """(1 + count, n_joints) float64, the neutral one first."""
    generator = torch.Generator().manual_seed(1)  # others than those by which spheres are fitted
    limits = robot.joint_limits.double()
    neutral = torch.from_numpy(neutral_joints(limits.numpy()))
    return torch.cat((neutral[None], random_joints(limits, count, generator)))


def bvh_of(mesh: Any) -> Any:
    """A mesh for coal."""
    import coal

    model = coal.BVHModelOBBRSS()
    model.beginModel(len(mesh.faces), len(mesh.vertices))
    vertices, faces = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
    vertices.extend([*np.asarray(mesh.vertices, dtype=float)])
    faces.extend([coal.Triangle(*map(int, face)) for face in mesh.faces])
    model.addSubModel(vertices, faces)
    model.endModel()
    return model


class Meshes:
    """The shapes of a robot's links, for coal; their spheres are exact ones."""

    def __init__(self, robot: RobotSpheres):
        import coal

        self._coal, self._index = coal, {name: i for i, name in enumerate(robot.link_names)}
        # Each with the place of its center in the link.
        self._models: dict[str, list[tuple[Any, np.ndarray]]] = {}
        for shape in _urdf_of(robot).collisions:
            is_ball = isinstance(shape, LinkSphere)
            model = coal.Sphere(shape.radius) if is_ball else bvh_of(mesh_in_link(shape))
            place = shape.center if is_ball else np.zeros(3)
            self._models.setdefault(shape.link, []).append((model, place))

    def touch(self, transforms: np.ndarray, one: str, other: str) -> bool:
        """Whether two links touch, transforms (n_links, 4, 4)."""
        return any(
            self._coal.collide(*a, *b, self._coal.CollisionRequest(), self._coal.CollisionResult())
            for a, b in self._placed(transforms, one, other)
        )

    def distance(self, transforms: np.ndarray, one: str, other: str) -> float:
        """Distance of two links [m], not above 0 in contact."""
        return min(
            self._coal.distance(*a, *b, self._coal.DistanceRequest(), self._coal.DistanceResult())
            for a, b in self._placed(transforms, one, other)
        )

    def _placed(self, transforms: np.ndarray, *names: str) -> Iterator[tuple[Any, Any]]:
        """Pairs of shapes of two links, each with its place in the world."""
        both = []
        for name in names:
            at = transforms[self._index[name]]
            rotation, offset = at[:3, :3], at[:3, 3]
            both.append(
                [
                    (model, self._coal.Transform3s(rotation, rotation @ center + offset))
                    for model, center in self._models[name]
                ]
            )
        return itertools.product(*both)


def _urdf_of(robot: RobotSpheres) -> UrdfModel:
    """The shapes of a robot's URDF, spheres among them."""
    description = robot._description
    return read_urdf_model(description.urdf, description.package_dirs)


@contextlib.contextmanager
def _no_cache() -> Iterator[None]:
    """An empty cache of fits."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, WARP_COLLISION_CACHE=folder),
    ):
        yield


def measure(name: str, count: int, *, is_cold: bool = False) -> Measured:
    """Reads a robot, and compares it with its meshes at random configurations."""
    with _no_cache() if is_cold else contextlib.nullcontext():
        begin = time.process_time()
        robot = load(name)
        seconds = time.process_time() - begin
    joints, pairs, meshes = random_configurations(robot, count), robot.default_pairs, Meshes(robot)
    transforms = robot.link_transforms(joints).numpy()
    touch = torch.cat(
        [touching_links(part, robot._layout, pairs) for part in joints.split(_AT_ONCE)]
    )
    by_pair = dict(zip(pairs.link_pairs, touch.T.numpy(), strict=True))
    of_robot = touch.any(1).numpy()
    by_meshes = np.array(
        [any(meshes.touch(at, *pair) for pair in _sorted(by_pair, row)) for row, at in
         enumerate(transforms)]
    )  # fmt: skip
    home = tuple(pair for pair, touches in by_pair.items() if touches[0])
    spheres, at_random = [*map(robot.sphere_links.count, set(robot.sphere_links))], slice(1, None)
    return Measured(
        name,
        robot.n_spheres,
        float(np.mean(spheres)),
        max(spheres),
        seconds,
        _best_of_five(robot.self_collision_pairs),
        _load_seconds(robot),
        float(of_robot[at_random].mean()),
        float(by_meshes[at_random].mean()),
        float((of_robot == by_meshes)[at_random].mean()),
        int((by_meshes & ~of_robot).sum()),
        home,
        tuple(pair for pair in home if meshes.touch(transforms[0], *pair)),
        _false_contacts(by_pair, transforms, meshes),
    )


def _best_of_five(call: Callable[[], object]) -> float:
    """Seconds of one thread."""
    times = []
    for _ in range(5):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


def _load_seconds(robot: RobotSpheres) -> float:
    """Seconds to read a robot from the file that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "robot.yaml"
        robot.save(path)
        return _best_of_five(lambda: RobotSpheres.from_file(path))


def _false_contacts(
    by_pair: dict[tuple[str, str], np.ndarray], transforms: np.ndarray, meshes: Meshes
) -> tuple[tuple[tuple[str, str], int, int], ...]:
    """Pairs of links by how often they touch, and their meshes do not."""
    found = []
    for pair, touches in by_pair.items():
        rows = np.flatnonzero(touches)
        true = sum(meshes.touch(transforms[row], *pair) for row in rows)
        if true < len(rows):
            found.append((pair, len(rows) - true, true))
    return tuple(sorted(found, key=lambda row: -row[1]))


def _sorted(by_pair: dict[tuple[str, str], np.ndarray], row: int) -> list[tuple[str, str]]:
    """The pairs of links, those first that touch: any whose meshes do is enough."""
    return sorted(by_pair, key=lambda pair: not by_pair[pair][row])


_HEAD = (
    "| robot | spheres | of a link | read in | pairs | load | contact | meshes | agree | missed "
    "| home |"
)


def text(rows: Sequence[str]) -> str:
    """The table as Markdown."""
    return "\n".join([_HEAD, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|", *rows])


def line(row: Measured) -> str:
    """A robot's line of the table."""
    home = "free" if not row.home else f"{len(row.touching)} of {len(row.home)} pairs touch"
    return (
        f"| {row.name} | {row.spheres} | {row.mean:.0f}, {row.most} | {row.seconds:.0f} s "
        f"| {1e3 * row.pairs_seconds:.0f} ms | {1e3 * row.load_seconds:.0f} ms "
        f"| {row.contact:.1%} | {row.by_meshes:.1%} | {row.agree:.1%} | {row.missed} | {home} |"
    )


def write(lines: Sequence[str], path: Path = DOCS) -> None:
    """Puts lines of robots in place of theirs in the table of a page, in the order of `URDFS`."""
    page = path.read_text(encoding="utf-8")
    before, after = page.split(f"{_HEAD}\n", 1)
    table, *rest = after.split("\n\n", 1)
    known = {line.split("|")[1].strip(): line for line in (*table.splitlines()[1:], *lines)}
    rows = [known[name] for name in URDFS if name in known]
    path.write_text("\n\n".join([before + text(rows), *rest]), encoding="utf-8")


def false_text(row: Measured) -> str:
    """The pairs of links of a robot with most false contacts, a line each."""
    return "\n".join(
        f"  {one} and {other}: in {false} without the meshes, in {true} with them"
        for (one, other), false, true in row.false[:_MOST_PAIRS]
    )


def near_text(robot: RobotSpheres, count: int) -> str:
    """In how many configurations meshes that do not touch come how near, a line."""
    joints, pairs, meshes = (
        random_configurations(robot, count)[1:],
        robot.default_pairs,
        Meshes(robot),
    )
    transforms, least = robot.link_transforms(joints).numpy(), np.full(count, np.inf)
    for k, rows, gaps in pairs.near(robot.spheres(joints), _NEAR[-1]):
        for row in rows[(gaps < _NEAR[-1]).flatten(1).any(1)].tolist():
            least[row] = min(least[row], meshes.distance(transforms[row], *pairs.link_pairs[k]))
    shares = [
        f"{((least > 0.0) & (least < near)).mean():.1%} within {1e3 * near:g}" for near in _NEAR
    ]
    return f"  meshes do not touch, but come near: {', '.join(shares)} mm"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds which robots, and how many configurations."""
    parser.add_argument("--robots", nargs="+", choices=[*URDFS], default=[*URDFS], metavar="NAME")
    parser.add_argument("--count", type=int, default=1000, help="random configurations")
    parser.add_argument("--pairs", action="store_true", help="name pairs in false contact")
    parser.add_argument("--near", action="store_true", help="tell how near meshes come")
    parser.add_argument("--docs", action="store_true", help=f"keep the lines in {DOCS.name}")
    parser.add_argument("--cold", action="store_true", help="fit spheres anew")


def run(options: Any) -> str:
    """Measures the robots, and prints each as soon as it is done."""
    lines = []
    for name in options.robots:
        found = measure(name, options.count, is_cold=options.cold)
        lines.append(line(found))
        print(lines[-1], flush=True)
        if options.pairs:
            print(false_text(found), flush=True)
        if options.near:
            print(near_text(load(name), options.count), flush=True)
        if options.docs:
            write(lines[-1:])
    title = f"## Robots and their meshes, {options.count} random configurations each"
    return f"{title}\n\n{text(lines)}\n"

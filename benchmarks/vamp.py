"""Does a Panda collide, yes or no: the library next to VAMP, where that is installed.

VAMP (C++, `pip install vamp-planner`) checks eight configurations at a time with SIMD
instructions, kinematics and self-collision included, by code that was generated for the robot. Both
get the same 59 spheres, pairs of links, joint values and obstacles; capsules stand for cylinders,
which VAMP does not know.

- **one a call**: a Python loop with one configuration in each call.
- **many, one answer each**: VAMP's `validate` in a loop, for it has no call for many; the library
  gets all in one call.
- **of free motions**: configurations of motions that are free, which is what VAMP is made for: one
  call of its `Path.validate`, which ends at the first hit and has one answer for all of them.
- **motions**: the library proves motions of 0.1 to 4 rad free, all in one call. VAMP looks at
  samples, 32 a radian in its planners and `Path.validate`, eight of each motion in its
  `validate_motion`, a call for each. What the judge of `benchmarks.plan` finds at samples of which
  spheres are 0.1 mm apart is the truth.
"""

import importlib
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import warp_collision as wc
from benchmarks import harness
from benchmarks.harness import CPU, ROOT, Call, Failed
from warp_collision.examples import load_panda, load_problem

MISSING = """\
There is no module `vamp`. It is VAMP, whose license is its own, and is built from its sources:

    pip install vamp-planner
"""
# Pairs of links that VAMP's Panda leaves out beside adjacent ones.
IGNORED = {
    "link0": "link2 link3 link4",
    "link1": "link3 link4",
    "link2": "link4 link6",
    "link3": "link5 link6 link7 hand leftfinger rightfinger",
    "link4": "link6 link7 hand leftfinger rightfinger",
    "link6": "hand leftfinger rightfinger",
}
SCENES = ("cage", "shelf-5", "shelf-10", "shelf-20", "plates")
TIMES = 25  # that VAMP goes along a free motion in one call, so that the call itself is little
PER_RADIAN = 32  # configurations of VAMP's planners
LANES = 8  # configurations that VAMP looks at together
TOLERANCE = 1e-3  # of the library's proof [m]
ROUNDING = 1e-5  # clearance that float32 may tell wrong [m]
STEPS = (16e-3, 4e-3, 1e-3, 1e-4)  # [m] of the judge's samples


def load() -> Any:
    """The module `vamp`."""
    try:
        return importlib.import_module("vamp")
    except ImportError:
        raise Failed(MISSING, 2) from None


def mapping_of(scene: str) -> dict[str, dict[str, Any]]:
    """A cage of eight boxes, so many obstacles of a shelf from its middle, or plates.

    The plates are eight of 30 cm by 30 cm by 1 mm, anywhere around the robot.
    """
    if scene == "plates":
        rng = np.random.default_rng(4)
        ways, turns = rng.normal(size=(8, 3)), rng.normal(size=(8, 4))
        places = ways / np.linalg.norm(ways, axis=1, keepdims=True) * rng.uniform(0.5, 0.9, (8, 1))
        turns /= np.linalg.norm(turns, axis=1, keepdims=True)
        poses = np.concatenate((places + np.array([0.0, 0.0, 0.4]), turns), axis=1).tolist()
        return {
            "cuboid": {str(i): {"dims": (0.3, 0.3, 1e-3), "pose": p} for i, p in enumerate(poses)}
        }
    found = list(
        load_problem("cage_2" if scene == "cage" else "bookshelf_thin_2").obstacles.values()
    )
    if scene != "cage":
        middle = np.median([o.pose[:3] for o in found], axis=0)
        found.sort(key=lambda o: float(np.linalg.norm(np.subtract(o.pose[:3], middle))))
        found = found[: int(scene.removeprefix("shelf-"))]
    mapping: dict[str, dict[str, Any]] = {"cuboid": {}, "capsule": {}}
    for i, (geometry, pose, *_) in enumerate(found):
        if isinstance(geometry, wc.Cuboid):
            mapping["cuboid"][str(i)] = {"dims": geometry.dims, "pose": pose}
        else:
            z, length = 0.5 * geometry.height, {"radius": geometry.radius}
            ends = {"base": (0.0, 0.0, -z), "tip": (0.0, 0.0, z)}
            mapping["capsule"][str(i)] = {**length, **ends, "pose": pose}
    return mapping


def environment_of(vamp: Any, scene: Any, capsules: bool = True) -> Any:
    """A scene of the judge as VAMP has it: for cylinders capsules, or boxes."""
    environment = vamp.Environment()
    for obstacle in scene.obstacles:
        place = obstacle.position.tolist(), angles_of(obstacle.rotation)
        if obstacle.kind == "sphere":
            environment.add_sphere(vamp.Sphere(place[0], obstacle.dimensions[0]))
        elif obstacle.kind == "box":
            environment.add_cuboid(vamp.Cuboid(*place, [0.5 * e for e in obstacle.dimensions]))
        else:
            length, radius = obstacle.dimensions
            if capsules:
                environment.add_capsule(vamp.Cylinder(*place, radius, length))
            else:
                environment.add_cuboid(vamp.Cuboid(*place, [radius, radius, 0.5 * length]))
    return environment


def angles_of(r: np.ndarray) -> list[float]:
    """Angles about the fixed x, y and z axes, one after the other, that make a (3, 3) rotation."""
    about_x, about_z = np.arctan2(r[2, 1], r[2, 2]), np.arctan2(r[1, 0], r[0, 0])
    return [float(about_x), float(np.arctan2(-r[2, 0], np.hypot(r[0, 0], r[1, 0]))), float(about_z)]


class Case(NamedTuple):
    """Both on one scene, and the judge."""

    name: str
    rounds: int
    theirs: Any  # the robot
    environment: Any
    robot: Any
    pairs: Any
    world: wc.MeshWorld
    judge: Any
    scene: Any

    def hits(self, joints: Tensor) -> Tensor:
        """Whether the library says that configurations (n, n_joints) collide."""
        return wc.configuration_in_collision(
            joints, self.robot, self.world, self_collision=self.pairs
        )

    def proofs(self, motions: Tensor) -> Tensor:
        """Whether the library proves motions (n, 2, n_joints) free."""
        options: dict[str, Any] = {"self_collision": self.pairs, "tolerance": TOLERANCE}
        return ~wc.joint_path_in_collision(motions, self.robot, self.world, **options)[:, 0]

    def validate(self, rows: Tensor) -> list[bool]:
        """Whether VAMP says that configurations are free."""
        return [self.theirs.validate(row, self.environment) for row in rows.numpy()]

    def validate_motions(self, motions: Tensor) -> list[bool]:
        """Whether VAMP's `validate_motion` says that motions are free."""
        check, environment = self.theirs.validate_motion, self.environment
        return [check(*ends, environment, False) for ends in motions.numpy()]

    def paths(self, motions: Tensor, times: int = 1) -> list[Any]:
        """VAMP's paths along motions, so many times there and back."""
        found = []
        for motion in motions.numpy():
            found.append(self.theirs.Path())
            for row in itertools.chain(*[motion] * times):
                found[-1].append(row)
        return found

    def validate_paths(self, paths: Sequence[Any]) -> list[bool]:
        """Whether VAMP says that paths are free, by 32 configurations a radian."""
        return [path.validate(self.environment) for path in paths]

    def compare(
        self, question: str, theirs: Any, ours: Any, n: int, m: int = 0, differ: str = ""
    ) -> list[str]:
        """A row: both timed, that answer n in a call, or theirs m."""
        calls = {"theirs": Call(theirs, m or n), "ours": Call(ours, n)}
        times = harness.interleave(calls, self.rounds)
        figures = [harness.micro(times.median(name)) for name in calls]
        return [self.name, question, *figures, f"{times.ratio('ours', 'theirs'):.2g}", differ]


def make_case(vamp: Any, name: str, rounds: int) -> Case:
    """A scene as both have it, and the judge."""
    from benchmarks.plan.judge import Judge
    from benchmarks.plan.scene import Scene

    robot, mapping = load_panda(), mapping_of(name)
    links = [(f"panda_{a}", f"panda_{b}") for a, others in IGNORED.items() for b in others.split()]
    judge = Judge(ROOT / "assets" / "panda" / "panda.urdf", None, robot.joint_names, links)
    scene, world = Scene.from_mapping(mapping), wc.MeshWorld.from_mapping(mapping, device=CPU)
    pairs, environment = robot.self_collision_pairs(ignore=links), environment_of(vamp, scene)
    return Case(name, rounds, vamp.panda, environment, robot, pairs, world, judge, scene)


def random_joints(case: Case, count: int) -> Tensor:
    """(count, n_joints) values anywhere within the limits."""
    low, high = case.robot.joint_limits.float().unbind(-1)
    drawn = torch.rand((count, len(low)), generator=torch.Generator().manual_seed(1))
    return low + (high - low) * drawn


def random_motions(case: Case, free: Tensor, count: int) -> Tensor:
    """Motions (n, 2, n_joints) of 0.1 to 4 rad between free configurations."""
    begin, generator = free[: 4 * count], torch.Generator().manual_seed(2)
    way = torch.randn(begin.shape, generator=generator)
    length = 0.1 + 3.9 * torch.rand((len(begin), 1), generator=generator)
    end = begin + length * way / way.norm(dim=-1, keepdim=True)
    return torch.stack((begin, end), dim=1)[~case.hits(end)][:count]


def of_configurations(case: Case, joints: Tensor) -> list[list[str]]:
    """Times of configurations."""
    hits, theirs, n = case.hits(joints), ~torch.tensor(case.validate(joints)), len(joints)
    few = joints[:100].split(1)
    motions = random_motions(case, joints[~hits], 64)
    motions = motions[case.proofs(motions)][:32]
    blocks = (PER_RADIAN / LANES * (motions[:, 1] - motions[:, 0]).norm(dim=-1)).ceil().int()
    steps = [torch.linspace(0.0, 1.0, 1 + LANES * n)[1:, None] for n in blocks.tolist()]
    along = torch.cat([torch.lerp(*ends, s) for ends, s in zip(motions, steps, strict=True)])
    paths = case.paths(motions, TIMES)
    hit = f"{len(paths) - sum(case.validate_paths(paths))} motions, {case.hits(along).sum()}"
    # Of 50 waypoints, so that there are 49 motions.
    counts = len(along), (2 * TIMES - 1) * len(along)
    of_paths, of_joints = lambda: case.validate_paths(paths), lambda: case.hits(along)
    free = "of free motions", of_paths, of_joints, *counts, f"{hit} configurations hit"
    one, many = lambda: [*map(case.hits, few)], lambda: case.hits(joints)
    differ = f"{int((hits != theirs).sum())} of {n}, {int(hits.sum())} hits"
    return [
        case.compare("one a call", lambda: case.validate(joints[:100]), one, len(few)),
        case.compare("many, one answer each", lambda: case.validate(joints), many, n, 0, differ),
        case.compare(*free),
    ]


def of_spheres(case: Case, joints: Tensor) -> list[str]:
    """Answers for the spheres as VAMP places them, obstacles only, and how far they are off."""
    placed = [[(s.x, s.y, s.z, s.r) for s in case.theirs.fk(row)] for row in joints.numpy()]
    theirs, centers = torch.tensor(placed), case.judge.centers(joints.double().numpy())
    off = [
        f"{1e6 * np.linalg.norm(spheres[..., :3].numpy() - centers, axis=-1).max():.1f}"
        for spheres in (theirs, case.robot(joints))
    ]
    world = case.scene.nearest(centers, case.judge.radii).clearance.min(axis=1)
    both = np.minimum(world, case.judge.gaps(centers).min(axis=1))
    hit = wc.any_in_collision(theirs[:, None], case.world)[:, 0].numpy()
    apart = int(((hit != (world < 0.0)) & (np.abs(world) > ROUNDING)).sum())
    known, answers = np.abs(both) > ROUNDING, (~np.array(case.validate(joints)), case.hits(joints))
    wrong = [str(int(((np.asarray(a) != (both < 0.0)) & known).sum())) for a in answers]
    row = [case.name, str(len(joints)), " / ".join(off), str(apart), " / ".join(wrong)]
    return [*row, str(int((~known).sum()))]


def of_motions(case: Case, motions: Tensor) -> tuple[list[list[str]], list[list[str]]]:
    """Times of motions, and who is wrong about how many."""
    paths, few = case.paths(motions), motions[:50]
    ours, n = lambda: case.proofs(motions), len(motions)
    eight, many = lambda: case.validate_motions(motions), lambda: case.validate_paths(paths)
    some, one = lambda: case.validate_paths(paths[:50]), lambda: [*map(case.proofs, few.split(1))]
    rows = [
        case.compare("motions, VAMP by 8 samples", eight, ours, n),
        case.compare("motions, VAMP by 32 samples a radian", many, ours, n),
        case.compare("the same, one a call", some, one, len(few)),
    ]
    answers = {"VAMP, 8 samples": eight(), "VAMP, 32 samples a radian": many()}
    answers["library, proven"] = ours()
    judge, scene = case.judge.judge, case.scene
    smallest = np.array([judge(ends.double().numpy(), scene, STEPS).clearance for ends in motions])
    verdicts = []
    for name, answer in answers.items():
        free = np.asarray(answer)
        missed = smallest[free & (smallest < -ROUNDING)]
        refused = smallest[~free & (smallest > ROUNDING)]
        deepest = f"{-1e3 * missed.min():.1f} mm" if len(missed) else ""
        widest = f"{1e3 * refused.max():.2f} mm" if len(refused) else ""
        row = [case.name, name, f"{int(free.sum())} of {len(free)}", str(len(missed)), deepest]
        verdicts.append([*row, str(len(refused)), widest])
    return rows, verdicts


def add_options(parser: Any) -> None:
    """Which scenes, and how many configurations and motions."""
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=SCENES)
    parser.add_argument("--count", type=int, default=4096, help="configurations")
    parser.add_argument("--motions", type=int, default=400)


HEADS = (
    "scene|question|VAMP, µs|library, µs|library over VAMP|answers that differ",
    "scene|configurations|spheres off by, VAMP's / library's, µm|library wrong of VAMP's spheres|"
    "wrong of both, VAMP / library|undecided by float32",
    "scene||called free|free, but collide|deepest|refused, but free|widest",
)


def run(options: Any) -> str:
    """Three tables."""
    vamp, times, spheres, verdicts = load(), [], [], []
    for name in options.scenes:
        case = make_case(vamp, name, options.rounds)
        joints = random_joints(case, options.count)
        times += of_configurations(case, joints)
        spheres.append(of_spheres(case, joints[:1000]))
        motions = random_motions(case, joints[~case.hits(joints)], options.motions)
        rows, found = of_motions(case, motions)
        times, verdicts = times + rows, verdicts + found
    tables = zip(HEADS, (times, spheres, verdicts), strict=True)
    return "\n".join(harness.table(head.split("|"), rows, 2) for head, rows in tables)

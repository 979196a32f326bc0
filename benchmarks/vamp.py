"""Does a Panda collide, yes or no: the library next to VAMP, where that is installed.

VAMP (C++, `pip install vamp-planner`, with a license of its own) checks eight configurations at a
time by SIMD instructions, kinematics and self-collision included, in code that was generated for
the robot. Both get the same 59 spheres, pairs of links, joint values and obstacles; capsules stand
for cylinders, which VAMP does not know.

- **many**: VAMP's `validate` in a loop, for it has no call for many; the library gets all in one.
- **of free motions**: configurations of motions that are free, which is what VAMP is made for: one
  call of its `Path.validate`, which ends at the first hit and has one answer for all of them.
- **motions**: the library proves motions of 0.1 to 3 rad free, all in one call. VAMP looks at
  samples, 32 a radian, a call for each. What the judge finds at samples of which spheres are 0.1 mm
  apart is the truth of the first hundred.
- **first path**: problems of MotionBenchMaker, one after the other, as far as both ends are free:
  the library's `Planner` until the first path, which is proven, and VAMP's RRT-Connect without its
  simplifier. The judge counts the paths that touch.
"""

import importlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import warp_collision as wc
from benchmarks import harness
from benchmarks.harness import CPU, Call, Failed, Workload, require, seconds_of
from benchmarks.scenes import PANDA, problems
from warp_collision.examples import load_panda
from warp_collision.planning import Planner

# Pairs of links that VAMP's Panda leaves out beside adjacent ones.
IGNORED = {
    "link0": "link2 link3 link4",
    "link1": "link3 link4",
    "link2": "link4 link6",
    "link3": "link5 link6 link7 hand leftfinger rightfinger",
    "link4": "link6 link7 hand leftfinger rightfinger",
    "link6": "hand leftfinger rightfinger",
}
SCENES: dict[str, tuple[str, int]] = {
    "cage": ("cage_2", 8),
    **{f"shelf-{count}": ("bookshelf_thin_2", count) for count in (5, 20)},
    "plates": ("", 8),
}
COUNT, MOTIONS = 4096, 1000  # configurations of a scene, and motions of each length
JUDGED = 100  # of these motions
LENGTHS = (0.1, 0.3, 1.0, 3.0)  # of motions [rad]
TRIES = 5  # of which a planner's time is the median
TIMES = 25  # that VAMP goes along a free motion in one call, so that the call itself is little
PER_RADIAN = 32  # configurations of VAMP's planners
LANES = 8  # configurations that VAMP looks at together
MARGIN = 5e-4  # that paths keep, as one goal has no more than 0.68 mm [m]
TOLERANCE = 1e-3  # of the library's proof [m]
ROUNDING = 1e-5  # clearance that float32 may tell wrong [m]
STEPS = (16e-3, 4e-3, 1e-3, 1e-4)  # [m] of the judge's samples


def load() -> Any:
    """The module `vamp`."""
    try:
        return importlib.import_module("vamp")
    except ImportError:
        raise Failed(f"There is no module `vamp`.\n\n{__doc__}", 2) from None


def mapping_of(scene: str) -> dict[str, dict[str, Any]]:
    """Obstacles of a problem, those in its middle first, all but in `SCENES`; or plates.

    The plates are eight of 30 cm by 30 cm by 1 mm, anywhere around the robot.
    """
    if scene == "plates":
        rng = np.random.default_rng(4)
        ways, turns = rng.normal(size=(8, 3)), rng.normal(size=(8, 4))
        places = ways / np.linalg.norm(ways, axis=1, keepdims=True) * rng.uniform(0.5, 0.9, (8, 1))
        turns /= np.linalg.norm(turns, axis=1, keepdims=True)
        poses = np.concatenate((places + np.array([0.0, 0.0, 0.4]), turns), axis=1).tolist()
        plates = [{"dims": (0.3, 0.3, 1e-3), "pose": pose} for pose in poses]
        return {"cuboid": {str(i): plate for i, plate in enumerate(plates)}}
    name, count = SCENES.get(scene, (scene, None))
    problem, mapping = problems()[name], {"cuboid": {}, "capsule": {}}
    found = [(k, item) for k in ("cuboid", "cylinder") for item in problem.get(k, {}).values()]
    middle = np.median([item["pose"][:3] for _, item in found], axis=0)
    found.sort(key=lambda k: float(np.linalg.norm(np.subtract(k[1]["pose"][:3], middle))))
    for i, (kind, item) in enumerate(found[:count]):
        if kind == "cylinder":
            z = 0.5 * item["height"]
            ends = {"base": (0.0, 0.0, -z), "tip": (0.0, 0.0, z)}
            kind, item = "capsule", {"radius": item["radius"], "pose": item["pose"], **ends}
        mapping[kind][str(i)] = item
    return mapping


def environment_of(vamp: Any, scene: Any) -> Any:
    """Boxes and capsules of a scene of the judge as VAMP has them."""
    environment = vamp.Environment()
    for obstacle in scene.obstacles:
        place = obstacle.position.tolist(), angles_of(obstacle.rotation)
        size = obstacle.dimensions
        if obstacle.kind == "box":
            environment.add_cuboid(vamp.Cuboid(*place, [0.5 * edge for edge in size]))
        else:
            environment.add_capsule(vamp.Cylinder(*place, size[1], size[0]))
    return environment


def angles_of(r: np.ndarray) -> list[float]:
    """Angles about the fixed x, y and z axes, one after the other, that make a (3, 3) rotation."""
    about_x, about_z = np.arctan2(r[2, 1], r[2, 2]), np.arctan2(r[1, 0], r[0, 0])
    return [float(about_x), float(np.arctan2(-r[2, 0], np.hypot(r[0, 0], r[1, 0]))), float(about_z)]


class Case:
    """Both on one scene, and the judge."""

    def __init__(self, vamp: Any, name: str):
        from path_judge import Judge, Scene

        panda, mapping = load_panda(), mapping_of(name)
        links = [(f"panda_{a}", f"panda_{b}") for a, some in IGNORED.items() for b in some.split()]
        self.robot, self.world = panda, wc.MeshWorld.from_mapping(mapping, device=CPU)
        self.pairs = panda.self_collision_pairs(ignore=links)
        self.theirs, self.scene = vamp.panda, Scene.from_mapping(mapping)
        self.environment = environment_of(vamp, self.scene)
        self.judge = Judge(PANDA, None, panda.joint_names, links)

    def hits(self, joints: Tensor) -> Tensor:
        """Whether the library says that configurations (n, n_joints) collide."""
        options: dict[str, Any] = {"self_collision": self.pairs}
        return wc.configuration_in_collision(joints, self.robot, self.world, **options)

    def proofs(self, motions: Tensor) -> Tensor:
        """Whether the library proves motions (n, 2, n_joints) free."""
        options: dict[str, Any] = {"self_collision": self.pairs, "tolerance": TOLERANCE}
        return ~wc.joint_path_in_collision(motions, self.robot, self.world, **options)[:, 0]

    def validate(self, joints: Tensor) -> list[bool]:
        """Whether VAMP says that configurations are free."""
        return [self.theirs.validate(row, self.environment) for row in joints.numpy()]

    def paths(self, motions: Tensor, times: int = 1) -> list[Any]:
        """VAMP's paths along motions, so many times there and back."""
        found = []
        for motion in motions.numpy():
            found.append(self.theirs.Path())
            for row in itertools.chain(*[motion] * times):
                found[-1].append(row)
        return found

    def validate_paths(self, paths: list[Any]) -> list[bool]:
        """Whether VAMP says that paths are free, by 32 configurations a radian."""
        return [path.validate(self.environment) for path in paths]


def random_joints(case: Case, count: int) -> Tensor:
    """(count, n_joints) values anywhere within the limits."""
    low, high = case.robot.joint_limits.float().unbind(-1)
    drawn = torch.rand((count, len(low)), generator=torch.Generator().manual_seed(1))
    return low + (high - low) * drawn


def random_motions(case: Case, joints: Tensor, count: int, length: float) -> Tensor:
    """Motions (n, 2, n_joints) of a length [rad] between free configurations."""
    begin, generator = joints[~case.hits(joints)][: 4 * count], torch.Generator().manual_seed(2)
    way = torch.randn(begin.shape, generator=generator)
    end = begin + length * way / way.norm(dim=-1, keepdim=True)
    return torch.stack((begin, end), dim=1)[~case.hits(end)][:count]


def configurations(case: Case, joints: Tensor) -> dict[str, Call]:
    """Each with an answer of its own, and both the same ones."""
    wrong = int((case.hits(joints) == torch.tensor(case.validate(joints))).sum())
    require(wrong == 0, f"{wrong} of {len(joints)} answers differ")
    ours = Call(lambda: case.hits(joints), len(joints))
    return {"library": ours, "VAMP": Call(lambda: case.validate(joints), len(joints))}


def free_motions(case: Case, joints: Tensor) -> dict[str, Call]:
    """Configurations along motions that are free; VAMP looks at eight together."""
    motions = random_motions(case, joints, 64, 2.0)
    motions = motions[case.proofs(motions)][:32]
    blocks = (PER_RADIAN / LANES * (motions[:, 1] - motions[:, 0]).norm(dim=-1)).ceil().int()
    steps = [torch.linspace(0.0, 1.0, 1 + LANES * n)[1:, None] for n in blocks.tolist()]
    along = torch.cat([torch.lerp(*ends, s) for ends, s in zip(motions, steps, strict=True)])
    paths = case.paths(motions, TIMES)
    is_free = not case.hits(along).any() and all(case.validate_paths(paths))
    require(is_free, "a motion that is proven free is hit")
    n_theirs = (2 * TIMES - 1) * len(along)  # of 50 waypoints, so that there are 49 motions
    ours = Call(lambda: case.hits(along), len(along))
    return {"library": ours, "VAMP": Call(lambda: case.validate_paths(paths), n_theirs)}


def motions(case: Case, asked: Tensor) -> dict[str, Call]:
    """Proofs, and samples, with what the judge says of both."""
    paths, judge = case.paths(asked), case.judge.judge
    ends = asked[:JUDGED].double().numpy()
    smallest = np.array([judge(each, case.scene, STEPS).clearance for each in ends])
    answers = {"library": lambda: case.proofs(asked), "VAMP": lambda: case.validate_paths(paths)}
    calls = {}
    for name, answer in answers.items():
        free = np.asarray(answer())[:JUDGED]
        missed = smallest[free & (smallest < -ROUNDING)]
        refused = smallest[~free & (smallest > ROUNDING)]
        require(name == "VAMP" or not len(missed), "a motion that is called free is not")
        note = f"{free.sum()} of {len(free)} called free, {len(missed)} of them wrongly"
        note += f", up to {-1e3 * missed.min():.1f} mm deep" if len(missed) else ""
        note += f", {len(refused)} free ones refused"
        note += f" of up to {1e3 * refused.max():.2f} mm" if len(refused) else ""
        calls[name] = Call(answer, len(asked), note=note)
    return calls


def first_paths(vamp: Any, names: list[str]) -> dict[str, Call]:
    """Both on problems, one after the other; their paths are judged."""
    *_, plan, settings, _simplifier = vamp.configure_robot_and_planner_with_kwargs("panda", "rrtc")
    runs: dict[str, list[Callable[[], Any]]] = {"library": [], "VAMP": []}
    judges, own_clock = [], []

    def theirs(rows: list[Any], environment: Any) -> Any:
        return plan(*rows, environment, settings, vamp.panda.halton())

    for name in names:
        case = Case(vamp, name)
        ends = torch.tensor([problems()[name][end] for end in ("start", "goal")])
        if case.hits(ends).any():
            continue
        options = {"self_collision": case.pairs, "margin": MARGIN}
        planner = Planner(case.robot, case.world, until="first", **options)

        runs["library"].append(partial(planner.plan, *ends.split(1)))
        runs["VAMP"].append(partial(theirs, [*ends.numpy()], case.environment))
        judges.append(partial(case.judge.judge, scene=case.scene, steps=STEPS))
        own_clock.append(np.median([1e-6 * runs["VAMP"][-1]().nanoseconds for _ in range(TRIES)]))
    notes = {"library": "", "VAMP": f" ({spread(own_clock)} by its own clock)"}
    calls = {}
    for name, plans in runs.items():
        depths = []
        for run, judge in zip(plans, judges, strict=True):
            found = run()
            if found.free if name == "library" else found.solved:
                path = found.joints[0] if name == "library" else found.path
                depths.append(-judge(path.numpy().astype(float)).clearance)
        deep = [depth for depth in depths if depth > ROUNDING]
        require(name == "VAMP" or not deep, "a path that is called free is not")
        note = f"{spread([milliseconds_of(run) for run in plans])}{notes[name]}, "
        note += f"{len(depths)} of {len(plans)} solved, {len(deep)} of the paths touch"
        note += f", up to {1e3 * max(deep):.1f} mm deep" if deep else ""
        calls[name] = Call(partial(run_all, plans), len(plans), note=note)
    return calls


def spread(values: list[Any]) -> str:
    """Median and 95th percentile of milliseconds."""
    return f"median {np.median(values):.2g} ms, 95 % {np.percentile(values, 95.0):.2g} ms"


def milliseconds_of(run: Callable[[], object]) -> float:
    """Median of some runs, of work of this process."""
    return 1e3 * float(np.median([seconds_of(Call(run))[1] for _ in range(TRIES)]))


def run_all(runs: list[Callable[[], object]]) -> None:
    """One after the other."""
    for run in runs:
        run()


def workloads(vamp: Any, options: Any) -> Iterator[Workload]:
    """Those of all scenes."""
    count, n_motions = (max(5, round(n * options.scale)) for n in (COUNT, MOTIONS))
    for name in SCENES:
        case = Case(vamp, name)
        joints = random_joints(case, count)
        asked = {x: random_motions(case, joints, n_motions, x) for x in LENGTHS}
        for what, unit, make in (
            ("many", "configuration", partial(configurations, case, joints)),
            ("of free motions", "configuration", partial(free_motions, case, joints)),
            *((f"motions of {x} rad", "motion", partial(motions, case, asked[x])) for x in LENGTHS),
        ):
            yield Workload(f"{name}, {what}", unit, make)
    names = [*problems()][:: round(1.0 / min(1.0, options.scale))]
    yield Workload("first path", "problem", partial(first_paths, vamp, names))


add_options = harness.timing_options


def run(options: Any) -> str:
    """The table."""
    return harness.measure(workloads(load(), options), options)

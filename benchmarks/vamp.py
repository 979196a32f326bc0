"""Does a Panda collide, yes or no: the library next to VAMP, where that is installed.

Run with `python -m benchmarks.vamp`; `--write` keeps the tables in results/.

VAMP (C++, `pip install vamp-planner`) checks eight configurations at a time with SIMD
instructions, kinematics and self-collision included, by code that was generated for the robot. Both
get the same 59 spheres, pairs of links, joint values and obstacles; capsules stand for cylinders,
which VAMP does not know. One CPU thread by its own time, both in turns; figures are medians, ratios
are medians of the ratios within a round.

- **one a call**: a Python loop with one configuration in each call.
- **many, one answer each**: VAMP's `validate` in a loop, for it has no call for many; the library
  gets all in one call.
- **of free motions**: configurations of motions that are free, which is what VAMP is made for: one
  call of its `Path.validate`, which ends at the first hit and has one answer for all of them.
- **motions**: the library proves motions of 0.1 to 4 rad free, all in one call. VAMP looks at
  samples, 32 a radian in its planners and `Path.validate`, eight of each motion in its
  `validate_motion`, a call for each. What float64 kinematics say at samples of which spheres are
  0.1 mm apart is the truth.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.foreign import elapsed
from benchmarks.measure import cpu_threads
from benchmarks.report import RESULTS
from benchmarks.vamp_scenes import (
    SCENES,
    Case,
    clearance,
    gaps,
    load,
    make_case,
    panda,
    random_joints,
    smallest_on,
)
from warp_collision import (
    any_in_collision,
    configuration_in_collision,
    joint_path_in_collision,
)
from warp_collision.launching.launch import quiet_warp

TIMES = 25  # that VAMP goes along a free motion in one call, so that the call itself is little
PER_RADIAN = 32  # configurations of VAMP's planners
LANES = 8  # configurations that VAMP looks at together
TOLERANCE = 1e-3  # of the library's proof [m]
ROUNDING = 1e-5  # clearance that float32 may tell wrong [m]


class Row(NamedTuple):
    """One line of the table of times.

    Attributes:
        scene: its name.
        question: what is asked.
        theirs: microseconds of a configuration or motion.
        ours: the same.
        ratio: ours over theirs.
        differ: answers that differ.
    """

    scene: str
    question: str
    theirs: float
    ours: float
    ratio: float
    differ: str


class Bench:
    """Both on one scene.

    Args:
        vamp: its module.
        case: the scene.
        count: of configurations and, a tenth of it, of motions.
        rounds: how often both are timed.
    """

    def __init__(self, vamp: Any, case: Case, count: int, rounds: int):
        self.theirs, self.case, self.rounds = vamp.panda, case, rounds
        self.robot, self.pairs = panda()
        self.joints = random_joints(self.robot, count, 1)
        self.hits = self.configurations(self.joints)
        self.free = self.joints[~self.hits]

    def configurations(self, joints: Tensor) -> Tensor:
        """Whether the library says that configurations (n, n_joints) collide."""
        return configuration_in_collision(
            joints, self.robot, self.case.world, self_collision=self.pairs
        )

    def motions(self, begin: Tensor, end: Tensor) -> Tensor:
        """Whether the library does not prove motions (n, n_joints) free."""
        path = torch.stack((begin, end), dim=1)
        options: dict[str, Any] = {"self_collision": self.pairs, "tolerance": TOLERANCE}
        return joint_path_in_collision(path, self.robot, self.case.world, **options)[:, 0]

    def validate(self, rows: Sequence[np.ndarray]) -> list[bool]:
        """Whether VAMP says that configurations are free."""
        check, environment = self.theirs.validate, self.case.environment
        return [check(row, environment) for row in rows]

    def validate_motions(self, motions: Sequence[np.ndarray]) -> list[bool]:
        """Whether VAMP's `validate_motion` says that motions (2, n_joints) are free."""
        check, environment = self.theirs.validate_motion, self.case.environment
        return [check(begin, end, environment, False) for begin, end in motions]

    def paths(self, motions: Sequence[np.ndarray], times: int = 1) -> list[Any]:
        """VAMP's paths along motions (2, n_joints), so many times there and back."""
        found = []
        for motion in motions:
            path = self.theirs.Path()
            for row in itertools.chain(*[motion] * times):
                path.append(row)
            found.append(path)
        return found

    def validate_paths(self, paths: Sequence[Any]) -> list[bool]:
        """Whether VAMP says that paths are free, by 32 configurations a radian."""
        return [path.validate(self.case.environment) for path in paths]

    def compare(
        self,
        question: str,
        theirs: Callable[[], Any],
        ours: Callable[[], Any],
        counts: tuple[int, int],
        differ: str = "",
    ) -> Row:
        """Times both in turns; they answer so many in a call."""
        taken = np.array(
            [
                [1e6 * elapsed(call) / n for call, n in zip((theirs, ours), counts, strict=True)]
                for _ in range(self.rounds)
            ]
        )
        median = np.median(taken, axis=0)
        ratio = float(np.median(taken[:, 1] / taken[:, 0]))
        return Row(self.case.name, question, float(median[0]), float(median[1]), ratio, differ)

    def times(self) -> list[Row]:
        """The rows of the scene."""
        rows = list(self.joints.numpy())
        hits, theirs = self.hits.numpy(), ~np.array(self.validate(rows))
        differ = f"{int((hits != theirs).sum())} of {len(rows)}, {int(hits.sum())} hits"
        few = self.joints[:100].split(1)
        return [
            self.compare(
                "one a call",
                lambda: self.validate(rows[:100]),
                lambda: [self.configurations(one) for one in few],
                (100, 100),
            ),
            self.compare(
                "many, one answer each",
                lambda: self.validate(rows),
                lambda: self.configurations(self.joints),
                (len(rows), len(rows)),
                differ,
            ),
            self.of_free_motions(),
        ]

    def of_free_motions(self) -> Row:
        """What VAMP looks at along free motions, and the same configurations for the library."""
        begin, end = self.random_motions(64)
        free = ~self.motions(begin, end)
        motions = torch.stack((begin, end), dim=1)[free][:32]
        joints = torch.cat(
            [
                torch.lerp(begin, end, torch.linspace(0.0, 1.0, 1 + LANES * n)[1:, None])
                for (begin, end), n in zip(motions, self._blocks(motions), strict=True)
            ]
        )
        paths = self.paths(list(motions.numpy()), TIMES)
        hit = len(paths) - sum(self.validate_paths(paths))
        hits = int(self.configurations(joints).sum())
        # Of 50 waypoints, so that there are 49 motions.
        return self.compare(
            "of free motions",
            lambda: self.validate_paths(paths),
            lambda: self.configurations(joints),
            ((2 * TIMES - 1) * len(joints), len(joints)),
            f"{hit} motions, {hits} configurations hit",
        )

    @staticmethod
    def _blocks(motions: Tensor) -> list[int]:
        """How often VAMP looks at eight configurations for motions (n, 2, n_joints)."""
        lengths = (motions[:, 1] - motions[:, 0]).norm(dim=-1)
        return (PER_RADIAN / LANES * lengths).ceil().int().tolist()

    def same_spheres(self, count: int) -> str:
        """Answers for the spheres as VAMP places them, obstacles only, and how far they are off."""
        joints = self.joints[:count]
        placed = torch.tensor(
            [[(s.x, s.y, s.z, s.r) for s in self.theirs.fk(row)] for row in joints.numpy()]
        )
        exact = self.robot(joints.double())
        off = (placed - exact)[..., :3].norm(dim=-1).max()
        ours = (self.robot(joints) - exact)[..., :3].norm(dim=-1).max()
        hit = any_in_collision(placed[:, None], self.case.world)[:, 0]
        obstacles, itself = clearance(exact, self.case.obstacles), gaps(exact, self.pairs)
        both = torch.stack((obstacles.amin(-1), itself.amin(-1)))
        right = ~torch.tensor(self.validate(list(joints.numpy())))
        mine = self.configurations(joints)
        expected = both.amin(0) < 0.0
        known = both.amin(0).abs() > ROUNDING
        wrong = [int(((answer != expected) & known).sum()) for answer in (right, mine)]
        apart = int(((hit != (both[0] < 0.0)) & (both[0].abs() > ROUNDING)).sum())
        return (
            f"| {self.case.name} | {count} | {1e6 * off:.1f} / {1e6 * ours:.1f} | {apart} | "
            f"{wrong[0]} / {wrong[1]} | {int((~known).sum())} |"
        )

    def random_motions(self, count: int) -> tuple[Tensor, Tensor]:
        """Motions (n, n_joints) of 0.1 to 4 rad between free configurations."""
        begin = self.free[: 4 * count]
        generator = torch.Generator().manual_seed(2)
        way = torch.randn(begin.shape, generator=generator)
        length = 0.1 + 3.9 * torch.rand((len(begin), 1), generator=generator)
        end = begin + length * way / way.norm(dim=-1, keepdim=True)
        stays = ~self.configurations(end)
        return begin[stays][:count], end[stays][:count]

    def motion_rows(self, count: int) -> tuple[list[Row], list[str]]:
        """Times of motions, and who is wrong about how many."""
        begin, end = self.random_motions(count)
        both = torch.stack((begin, end), dim=1)
        ends = list(both.numpy())
        paths = self.paths(ends)
        one = both[:50].split(1)

        def ours() -> Tensor:
            return self.motions(begin, end)

        def some() -> list[Tensor]:
            return [self.motions(*motion[0].split(1)) for motion in one]

        def check(question: str, theirs: Callable[..., list[bool]], given: list[Any]) -> Row:
            whole = len(given), len(given)
            return self.compare(question, lambda: theirs(given), ours, whole)

        rows = [
            check("motions, VAMP by 8 samples", self.validate_motions, ends),
            check("motions, VAMP by 32 samples a radian", self.validate_paths, paths),
            self.compare(
                "the same, one a call",
                lambda: self.validate_paths(paths[: len(one)]),
                some,
                (len(one), len(one)),
            ),
        ]
        answers = {
            "VAMP, 8 samples": np.array(self.validate_motions(ends)),
            "VAMP, 32 samples a radian": np.array(self.validate_paths(paths)),
        }
        answers["library, proven"] = ~self.motions(begin, end).numpy()
        smallest = np.array(
            [
                smallest_on(self.robot, self.pairs, self.case.obstacles, a, b)
                for a, b in zip(begin.double(), end.double(), strict=True)
            ]
        )
        return rows, [self._verdict(name, answer, smallest) for name, answer in answers.items()]

    def _verdict(self, name: str, free: np.ndarray, smallest: np.ndarray) -> str:
        missed = smallest[free & (smallest < -ROUNDING)]
        refused = smallest[~free & (smallest > ROUNDING)]
        deepest = f"{-1e3 * missed.min():.1f} mm" if len(missed) else ""
        widest = f"{1e3 * refused.max():.2f} mm" if len(refused) else ""
        return (
            f"| {self.case.name} | {name} | {int(free.sum())} of {len(free)} | {len(missed)} | "
            f"{deepest} | {len(refused)} | {widest} |"
        )


def text(rows: Sequence[Row]) -> str:
    """The times, in Markdown."""
    lines = [
        "| scene | question | VAMP, µs | library, µs | library over VAMP | answers that differ |",
        "|---|---|---:|---:|---:|---|",
    ]
    lines += [
        f"| {r.scene} | {r.question} | {r.theirs:.3g} | {r.ours:.3g} | {r.ratio:.2g} | {r.differ} |"
        for r in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; 2 without VAMP."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vamp", description=__doc__)
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=SCENES)
    parser.add_argument("--count", type=int, default=4096, help="configurations")
    parser.add_argument("--motions", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true", help="keep the tables in results/")
    options = parser.parse_args(arguments)
    try:
        vamp = load()
    except ImportError as error:
        print(error, file=sys.stderr)
        return 2
    rows: list[Row] = []
    spheres = [
        "| scene | configurations | spheres off by, VAMP's / library's, µm | library wrong of "
        "VAMP's spheres | wrong of both, VAMP / library | undecided by float32 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    verdicts = [
        "| scene | | called free | free, but collide | deepest | refused, but free | widest |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    with quiet_warp(), cpu_threads(1):
        for scene in options.scenes:
            bench = Bench(vamp, make_case(vamp, scene), options.count, options.rounds)
            rows += bench.times()
            spheres.append(bench.same_spheres(min(1000, options.count)))
            of_motions, found = bench.motion_rows(options.motions)
            rows += of_motions
            verdicts += found
            print(text(rows[-6:]), file=sys.stderr, flush=True)
    tables = "\n\n".join((text(rows), "\n".join(spheres), "\n".join(verdicts)))
    print(tables)
    if options.write:
        (RESULTS / "vamp-cpu.md").write_text(tables + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""An independent judge of joint paths: pinocchio's kinematics, exact shapes, coal's verdict.

It shares no code with the library: URDF files are read by pinocchio, scenes by PyYAML, SRDF files
by xml.etree, everything is float64.

A path is judged at samples between which no sphere moves by more than a millimetre. Where samples
every 16 or 4 mm show that a stretch between them cannot hold the smallest clearance, because a
distance changes by no more than the way that a sphere goes, its finer samples are left out.
"""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pinocchio

from benchmarks.plan.scene import Nearest, Scene

# How far spheres may move between samples [m]: where finer ones are needed, and at last.
STEPS = (16e-3, 4e-3, 1e-3)
# Between two samples a sphere moves on an arc; it is longer than its chord by less than this.
ARC = 1.01
# So many of the nearest pairs of sphere and obstacle are shown to coal.
SHOWN = 20
# coal and the formulas may differ about contact at clearances below this [m].
ROUNDING = 1e-9


class Judgement(NamedTuple):
    """What the judge says of a joint path.

    Attributes:
        free: nothing touches, by coal, by the formulas, and by the pairs of spheres.
        world: smallest clearance to the scene [m], minus the depth where it is negative.
        self: smallest clearance between two spheres of the robot that may not touch [m], without
            those that stand apart at one distance, whatever the joints do.
        obstacle: name of the nearest obstacle.
        link: name of the link that is nearest to it.
        links: names of the two links that are nearest to each other.
        samples: number of configurations looked at.
    """

    free: bool
    world: float
    self: float
    obstacle: str
    link: str
    links: tuple[str, str]
    samples: int

    @property
    def clearance(self) -> float:
        """The smaller one of the clearances [m]."""
        return min(self.world, self.self)


class _Smallest(NamedTuple):
    """The smallest clearances so far, and what they are between."""

    world: float
    self: float
    sphere: int
    obstacle: int
    pair: int

    def updated(self, nearest: Nearest, gaps: np.ndarray) -> _Smallest:
        """The same with more samples."""
        found = self
        sample, sphere = np.unravel_index(nearest.clearance.argmin(), nearest.clearance.shape)
        world, obstacle = float(nearest.clearance[sample, sphere]), nearest.obstacle[sample, sphere]
        if world < found.world:
            found = found._replace(world=world, sphere=int(sphere), obstacle=int(obstacle))
        if gaps.size and gaps.min() < found.self:
            pair = int(gaps.min(axis=0).argmin())
            found = found._replace(self=float(gaps.min()), pair=pair)
        return found


class Judge:
    """Judges the joint paths of a robot.

    Args:
        urdf: path of a URDF whose collision shapes are spheres.
        srdf: path of an SRDF; every pair of its links counts that it does not disable and that
            joints can move against each other. Without one, all but links that a joint connects.
        joint_names: the order of joint values.
        ignored: further pairs of links that may touch.
    """

    def __init__(
        self,
        urdf: Path,
        srdf: Path | None,
        joint_names: Sequence[str],
        ignored: Iterable[tuple[str, str]] = (),
    ):
        # pinocchio wants limits to have an effort and a velocity, which do not matter here.
        text = ET.parse(urdf)
        for limit in text.iter("limit"):
            for name in ("effort", "velocity"):
                limit.set(name, limit.get(name, "1"))
        xml = ET.tostring(text.getroot(), encoding="unicode")
        self._model = pinocchio.buildModelFromXML(xml)
        self._data = self._model.createData()
        kind = pinocchio.GeometryType.COLLISION
        shapes = pinocchio.buildGeomFromUrdfString(self._model, xml, kind).geometryObjects
        self.radii = np.array([shape.geometry.radius for shape in shapes])
        self.links = [self._model.frames[shape.parentFrame].name for shape in shapes]
        self._joints = np.array([shape.parentJoint for shape in shapes])
        self._offsets = np.array([shape.placement.translation for shape in shapes])
        ids = [self._model.getJointId(name) for name in joint_names]
        self._order = np.array([self._model.joints[i].idx_q for i in ids])
        if len(ids) != self._model.nq or len(set(ids)) != len(ids):
            raise ValueError(f"joint_names must be all joints of {urdf}, got {[*joint_names]}")
        limits = self._model.lowerPositionLimit, self._model.upperPositionLimit
        self.limits = np.stack(limits, axis=1)[self._order]
        if srdf is None:
            found = [[e.find(end) for end in ("parent", "child")] for e in text.iter("joint")]
            named = [[end.get("link") for end in ends if end is not None] for ends in found]
        else:
            disabled = ET.parse(srdf).getroot().iter("disable_collisions")
            named = [[e.get("link1"), e.get("link2")] for e in disabled]
        apart = {frozenset(pair) for pair in named}
        apart |= {frozenset(pair) for pair in ignored}
        first, second = np.triu_indices(len(self.radii), 1)
        links = np.array(self.links)
        names = zip(links[first], links[second], strict=True)
        counts = np.array([frozenset(pair) not in apart for pair in names])
        counts &= (self._joints[first] != self._joints[second]) & (links[first] != links[second])
        self.pairs = np.stack([first[counts], second[counts]], axis=1)
        self._judged = self.pairs[self._changes_or_touches()]

    def _changes_or_touches(self) -> np.ndarray:
        """Which pairs of spheres do not stand apart at one distance, whatever the joints do.

        Those on the axes of the joints between them do; no path could keep them farther apart.
        """
        low, high = np.clip(self.limits, -np.pi, np.pi).T
        joints = np.random.default_rng(0).uniform(low, high, (16, len(low)))
        gaps = self.gaps(self.centers(joints))
        return (np.ptp(gaps, axis=0) > ROUNDING) | (gaps.min(axis=0) <= 0.0)

    def centers(self, joints: np.ndarray) -> np.ndarray:
        """Centers (n, n_spheres, 3) [m] of the spheres at joint values (n, n_joints)."""
        model, data = self._model, self._data
        rotations = np.empty((len(joints), model.njoints, 3, 3))
        origins = np.empty((len(joints), model.njoints, 3))
        placed = np.empty(model.nq)
        moving = sorted(set(self._joints.tolist()))
        for i, row in enumerate(np.asarray(joints, dtype=np.float64)):
            placed[self._order] = row
            pinocchio.forwardKinematics(model, data, placed)
            for joint in moving:
                rotations[i, joint] = data.oMi[joint].rotation
                origins[i, joint] = data.oMi[joint].translation
        turned = np.empty((len(joints), len(self.radii), 3))
        for joint in moving:
            of_joint = np.flatnonzero(self._joints == joint)
            turned[:, of_joint] = self._offsets[of_joint] @ rotations[:, joint].transpose(0, 2, 1)
        return turned + origins[:, self._joints]

    def gaps(self, centers: np.ndarray) -> np.ndarray:
        """Clearance (n, n_pairs) of the pairs of spheres."""
        return self._gaps_of(self.pairs, centers)

    def _gaps_of(self, pairs: np.ndarray, centers: np.ndarray) -> np.ndarray:
        first, second = pairs.T
        away = np.linalg.norm(centers[:, first] - centers[:, second], axis=-1)
        return away - self.radii[first] - self.radii[second]

    def judge(self, path: np.ndarray, scene: Scene, steps: Sequence[float] = STEPS) -> Judgement:
        """Judges a joint path (horizon, n_joints), straight from waypoint to waypoint.

        Args:
            path: at least one waypoint; one alone is judged at rest. Not finite ones raise.
            scene: the obstacles.
            steps: how far spheres may move between samples [m], the last one is what counts.
        """
        path = np.asarray(path, dtype=np.float64)
        if not np.isfinite(path).all():
            raise ValueError("path must be finite")
        found = _Smallest(np.inf, np.inf, -1, -1, -1)
        stretches, n_samples, hit = [self._sample(path, steps[0])], 0, False
        for finer in (*steps[1:], None):
            joints = np.concatenate(stretches)
            n_samples += len(joints)
            centers = self.centers(joints)
            nearest = scene.nearest(centers, self.radii)
            gaps = self._gaps_of(self._judged, centers)
            hit |= self._ask_coal(centers, nearest, scene)
            found = found.updated(nearest, gaps)
            if finer is None:
                break
            ends = np.cumsum([len(stretch) for stretch in stretches])[:-1] - 1
            suspects = self._suspects(centers, nearest.clearance, gaps, found)
            suspects = np.setdiff1d(suspects, ends)
            stretches = [self._sample(joints[i : i + 2], finer) for i in suspects]
            if not stretches:
                break
        pair = self._judged[found.pair] if found.pair >= 0 else None
        return Judgement(
            not hit and found.world >= 0.0 and found.self >= 0.0,
            found.world,
            found.self,
            scene.obstacles[found.obstacle].name if found.obstacle >= 0 else "",
            self.links[found.sphere] if found.obstacle >= 0 else "",
            ("", "") if pair is None else (self.links[pair[0]], self.links[pair[1]]),
            n_samples,
        )

    def _sample(self, path: np.ndarray, step: float) -> np.ndarray:
        """Joint values along a path, between which no sphere moves by more than a step."""
        found = [path[:1]]
        for begin, end in itertools.pairwise(path):
            parts = 1
            while True:
                s = np.linspace(0.0, 1.0, parts + 1)[:, None]
                joints = (1.0 - s) * begin + s * end
                ways = np.linalg.norm(np.diff(self.centers(joints), axis=0), axis=-1)
                # A step of several radians can end where it began.
                turns = np.abs(end - begin).max() / parts
                longest = max(float(ways.max()) * ARC / step, turns / 0.3)
                if longest <= 1.0:
                    break
                parts = max(parts + 1, int(np.ceil(parts * longest)))
            found.append(joints[1:])
        return np.concatenate(found)

    def _suspects(
        self, centers: np.ndarray, clearance: np.ndarray, gaps: np.ndarray, found: _Smallest
    ) -> np.ndarray:
        """Between which samples and the next ones there may be a smaller clearance."""
        ways = ARC * np.linalg.norm(np.diff(centers, axis=0), axis=-1)
        least = 0.5 * (clearance[:-1] + clearance[1:] - ways)
        may = (least < found.world).any(axis=1)
        # Spheres on the axes of the joints between them keep their distance.
        changes = np.ptp(gaps, axis=0) > ROUNDING
        if changes.any():
            first, second = self._judged[changes].T
            gaps = gaps[:, changes]
            least = 0.5 * (gaps[:-1] + gaps[1:] - ways[:, first] - ways[:, second])
            may |= (least < found.self).any(axis=1)
        return np.flatnonzero(may)

    def _ask_coal(self, centers: np.ndarray, nearest: Nearest, scene: Scene) -> bool:
        """Whether one of the nearest pairs touches for coal; raises if the formulas disagree."""
        clearance, obstacle = nearest
        hit = False
        for flat in np.argsort(clearance, axis=None)[:SHOWN]:
            sample, sphere = np.unravel_index(flat, clearance.shape)
            gap, which = clearance[sample, sphere], int(obstacle[sample, sphere])
            if which < 0:
                break
            touches = scene.hits(centers[sample, sphere], self.radii[sphere], which)
            if touches != (gap < 0.0) and abs(gap) > ROUNDING:
                raise RuntimeError(f"coal says {touches}, the formulas say {gap} m")
            hit = hit or touches
        return hit

"""An independent judge of joint paths: pinocchio's kinematics, exact shapes, coal's verdict.

It shares no code with the library: URDF files are read by pinocchio, scenes by PyYAML, SRDF files
by xml.etree, everything is float64.

A path is judged at samples between which no sphere moves by more than a millimetre. Where samples
every 16 or 4 mm show that a stretch between them cannot hold the smallest clearance, because a
distance changes by no more than the way that a sphere goes, its finer samples are left out.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import coal
import numpy as np
import pinocchio
import yaml

from reference import rotation_matrix

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# How far spheres may move between samples [m]: where finer ones are needed, and at last.
STEPS = (16e-3, 4e-3, 1e-3)
# Between two samples a sphere moves on an arc; it is longer than its chord by less than this.
ARC = 1.01
# So many of the nearest pairs of sphere and obstacle are shown to coal.
SHOWN = 20
# coal and the formulas may differ about contact at clearances below this [m].
ROUNDING = 1e-9


class Nearest(NamedTuple):
    """Clearances of spheres, and which obstacle is nearest; both (...)."""

    clearance: np.ndarray
    obstacle: np.ndarray


@dataclass(frozen=True, eq=False)
class Obstacle:
    """A box, cylinder, capsule or sphere.

    Attributes:
        name: in the scene.
        kind: "box", "cylinder", "capsule" or "sphere".
        dimensions: full edges; height, that of a capsule without caps, and radius; radius [m].
        rotation: (3, 3), world_from_obstacle.
        position: (3,) of the center [m].
    """

    name: str
    kind: str
    dimensions: tuple[float, ...]
    rotation: np.ndarray
    position: np.ndarray

    def signed_distance(self, points: np.ndarray) -> np.ndarray:
        """Exact signed distance (...,) of points (..., 3) [m], negative inside."""
        local = (points - self.position) @ self.rotation
        if self.kind == "sphere":
            return np.linalg.norm(local, axis=-1) - self.dimensions[0]
        if self.kind == "capsule":
            half = 0.5 * self.dimensions[0]
            local[..., 2] -= local[..., 2].clip(-half, half)
            return np.linalg.norm(local, axis=-1) - self.dimensions[1]
        if self.kind == "box":
            beyond = np.abs(local) - 0.5 * np.asarray(self.dimensions)
        else:
            height, radius = self.dimensions
            around = np.hypot(local[..., 0], local[..., 1]) - radius
            beyond = np.stack([around, np.abs(local[..., 2]) - 0.5 * height], axis=-1)
        outside = np.linalg.norm(np.maximum(beyond, 0.0), axis=-1)
        return outside + np.minimum(beyond.max(axis=-1), 0.0)

    def coal_object(self) -> coal.CollisionObject:
        """The same for coal."""
        kind = getattr(coal, self.kind.capitalize())
        # Those of round bodies are radius and height.
        shape = kind(*(self.dimensions if self.kind == "box" else self.dimensions[::-1]))
        return coal.CollisionObject(shape, self.rotation, self.position)


class Scene:
    """Obstacles of a scene.

    Args:
        obstacles: all of them.
    """

    def __init__(self, obstacles: list[Obstacle]):
        self.obstacles = obstacles
        self._coal = [obstacle.coal_object() for obstacle in obstacles]

    @classmethod
    def from_file(cls, path: Path) -> Scene:
        """Reads a MoveIt planning scene.

        Raises:
            ValueError: it has something else than boxes, cylinders and spheres.
        """
        with Path(path).open() as file:
            world = yaml.load(file, _Loader)["world"]
        others = {key for key in world if key != "collision_objects" and world[key]}
        obstacles = []
        for item in world["collision_objects"]:
            others |= {key for key in ("meshes", "planes", "subframe_names") if item.get(key)}
            base = _moveit_matrix(item["pose"]) if "pose" in item else np.eye(4)
            for part, pose in zip(item["primitives"], item["primitive_poses"], strict=True):
                placed = base @ _moveit_matrix(pose)
                kind, dimensions = part["type"], tuple(map(float, part["dimensions"]))
                if kind not in ("box", "cylinder", "sphere"):
                    others.add(kind)
                obstacle = Obstacle(item["id"], kind, dimensions, placed[:3, :3], placed[:3, 3])
                obstacles.append(obstacle)
        if others:
            raise ValueError(f"{path} must have boxes, cylinders and spheres alone, got {others}")
        return cls(obstacles)

    @classmethod
    def from_mapping(cls, mapping: dict[str, Any]) -> Scene:
        """Obstacles in the layout of `assets/problems`, other keys are passed over.

        Capsules reach from base to tip, which are at the same distance from their origin along z.
        """
        obstacles = []
        for key, (kind, dimensions_of) in _KINDS.items():
            for name, item in mapping.get(key, {}).items():
                placed = _matrix(item["pose"][:3], item["pose"][3:])
                dimensions = tuple(dimensions_of(item))
                obstacles.append(Obstacle(name, kind, dimensions, placed[:3, :3], placed[:3, 3]))
        return cls(obstacles)

    def nearest(self, centers: np.ndarray, radii: np.ndarray) -> Nearest:
        """Clearance of spheres with centers (..., n_spheres, 3) and radii (n_spheres,)."""
        best = np.full(centers.shape[:-1], np.inf)
        which = np.full(centers.shape[:-1], -1)
        for i, obstacle in enumerate(self.obstacles):
            clearance = obstacle.signed_distance(centers) - radii
            nearer = clearance < best
            best[nearer], which[nearer] = clearance[nearer], i
        return Nearest(best, which)

    def hits(self, center: np.ndarray, radius: float, obstacle: int) -> bool:
        """Whether a sphere touches an obstacle, as coal sees it."""
        sphere = coal.CollisionObject(coal.Sphere(float(radius)), np.eye(3), center)
        request, result = coal.CollisionRequest(), coal.CollisionResult()
        return bool(coal.collide(sphere, self._coal[obstacle], request, result))


_KINDS: dict[str, tuple[str, Callable[[dict[str, Any]], Sequence[float]]]] = {
    "cuboid": ("box", lambda item: item["dims"]),
    "cylinder": ("cylinder", lambda item: (item["height"], item["radius"])),
    "capsule": ("capsule", lambda item: (item["tip"][2] - item["base"][2], item["radius"])),
}


def _moveit_matrix(pose: dict[str, Any]) -> np.ndarray:
    x, y, z, w = pose["orientation"]
    return _matrix(pose["position"], (w, x, y, z))


def _matrix(position: Sequence[float], quaternion: Sequence[float]) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation_matrix(quaternion), position
    return matrix


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
        self._of_joint = {i: np.flatnonzero(self._joints == i) for i in set(self._joints.tolist())}
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
        for i, row in enumerate(np.asarray(joints, dtype=np.float64)):
            placed[self._order] = row
            pinocchio.forwardKinematics(model, data, placed)
            for joint in self._of_joint:
                rotations[i, joint] = data.oMi[joint].rotation
                origins[i, joint] = data.oMi[joint].translation
        turned = np.empty((len(joints), len(self.radii), 3))
        for joint, of_joint in self._of_joint.items():
            turned[:, of_joint] = self._offsets[of_joint] @ rotations[:, joint].transpose(0, 2, 1)
        return turned + origins[:, self._joints]

    def gaps(self, centers: np.ndarray) -> np.ndarray:
        """Clearance (n, n_pairs) of the pairs of spheres."""
        return self._gaps_of(self.pairs, centers)

    def gaps_that_count(self, centers: np.ndarray) -> np.ndarray:
        """Clearance (n, n_pairs) of the pairs that do not stand apart whatever the joints do."""
        return self._gaps_of(self._judged, centers)

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
        stretches, n_samples, hit = [path[:1]], 0, False
        if len(path) > 1:
            first, *others = self._sample(path[:-1], path[1:], steps[0])
            stretches = [np.concatenate([first, *(other[1:] for other in others)])]
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
            stretches = self._sample(joints[suspects], joints[suspects + 1], finer)
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

    def _sample(self, begins: np.ndarray, ends: np.ndarray, step: float) -> list[np.ndarray]:
        """Joint values along straight motions, between which no sphere moves by more than a step.

        Each has both of its ends.
        """
        found, parts = [np.empty((0, 0))] * len(begins), np.ones(len(begins), dtype=int)
        left = np.arange(len(begins))
        while len(left):
            shares = [np.linspace(0.0, 1.0, parts[i] + 1)[:, None] for i in left]
            for i, s in zip(left, shares, strict=True):
                found[i] = (1.0 - s) * begins[i] + s * ends[i]
            joints = np.concatenate([found[i] for i in left])
            ways = np.linalg.norm(np.diff(self.centers(joints), axis=0), axis=-1).max(axis=1)
            ways[np.cumsum(parts[left] + 1)[:-1] - 1] = 0.0  # from one motion to the next one
            first = np.cumsum(parts[left] + 1) - parts[left] - 1
            way = np.maximum.reduceat(ways, first)
            # A step of several radians can end where it began.
            turns = np.abs(ends[left] - begins[left]).max(axis=1) / parts[left]
            longest = np.maximum(way * ARC / step, turns / 0.3)
            left = left[longest > 1.0]
            more = np.ceil(parts[left] * longest[longest > 1.0]).astype(int)
            parts[left] = np.maximum(parts[left] + 1, more)
        return found

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

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
from functools import cache
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
# So many samples, one after the other, are compared with an obstacle by a ball around them first.
TOGETHER = 32
# coal and the formulas may differ about contact at clearances below this [m].
ROUNDING = 1e-9


def _length(vectors: np.ndarray) -> np.ndarray:
    """Of vectors (3 or 2, ...), coordinates first."""
    return np.sqrt(np.einsum("i...,i...->...", vectors, vectors))


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
        # Coordinates first: NumPy's sums over a last axis of three are several times as slow.
        local = self.rotation.T @ (points - self.position).reshape(-1, 3).T
        if self.kind == "sphere":
            distance = _length(local) - self.dimensions[0]
        elif self.kind == "capsule":
            half = 0.5 * self.dimensions[0]
            local[2] -= local[2].clip(-half, half)
            distance = _length(local) - self.dimensions[1]
        else:
            if self.kind == "box":
                beyond = np.abs(local) - 0.5 * np.asarray(self.dimensions)[:, None]
            else:
                height, radius = self.dimensions
                around = np.hypot(local[0], local[1]) - radius
                beyond = np.stack([around, np.abs(local[2]) - 0.5 * height])
            inside = np.minimum(beyond.max(axis=0), 0.0)
            distance = _length(np.maximum(beyond, 0.0, out=beyond)) + inside
        return distance.reshape(points.shape[:-1])

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
        shape, n_spheres = centers.shape[:-1], len(radii)
        n = centers[..., 0, 0].size
        count = min(TOGETHER, n)
        rows = np.pad(centers.reshape(n, n_spheres, 3), ((0, -n % count), (0, 0), (0, 0)), "edge")
        # Cells of some samples of a sphere, (n_cells, count, 3).
        cells = rows.reshape(-1, count, n_spheres, 3).swapaxes(1, 2).reshape(-1, count, 3)
        best, which = np.full(cells.shape[:2], np.inf), np.full(cells.shape[:2], -1)
        middles = cells.mean(axis=1)
        reach = np.sqrt(((cells - middles[:, None]) ** 2).sum(axis=-1).max(axis=1)) + ROUNDING
        away = [obstacle.signed_distance(middles) for obstacle in self.obstacles]
        for i, obstacle in enumerate(self.obstacles):
            # What is farther than another obstacle all along these samples is nearest nowhere.
            near = np.flatnonzero(away[i] - reach <= np.min(away, axis=0) + reach)
            distance = obstacle.signed_distance(cells[near])
            nearer = distance < best[near]
            best[near] = np.where(nearer, distance, best[near])
            which[near] = np.where(nearer, i, which[near])
        distance, obstacle = (
            table.reshape(-1, n_spheres, count).swapaxes(1, 2).reshape(-1, n_spheres)[:n]
            for table in (best, which)
        )
        return Nearest((distance - radii).reshape(shape), obstacle.reshape(shape))

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


class _Joint(NamedTuple):
    """A joint as pinocchio read it: it turns about an axis, or slides along it."""

    parent: int
    column: int  # of its value
    rotation: np.ndarray  # of its frame in that of its parent
    origin: np.ndarray
    axis: np.ndarray
    turns: bool


def _turns(axis: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Rotations (n, 3, 3) about a unit axis, by Rodrigues' formula."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    sines, versines = np.sin(angles)[:, None, None], (1.0 - np.cos(angles))[:, None, None]
    return np.eye(3) + sines * cross + versines * (cross @ cross)


def _joints_of(model: pinocchio.Model) -> list[_Joint]:
    """The joints of a model, but for its root."""
    found = []
    for i in range(1, model.njoints):
        data = model.joints[i].createData()
        model.joints[i].calc(data, np.zeros(model.nq))
        along, about = np.array(data.S).ravel().reshape(2, 3)
        placed, turns = model.jointPlacements[i], bool(about.any())
        frame = placed.rotation.copy(), placed.translation.copy()
        axis = about if turns else along
        found.append(_Joint(model.parents[i], model.joints[i].idx_q, *frame, axis, turns))
    return found


@cache
def _shares(parts: int) -> np.ndarray:
    return np.linspace(0.0, 1.0, parts + 1)[:, None]


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
        self._chain = _joints_of(self._model)
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
        self._assert_as_pinocchio()
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
        placed = np.empty((len(joints), self._model.nq))
        placed[:, self._order] = joints
        shape = self._model.njoints, len(joints), 3
        rotations, origins = np.empty((*shape, 3)), np.empty(shape)
        rotations[0], origins[0] = np.eye(3), 0.0
        for i, joint in enumerate(self._chain, 1):
            parent, value = rotations[joint.parent], placed[:, joint.column]
            frame = parent @ joint.rotation
            origins[i] = origins[joint.parent] + parent @ joint.origin
            if joint.turns:
                rotations[i] = frame @ _turns(joint.axis, value)
            else:
                rotations[i] = frame
                origins[i] += (frame @ joint.axis) * value[:, None]
        centers = np.empty((len(joints), len(self.radii), 3))
        for joint, of_joint in self._of_joint.items():
            turned = self._offsets[of_joint] @ rotations[joint].transpose(0, 2, 1)
            centers[:, of_joint] = turned + origins[joint][:, None]
        return centers

    def _assert_as_pinocchio(self) -> None:
        """The same motion for many configurations at once is that of pinocchio, one by one."""
        joints = np.random.default_rng(1).uniform(-2.0, 2.0, (4, self._model.nq))
        data, centers = self._model.createData(), self.centers(joints)
        for row, found in zip(joints, centers, strict=True):
            placed = np.empty(self._model.nq)
            placed[self._order] = row
            pinocchio.forwardKinematics(self._model, data, placed)
            frames = [data.oMi[i] for i in self._joints.tolist()]
            truth = [frame.act(at) for frame, at in zip(frames, self._offsets, strict=True)]
            if not np.allclose(found, truth, rtol=0.0, atol=1e-9):
                raise RuntimeError("kinematics must be those of pinocchio")

    def gaps(self, centers: np.ndarray) -> np.ndarray:
        """Clearance (n, n_pairs) of the pairs of spheres."""
        return self._gaps_of(self.pairs, centers)

    def gaps_that_count(self, centers: np.ndarray) -> np.ndarray:
        """Clearance (n, n_pairs) of the pairs that do not stand apart whatever the joints do."""
        return self._gaps_of(self._judged, centers)

    def _gaps_of(self, pairs: np.ndarray, centers: np.ndarray) -> np.ndarray:
        first, second = pairs.T
        x, y, z = np.ascontiguousarray(centers.transpose(2, 1, 0))
        squared = np.zeros((len(pairs), len(centers)))
        for coordinate in (x, y, z):
            away = coordinate[first]
            away -= coordinate[second]
            away *= away
            squared += away
        return np.sqrt(squared, out=squared).T - (self.radii[first] + self.radii[second])

    def clearance(self, joints: np.ndarray, scene: Scene) -> np.ndarray:
        """Smallest clearance (n,) [m] of joint values (n, n_joints), to the scene and to itself."""
        centers = self.centers(joints)
        least = self.gaps_that_count(centers).min(axis=1, initial=np.inf)
        return np.minimum(least, scene.nearest(centers, self.radii).clearance.min(axis=1))

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
            shares = [_shares(parts[i]) for i in left.tolist()]
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
        longest = ways.max(axis=0, initial=0.0)[self._judged].sum(axis=1)
        changes &= gaps.min(axis=0) - 0.5 * longest < found.self
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

"""Differential inverse kinematics by pink towards random poses, with several barriers, judged."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import torch

from benchmarks import harness
from benchmarks.guard_episodes import Array, Cast, smallest_clearance, world_of
from path_judge import Scene
from warp_collision import MeshWorld, link_distances

RULES = ("pink", "pink, its own barrier", "pink, these rows", "pink, these rows and radii")
_STEPS, _DT, _GAIN, _MARGIN = 80, 0.05, 5.0, 5e-3
_NEAREST = 10  # pairs of pink's own barrier


class Solver:
    """Inverse kinematics of a Panda's hand among the obstacles of a problem."""

    def __init__(self, cast: Cast, world: MeshWorld, scene: Scene):
        import pinocchio

        self.cast, self.world = cast, world
        urdf = str(cast.folder / "panda_spherized.urdf")
        self.model = pinocchio.buildModelFromUrdf(urdf)
        self.shapes = pinocchio.buildGeomFromUrdf(
            self.model, urdf, pinocchio.GeometryType.COLLISION
        )
        n_spheres = self.shapes.ngeoms
        for number, obstacle in enumerate(scene.obstacles):
            body = obstacle.coal_object()
            placement = pinocchio.SE3(obstacle.rotation, obstacle.position)
            shape = pinocchio.GeometryObject(
                f"obstacle {number}", 0, placement, body.collisionGeometry()
            )
            index = self.shapes.addGeometryObject(shape)
            for sphere in range(n_spheres):
                if self.shapes.geometryObjects[sphere].parentJoint > 0:
                    self.shapes.addCollisionPair(pinocchio.CollisionPair(sphere, index))

    def pose_of(self, joints: Array) -> Any:
        """Of the hand."""
        import pinocchio

        data = self.model.createData()
        pinocchio.framesForwardKinematics(self.model, data, joints)
        return data.oMf[self.model.getFrameId("panda_hand")].copy()

    def solve(self, rule: str, start: Array, target: Any) -> Array:
        """Joint values (n, n_joints) of the steps towards a pose."""
        import pink

        at = pink.Configuration(
            self.model, self.model.createData(), start, copy_data=True,
            collision_model=self.shapes, collision_data=self.shapes.createData(),
        )  # fmt: skip
        hand = pink.tasks.FrameTask("panda_hand", position_cost=1.0, orientation_cost=0.5)
        hand.set_target(target)
        barriers = []
        if rule == RULES[1]:
            own = pink.barriers.SelfCollisionBarrier
            barriers = [own(n_collision_pairs=_NEAREST, gain=_GAIN, d_min=_MARGIN)]
        if rule in RULES[2:]:
            barriers = [_rows_barrier(self)]
        moved = [start]
        for _ in range(_STEPS):
            try:
                velocity = pink.solve_ik(
                    at, [hand], _DT, solver="daqp", damping=1e-3, barriers=barriers,
                    safety_break=False,
                )  # fmt: skip
            except pink.exceptions.NoSolutionFound:  # a barrier that cannot be kept: stay
                velocity = np.zeros(self.model.nv)
            if rule == RULES[3]:
                velocity = velocity * self.proven_share(at.q, velocity * _DT)
            at.integrate_inplace(velocity, _DT)
            moved.append(at.q.copy())
        return np.array(moved)

    def rows(self, joints: Array) -> Any:
        """Of all links and their pairs."""
        given = torch.from_numpy(joints[None]).float()
        return link_distances(given, self.cast.robot, self.world, self_collision=True)

    def proven_share(self, joints: Array, change: Array) -> float:
        """How much of a change of the joint values the radii prove free."""
        rows = self.rows(joints)
        used = (rows.weights[0].double().numpy() * np.abs(change)).sum(axis=1)
        radius = rows.radius[0].double().numpy()
        return float(min(1.0, 0.99 * (radius / used.clip(1e-12)).min()))


def _rows_barrier(solver: Solver) -> Any:
    """A barrier of pink that takes these rows."""
    import pink

    class LinkBarrier(pink.barriers.Barrier):
        def compute_barrier(self, configuration: Any) -> Array:
            found = solver.rows(configuration.q)
            return found.distance[0].double().clamp(max=1.0).numpy() - _MARGIN

        def compute_jacobian(self, configuration: Any) -> Array:
            return solver.rows(configuration.q).gradient[0].double().numpy()

    n_rows = len(solver.rows(np.zeros(solver.model.nq)).rows)
    return LinkBarrier(dim=n_rows, gain=_GAIN)


def ik(seed: int) -> dict[str, Any]:
    """One random pose of the hand: of each rule whether the motion is in contact, and arrives."""
    cast, rng = _cast(), np.random.default_rng([6, seed])
    low, high = cast.robot.joint_limits.double().numpy().T
    problem, scene = cast.draw(rng)
    solver = Solver(cast, world_of([problem]), scene)
    goal = rng.uniform(low, high)
    while smallest_clearance(cast.judge, scene, goal[None]) < 2 * _MARGIN:
        goal = rng.uniform(low, high)
    target, found = solver.pose_of(goal), []
    for rule in RULES:
        moved = solver.solve(rule, problem.start, target)
        parts = np.linspace(0.0, 1.0, 20, endpoint=False)[:, None]
        ways = [a + parts * (b - a) for a, b in itertools.pairwise(moved)]
        least = smallest_clearance(cast.judge, scene, np.concatenate(ways))
        error = solver.pose_of(moved[-1]).translation - target.translation
        found.append([bool(least <= 0.0), bool(np.linalg.norm(error) < 0.01)])
    return {"seed": seed, "found": found}


@functools.cache
def _cast() -> Cast:
    return Cast("panda")


def table_of(kept: Any) -> str:
    """A table."""
    head = ["inverse kinematics", "targets", "in contact on the way", "reached within 1 cm"]
    sums = np.sum([row["found"] for row in kept], axis=0)
    rows = [[rule, str(len(kept)), *map(str, of)] for rule, of in zip(RULES, sums, strict=True)]
    return harness.table(head, rows)

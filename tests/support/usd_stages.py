"""USD stages written by usd-core: units, axes, transforms, meshes, instances."""

import numpy as np
import trimesh
from pxr import Gf, Usd, UsdGeom


def stage_at(path, metres: float | None = 1.0, up: str | None = "Z") -> Usd.Stage:
    stage = Usd.Stage.CreateNew(str(path))
    if metres is not None:
        UsdGeom.SetStageMetersPerUnit(stage, metres)
    if up is not None:
        UsdGeom.SetStageUpAxis(stage, up)
    return stage


def put(prim, matrix: np.ndarray) -> None:
    UsdGeom.Xformable(prim).AddTransformOp().Set(Gf.Matrix4d(matrix.T.tolist()))


def define_mesh(stage, path: str, points, counts, indices):
    mesh = UsdGeom.Mesh.Define(stage, path)
    mesh.CreatePointsAttr([Gf.Vec3f(*map(float, point)) for point in points])
    mesh.CreateFaceVertexCountsAttr([int(count) for count in counts])
    mesh.CreateFaceVertexIndicesAttr([int(index) for index in indices])
    return mesh


def add_instances(instancer, rng: np.random.Generator, indices, spread: float) -> list[np.ndarray]:
    """Writes instances of random places, turns and even scales; returns their matrices (4, 4)."""
    positions = np.float32(rng.uniform(-spread, spread, (len(indices), 3)))
    turns = [trimesh.transformations.random_quaternion(rng.random(3)) for _ in indices]
    scales = np.float32(rng.uniform(0.7, 1.3, len(indices)))
    instancer.CreateProtoIndicesAttr([int(index) for index in indices])
    instancer.CreatePositionsAttr([Gf.Vec3f(*map(float, p)) for p in positions])
    instancer.CreateOrientationsfAttr([Gf.Quatf(*map(float, turn)) for turn in turns])
    instancer.CreateScalesAttr([Gf.Vec3f(float(s)) for s in scales])
    return [
        trimesh.transformations.translation_matrix(p)
        @ trimesh.transformations.quaternion_matrix(turn)
        @ np.diag([s, s, s, 1.0])
        for p, turn, s in zip(positions.astype(float), turns, scales, strict=True)
    ]


def instanced(stage, target: str, indices: list[int], path: str = "/many"):
    instancer = UsdGeom.PointInstancer.Define(stage, path)
    instancer.CreatePrototypesRel().AddTarget(target)
    instancer.CreateProtoIndicesAttr(indices)
    instancer.CreatePositionsAttr([Gf.Vec3f(float(i)) for i in range(len(indices))])
    return instancer

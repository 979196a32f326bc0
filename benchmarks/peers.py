"""Signed distances by other libraries, those that are installed, against a plain query.

Everybody computes the signed distance of the same points to the same mesh, on one CPU core. The
unit is a Warp kernel that does nothing but `wp.mesh_query_point`. Errors are those against the
float64 reference; a wrong sign counts where the point is more than a micrometre from the surface.
"""

import contextlib
import importlib
import io
import os
import warnings
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh
import warp as wp

from benchmarks import harness, truth
from benchmarks.baseline import by_default, callers_meshes
from benchmarks.scenes import IDENTITY, Placed, shape, world_of
from warp_collision import signed_distance

MESHES = ("link", "torus-16000")
ON_SURFACE = 1e-6  # [m]
CACHE_CELL = 0.01  # [m] of the cached grid of pytorch_volumetric

Query = Callable[[np.ndarray], np.ndarray]  # points (n, 3) float32 to signed distances (n,)


class Peer(NamedTuple):
    """Another library, or a way to use it.

    Attributes:
        name: what the tables call it.
        prepare: from its module and a mesh to its query, what it needs built.
        module: what has to be importable.
        points: how many points it gets; slow ones get fewer.
        unsigned: whether it knows no inside.
    """

    name: str
    prepare: Callable[[Any, trimesh.Trimesh], Query]
    module: str = "warp"
    points: int = 20_000
    unsigned: bool = False


@wp.kernel(enable_backward=False)
def plain_query(mesh_id: wp.uint64, points: wp.array[wp.vec3], distance: wp.array[wp.float32]):
    """Closest point with Warp's default sign."""
    i = wp.tid()
    distance[i] = by_default(mesh_id, points[i], 1.0e6)[3]


def _plain(_: Any, mesh: trimesh.Trimesh) -> Query:
    (made,), _ = callers_meshes([Placed(mesh, IDENTITY)], harness.CPU)

    def query(points: np.ndarray) -> np.ndarray:
        result = wp.empty(len(points), dtype=wp.float32, device="cpu")
        given = wp.array(points, dtype=wp.vec3, device="cpu", copy=False)
        wp.launch(plain_query, len(points), [made.id, given, result], device="cpu")
        return result.numpy()

    return query


def _library(_: Any, mesh: trimesh.Trimesh) -> Query:
    world = world_of([[Placed(mesh, IDENTITY)]])
    return lambda points: signed_distance(torch.from_numpy(points)[None], world).distance[0].numpy()


def _open3d(o3d: Any, mesh: trimesh.Trimesh) -> Query:
    scene, tensor = o3d.t.geometry.RaycastingScene(nthreads=1), o3d.core.Tensor
    vertices, faces = np.asarray(mesh.vertices, np.float32), np.asarray(mesh.faces, np.uint32)
    scene.add_triangles(tensor(vertices), tensor(faces))
    return lambda points: scene.compute_signed_distance(tensor(points), nthreads=1).numpy()


def _igl(kind: str) -> Callable[[Any, trimesh.Trimesh], Query]:
    def prepare(igl: Any, mesh: trimesh.Trimesh) -> Query:
        method = getattr(igl, f"SIGNED_DISTANCE_TYPE_{kind}")
        given = np.asarray(mesh.vertices, np.float64), np.asarray(mesh.faces, np.int64)
        return lambda points: igl.signed_distance(points.astype(float), *given, sign_type=method)[0]

    return prepare


def _volumetric(is_cached: bool) -> Callable[[Any, trimesh.Trimesh], Query]:
    def prepare(pv: Any, mesh: trimesh.Trimesh) -> Query:
        folder = TemporaryDirectory()
        mesh.export(f"{folder.name}/mesh.obj")
        found = exact = pv.MeshSDF(pv.MeshObjectFactory(f"{folder.name}/mesh.obj"))
        if is_cached:
            span, cache = exact.surface_bounding_box(padding=0.3).numpy(), f"{folder.name}/cache"
            found = pv.CachedSDF("mesh", CACHE_CELL, span, exact, cache_path=cache)
        return lambda points, _kept=folder: found(torch.from_numpy(points))[0].numpy()

    return prepare


def coal_model(coal: Any, mesh: trimesh.Trimesh) -> Any:
    """A mesh as coal has it."""
    model = coal.BVHModelOBBRSS()
    model.beginModel(len(mesh.faces), len(mesh.vertices))
    vertices, faces = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
    vertices.extend([np.asarray(v, np.float64) for v in mesh.vertices])
    faces.extend([coal.Triangle(*(int(i) for i in face)) for face in mesh.faces])
    model.addSubModel(vertices, faces)
    model.endModel()
    return model


def _coal(coal: Any, mesh: trimesh.Trimesh) -> Query:
    model, point, request = coal_model(coal, mesh), coal.Sphere(0.0), coal.DistanceRequest()
    origin = coal.Transform3s.Identity()

    def distance(place: np.ndarray) -> float:
        there = coal.Transform3s(np.eye(3), place)
        return coal.distance(model, origin, point, there, request, coal.DistanceResult())

    return lambda points: np.array([distance(place) for place in points.astype(np.float64)])


PEERS = (
    Peer("plain wp.mesh_query_point", _plain),
    Peer("this library", _library),
    Peer("open3d RaycastingScene", _open3d, "open3d"),
    Peer("igl, fast winding number", _igl("FAST_WINDING_NUMBER"), "igl"),
    Peer("igl, pseudonormal", _igl("PSEUDONORMAL"), "igl"),
    Peer("pytorch_volumetric, exact", _volumetric(False), "pytorch_volumetric"),
    Peer(f"pytorch_volumetric, {CACHE_CELL} m grid", _volumetric(True), "pytorch_volumetric"),
    Peer("coal, unsigned", _coal, "coal", points=2_000, unsigned=True),
)


def compare_peers(rounds: int = 5, scale: float = 1.0) -> list[dict[str, Any]]:
    """Speeds and errors of all peers that are installed, on one CPU core.

    Args:
        rounds: of all peers in turn.
        scale: factor of the number of points.

    Returns:
        For each mesh and peer: points per second relative to the plain query, largest error [m],
        wrong signs, and the number of points that both were counted on.
    """
    os.environ.setdefault("IGL_NUM_THREADS", "1")
    with _one_core(), harness.cpu_threads(1), _quiet():
        return [row for name in MESHES for row in _compare_on(name, rounds, scale)]


def _compare_on(name: str, rounds: int, scale: float) -> list[dict[str, Any]]:
    mesh, count = shape(name), max(20, int(20_000 * scale))
    drawn = np.random.default_rng(9).uniform(-1.0, 1.0, (count, 3))
    points = (drawn * mesh.extents).astype(np.float32)
    sample = points[: max(20, int(500 * scale))]
    expected = truth.signed_distance(sample, Placed(mesh, IDENTITY))
    rows, calls = [], {}
    for peer in PEERS:
        try:
            query = peer.prepare(importlib.import_module(peer.module), mesh)
        except ImportError:
            continue
        some = points[: max(20, int(peer.points * scale))]
        calls[peer.name] = harness.Call(lambda q=query, s=some: q(s), len(some))
        actual = np.asarray(query(sample), np.float64)
        wanted = np.abs(expected) if peer.unsigned else expected
        wrong = (np.sign(actual) != np.sign(wanted)) & (np.abs(wanted) > ON_SURFACE)
        error = float(np.abs(np.abs(actual) - np.abs(wanted)).max())
        signs = None if peer.unsigned else int(wrong.sum())
        rows.append({"mesh": name, "peer": peer.name, "error": error, "wrong_signs": signs})
    times = harness.interleave(calls, rounds)
    for row in rows:
        row["speed"] = times.ratio(PEERS[0].name, over=row["peer"])
        row |= {"microseconds": 1e6 * times.median(row["peer"]), "sample": len(sample)}
    return rows


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """Keeps all threads that are started within to one core, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

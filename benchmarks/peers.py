"""Signed distances by other libraries, those that are installed, against a plain query.

Everybody computes the signed distance of the same points to the same mesh, on one CPU core. The
unit is a Warp kernel that does nothing but `wp.mesh_query_point`. Errors are those against the
float64 reference; a wrong sign counts where the point is more than a micrometre from the surface.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trimesh
import warp as wp

from benchmarks import truth
from benchmarks.measure import cpu_threads
from benchmarks.shapes import shape
from benchmarks.workloads import IDENTITY, Placed
from warp_collision import MeshWorld, signed_distance
from warp_collision.launching.launch import quiet_warp

MESHES = ("link", "torus-16000")
ON_SURFACE = 1e-6  # [m]
CACHE_CELL = 0.01  # [m] of the cached grid of pytorch_volumetric

Query = Callable[[np.ndarray], np.ndarray]  # points (n, 3) float32 to signed distances (n,)


@wp.kernel(enable_backward=False)
def plain_query(
    mesh_id: wp.uint64,
    points: wp.array[wp.vec3],  # (n,)
    distance: wp.array[wp.float32],  # (n,)
):
    """Closest point with Warp's default sign."""
    i = wp.tid()
    query = wp.mesh_query_point(mesh_id, points[i], 1.0e6)
    nearest = wp.mesh_eval_position(mesh_id, query.face, query.u, query.v)
    distance[i] = query.sign * wp.length(points[i] - nearest)


@dataclass(frozen=True)
class Peer:
    """Another library, or a way to use it.

    Attributes:
        name: what the tables call it.
        module: what has to be importable.
        prepare: builds what it needs for a mesh; returns its query.
        points: how many points it gets; slow ones get fewer.
        unsigned: whether it knows no inside.
    """

    name: str
    module: str
    prepare: Callable[[trimesh.Trimesh, Path], Query]
    points: int = 20_000
    unsigned: bool = False


def _plain(mesh: trimesh.Trimesh, _: Path) -> Query:
    with quiet_warp():
        made = wp.Mesh(
            wp.array(mesh.vertices, dtype=wp.vec3, device="cpu"),
            wp.array(mesh.faces.ravel(), dtype=wp.int32, device="cpu"),
        )

    def query(points: np.ndarray) -> np.ndarray:
        result = wp.empty(len(points), dtype=wp.float32, device="cpu")
        given = wp.array(points, dtype=wp.vec3, device="cpu", copy=False)
        with quiet_warp():
            wp.launch(plain_query, len(points), [made.id, given, result], device="cpu")
        return result.numpy()

    return query


def _library(mesh: trimesh.Trimesh, _: Path) -> Query:
    world = MeshWorld(1, 1, "cpu")
    world.add("mesh", mesh)
    return lambda points: signed_distance(torch.from_numpy(points)[None], world).distance[0].numpy()


def _open3d(mesh: trimesh.Trimesh, _: Path) -> Query:
    o3d = importlib.import_module("open3d")
    scene = o3d.t.geometry.RaycastingScene(nthreads=1)
    vertices = o3d.core.Tensor(np.asarray(mesh.vertices, np.float32))
    scene.add_triangles(vertices, o3d.core.Tensor(np.asarray(mesh.faces, np.uint32)))
    return lambda points: scene.compute_signed_distance(o3d.core.Tensor(points), nthreads=1).numpy()


def _igl(kind: str) -> Callable[[trimesh.Trimesh, Path], Query]:
    def prepare(mesh: trimesh.Trimesh, _: Path) -> Query:
        igl = importlib.import_module("igl")
        method = getattr(igl, f"SIGNED_DISTANCE_TYPE_{kind}")
        vertices, faces = np.asarray(mesh.vertices, np.float64), np.asarray(mesh.faces, np.int64)
        return lambda points: igl.signed_distance(
            points.astype(np.float64), vertices, faces, sign_type=method
        )[0]

    return prepare


def _volumetric(cached: bool) -> Callable[[trimesh.Trimesh, Path], Query]:
    def prepare(mesh: trimesh.Trimesh, folder: Path) -> Query:
        pv = importlib.import_module("pytorch_volumetric")
        mesh.export(folder / "mesh.obj")
        exact = pv.MeshSDF(pv.MeshObjectFactory(str(folder / "mesh.obj")))
        function = exact
        if cached:
            span = exact.surface_bounding_box(padding=0.3).numpy()
            cache = str(folder / "cache.pkl")
            function = pv.CachedSDF("mesh", CACHE_CELL, span, exact, cache_path=cache)
        return lambda points: function(torch.from_numpy(points))[0].numpy()

    return prepare


def _trimesh(mesh: trimesh.Trimesh, _: Path) -> Query:
    return lambda points: -trimesh.proximity.signed_distance(mesh, points)


def _coal(mesh: trimesh.Trimesh, _: Path) -> Query:
    coal = importlib.import_module("coal")
    model = coal.BVHModelOBBRSS()
    model.beginModel(len(mesh.faces), len(mesh.vertices))
    vertices, faces = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
    vertices.extend([np.asarray(v, np.float64) for v in mesh.vertices])
    faces.extend([coal.Triangle(*(int(i) for i in face)) for face in mesh.faces])
    model.addSubModel(vertices, faces)
    model.endModel()
    point, request = coal.Sphere(0.0), coal.DistanceRequest()
    origin = coal.Transform3s.Identity()

    def query(points: np.ndarray) -> np.ndarray:
        found = np.empty(len(points))
        for i, place in enumerate(points.astype(np.float64)):
            there = coal.Transform3s(np.eye(3), place)
            found[i] = coal.distance(model, origin, point, there, request, coal.DistanceResult())
        return found

    return query


PEERS = (
    Peer("plain wp.mesh_query_point", "warp", _plain),
    Peer("this library", "warp", _library),
    Peer("open3d RaycastingScene", "open3d", _open3d),
    Peer("igl, fast winding number", "igl", _igl("FAST_WINDING_NUMBER")),
    Peer("igl, pseudonormal", "igl", _igl("PSEUDONORMAL")),
    Peer("pytorch_volumetric, exact", "pytorch_volumetric", _volumetric(False)),
    Peer(f"pytorch_volumetric, {CACHE_CELL} m grid", "pytorch_volumetric", _volumetric(True)),
    Peer("trimesh.proximity", "rtree", _trimesh, points=500),
    Peer("coal, unsigned", "coal", _coal, points=2_000, unsigned=True),
)


def installed(peer: Peer) -> bool:
    """Whether a peer can be imported here."""
    try:
        with _quiet():
            importlib.import_module(peer.module)
    except ImportError:
        return False
    return True


def compare_peers(
    rounds: int = 5, scale: float = 1.0, say: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """Speeds and errors of all peers that are installed, on one CPU core.

    Args:
        rounds: of all peers in turn.
        scale: factor of the number of points.
        say: told what is being done.

    Returns:
        For each mesh and peer: points per second relative to the plain query, largest error [m],
        wrong signs, and the number of points that both were counted on.
    """
    rows: list[dict[str, Any]] = []
    os.environ.setdefault("IGL_NUM_THREADS", "1")
    peers = [peer for peer in PEERS if installed(peer)]
    with _one_core(), cpu_threads(1), tempfile.TemporaryDirectory() as folder:
        for name in MESHES:
            say(f"peers on {name}")
            rows += _compare_on(name, peers, rounds, scale, Path(folder))
    return rows


def _compare_on(
    name: str, peers: list[Peer], rounds: int, scale: float, folder: Path
) -> list[dict[str, Any]]:
    mesh = shape(name)
    rng = np.random.default_rng(9)
    count = max(20, int(20_000 * scale))
    points = (rng.uniform(-1.0, 1.0, (count, 3)) * mesh.extents).astype(np.float32)
    sample = points[: max(20, int(500 * scale))]
    expected = truth.signed_distance(sample, Placed(mesh, IDENTITY))
    queries, given = {}, {}
    for peer in peers:
        with _quiet():
            queries[peer.name] = peer.prepare(mesh, folder)
        given[peer.name] = points[: max(20, int(peer.points * scale))]
    errors = {}
    for peer in peers:
        with _quiet():
            actual = np.asarray(queries[peer.name](sample), np.float64)
        wanted = np.abs(expected) if peer.unsigned else expected
        wrong = (np.sign(actual) != np.sign(wanted)) & (np.abs(wanted) > ON_SURFACE)
        errors[peer.name] = float(np.abs(np.abs(actual) - np.abs(wanted)).max()), int(wrong.sum())
    taken: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            query, some = queries[peer.name], given[peer.name]
            with _quiet():
                taken[peer.name].append(_busy(lambda q=query, s=some: q(s)) / len(some))
    plain = np.array(taken[PEERS[0].name])
    return [
        {
            "mesh": name,
            "peer": peer.name,
            "speed": float(np.median(plain / np.array(taken[peer.name]))),
            "microseconds": 1e6 * float(np.median(taken[peer.name])),
            "error": errors[peer.name][0],
            "wrong_signs": None if peer.unsigned else errors[peer.name][1],
            "sample": len(sample),
        }
        for peer in peers
    ]


def _busy(run: Callable[[], object]) -> float:
    """Seconds that all threads of this process work during a call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


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
    """Keeps what peers print and warn of out of the tables."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield

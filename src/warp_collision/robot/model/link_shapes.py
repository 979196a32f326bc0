"""Spheres for the shapes of a robot's links, and for attached objects."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import trimesh

from warp_collision import validate
from warp_collision.io.placing import transformed
from warp_collision.messages import escaped, short_repr
from warp_collision.obstacles.geometry import read_mesh
from warp_collision.obstacles.mesh_report import OpenMeshWarning
from warp_collision.obstacles.shapes import Shape, mesh_of
from warp_collision.robot.fitting.coverage import Coverage
from warp_collision.robot.fitting.fit_cache import CachedParts, cached_fit
from warp_collision.robot.fitting.sphere_arrays import moved, sphere_array
from warp_collision.robot.fitting.sphere_fit import Part, SphereFit
from warp_collision.robot.model.convex_pieces import ConvexPiece, cached_pieces
from warp_collision.robot.model.link_surface import LinkSurface
from warp_collision.robot.model.sphere_model import Body, SphereModel, require_links
from warp_collision.robot.model.urdf_model import LinkMesh, LinkShape, LinkSphere, UrdfModel

# Called with a link whose shapes are to be fitted, its number from 1, and the number of links.
Progress = Callable[[str, int, int], object]
Overshoot = float | Mapping[str, float] | None
Reader = Callable[[Path], tuple[np.ndarray, np.ndarray]]  # vertices and faces of a file
_MAX_LENGTH = 1000  # times max_overshoot: of longer meshes nearly none is covered, after minutes
_MOST_THREADS = 4  # that fit links: each may take some 500 MB
_PATIENCE = 3.0  # [s], after which, and as often, it is told which link is fitted
_MAX_DEFAULT_LENGTH = 20.0  # [m], where no overshoot is given: longer ones are in millimetres


def spheres_of_shapes(
    model: UrdfModel,
    max_overshoot: Overshoot = None,
    piece_overshoot: float | None = None,
    progress: Progress | None = None,
) -> tuple[SphereModel, dict[str, tuple[Coverage, ...]]]:
    """The `<sphere>` shapes of a robot, and fitted spheres for all others with their coverage."""
    overshoots = _by_link(max_overshoot, model.link_names)
    if piece_overshoot is not None:
        validate.require_number("piece_overshoot", piece_overshoot, positive=True)
    links: dict[str, list[LinkSphere | _Part]] = {}
    read = cache(_read)  # both arms of a robot often have the same files
    for shape in model.collisions:
        links.setdefault(shape.link, []).append(_part(shape, overshoots[shape.link], read))
    parts = {
        link: [shape for shape in links.get(link, ()) if isinstance(shape, _Part)]
        for link in model.link_names
    }
    to_fit = {link: some for link, some in parts.items() if some}
    fits, covers = _fits(to_fit, overshoots, piece_overshoot, progress)
    bodies = {}
    for link in model.link_names:
        fitted = iter(fits.get(link, ()))
        rows = [
            np.array([[*shape.center, shape.radius]])
            if isinstance(shape, LinkSphere)
            else next(fitted).spheres
            for shape in links.get(link, ())
        ]
        if rows:
            bodies[link] = Body(link, np.concatenate(rows))
            if link in covers:  # spheres alone are exact
                balls = [shape for shape in links[link] if isinstance(shape, LinkSphere)]
                bodies[link] = covers[link].with_balls(balls, bodies[link])
    reports = {link: tuple(fit.report for fit in some) for link, some in fits.items()}
    return SphereModel(bodies), reports


class _Part(NamedTuple):
    """A shape of a link that is fitted.

    Attributes:
        shape: of the URDF.
        mesh: in the frame of the link.
        body: what is fitted, in a frame of its own: an exact shape, or a mesh as its file has it,
            scaled, and not mirrored.
        link_from_body: (4, 4) a pose, mirrored where the scale of a mesh is.
    """

    shape: LinkShape | LinkMesh
    mesh: trimesh.Trimesh
    body: Shape | trimesh.Trimesh
    link_from_body: np.ndarray


def _part(
    shape: LinkSphere | LinkShape | LinkMesh, overshoot: float | None, read: Reader
) -> LinkSphere | _Part:
    """A shape, with its mesh if spheres can cover it; most that they cannot are in millimetres."""
    if isinstance(shape, LinkSphere):
        return shape
    part = _as_part(shape, read)
    limit = _MAX_DEFAULT_LENGTH if overshoot is None else _MAX_LENGTH * overshoot
    if isinstance(shape, LinkMesh) and not np.ptp(part.mesh.vertices, axis=0).max() <= limit:
        rule = "" if overshoot is None else f", {_MAX_LENGTH} max_overshoot,"
        raise ValueError(
            f"{_described(part)} must be at most {limit:g} m long{rule} to be covered by spheres; "
            'is it in mm? scale="0.001 0.001 0.001" in the URDF makes metres of them'
        )
    return part


def _by_link(max_overshoot: Overshoot, links: Sequence[str]) -> dict[str, float | None]:
    """The overshoot of each link; None where it is chosen by size."""
    if isinstance(max_overshoot, Mapping):
        require_links("keys of max_overshoot", max_overshoot, links)
        for name, length in max_overshoot.items():
            where = f"max_overshoot of {short_repr(name)}"
            validate.require_number(where, length, positive=True)
        return {name: max_overshoot.get(name) for name in links}
    if max_overshoot is not None:
        validate.require_number("max_overshoot", max_overshoot, positive=True)
    return dict.fromkeys(links, max_overshoot)


def _fits(
    parts: Mapping[str, Sequence[_Part]],
    overshoots: Mapping[str, float | None],
    piece_overshoot: float | None,
    progress: Progress | None,
) -> tuple[dict[str, list[SphereFit]], dict[str, _Cover]]:
    """Fitted spheres and convex pieces of the shapes of links, in their frames; equal ones once."""
    wanted = {link: _wanted(some, overshoots[link]) for link, some in parts.items()}
    fits, covers = {}, {}
    told = _Told() if progress is None else None
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(min(_MOST_THREADS, torch.get_num_threads())) as pool,
    ):
        # Of open meshes the surface is covered, whatever is inside.
        warnings.simplefilter("ignore", OpenMeshWarning)
        spheres_of: dict[str, Future[list[SphereFit]]] = {}
        covers_of: dict[str, Future[_Cover]] = {}
        for link, what in wanted.items():
            if what.key not in spheres_of:
                spheres_of[what.key] = pool.submit(what.fits)
            meshes = [part.mesh for part in parts[link]]
            covers_of[link] = pool.submit(_Cover.of, meshes, piece_overshoot)
        try:
            for number, (link, what) in enumerate(wanted.items(), start=1):
                if progress is not None:
                    progress(link, number, len(wanted))
                if told is not None:
                    told.wait((spheres_of[what.key], covers_of[link]), link, number, len(wanted))
                fits[link] = [
                    fit._replace(spheres=moved(fit.spheres, part.link_from_body))
                    for fit, part in zip(spheres_of[what.key].result(), parts[link], strict=True)
                ]
                covers[link] = covers_of[link].result()
        finally:
            pool.shutdown(cancel_futures=True)
    return fits, covers


class _Told:
    """Says on standard error which link is fitted, where all of them take seconds.

    `WARP_COLLISION_QUIET=1` in the environment turns this off.
    """

    def __init__(self) -> None:
        self._next = time.monotonic() + _PATIENCE
        self._is_quiet = os.environ.get("WARP_COLLISION_QUIET", "0") not in ("", "0")

    def wait(self, fits: Sequence[Future[Any]], link: str, number: int, count: int) -> None:
        """Waits for the fits of a link until it is time to say something."""
        for fit in fits:
            if not self._is_quiet:
                concurrent.futures.wait([fit], max(0.0, self._next - time.monotonic()))
            if self._is_quiet or fit.done():
                continue
            print(
                f"warp-collision: fitting spheres to link {number} of {count}, "
                f"{escaped(link, 40)}; fits are kept for the next time",
                file=sys.stderr,
                flush=True,
            )
            self._next = time.monotonic() + _PATIENCE


def _wanted(parts: Sequence[_Part], overshoot: float | None) -> CachedParts:
    """What is to be fitted of a link."""
    # A lone mesh is as large as in its own frame: that of another link may be the same.
    meshes = [part.mesh if len(parts) > 1 else part.body for part in parts]
    return CachedParts.of(
        [Part(_described(part), part.body) for part in parts], _size(meshes), overshoot
    )


def _size(meshes: Sequence[Shape | trimesh.Trimesh]) -> float:
    """Diagonal of the box around meshes [m]."""
    vertices = [mesh_of(mesh).vertices for mesh in meshes]
    return float(np.linalg.norm(np.ptp(np.concatenate(vertices), axis=0)))


class _Cover(NamedTuple):
    """Convex pieces of the shapes of a link.

    Attributes:
        solid: those that follow their shapes.
        loose: those that fill what is hollow.
        triangles: of the shapes of these, each (n, 3, 3).
    """

    solid: list[ConvexPiece]
    loose: list[ConvexPiece]
    triangles: list[np.ndarray]

    @classmethod
    def of(cls, meshes: Sequence[trimesh.Trimesh], overshoot: float | None = None) -> _Cover:
        """Of some shapes, as meshes; see `follow`."""
        cover = cls([], [], [])
        for mesh in meshes:
            triangles = np.asarray(mesh.triangles)
            pieces, is_solid = cached_pieces(triangles, overshoot)
            if is_solid:
                cover.solid.extend(pieces)
            else:
                cover.loose.extend(piece.without_rest() for piece in pieces)
                cover.triangles.append(triangles.astype(np.float32))
        return cover

    def with_balls(self, balls: Sequence[LinkSphere], body: Body) -> Body:
        """A body with these pieces, and those of its exact spheres."""
        solid = [ConvexPiece(ball.center[None], ball.radius) for ball in balls] + self.solid
        surface = None
        if self.triangles:
            surface = LinkSurface(np.concatenate(self.triangles), len(solid))
        return replace(body, pieces=(*solid, *self.loose), surface=surface)


def _described(part: _Part) -> str:
    """The link, what it is, and the length of its sides."""
    shape, mesh = part.shape, part.mesh
    where = f"link {short_repr(shape.link)}"
    if isinstance(shape, LinkShape):
        return f"{where}: {short_repr(shape.shape)}"
    sides = " x ".join(f"{side:.4g}" for side in np.ptp(mesh.vertices, axis=0))
    return f"{where}: mesh {short_repr(shape.path.name)} of {sides} m"


def mesh_in_link(shape: LinkShape | LinkMesh) -> trimesh.Trimesh:
    """The mesh of a shape in the frame of its link."""
    return _as_part(shape).mesh


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    return read_mesh(path.name, path)


def _as_part(shape: LinkShape | LinkMesh, read: Reader = _read) -> _Part:
    """The mesh of a shape."""
    if isinstance(shape, LinkShape):
        pose = shape.link_from_shape
        return _Part(shape, _moved_mesh(mesh_of(shape.shape), pose), shape.shape, pose)
    if shape.missing:
        raise FileNotFoundError(shape.missing)
    try:
        mesh = trimesh.Trimesh(*read(shape.path), process=False)
    except (FileNotFoundError, ValueError) as error:
        raise type(error)(f"link {short_repr(shape.link)}: {error}") from error
    scale = np.append(np.linalg.norm(shape.link_from_mesh[:3, :3], axis=0), 1.0)
    body = trimesh.Trimesh(mesh.vertices * scale[:3], mesh.faces, process=False)
    return _Part(shape, _moved_mesh(mesh, shape.link_from_mesh), body, shape.link_from_mesh / scale)


def _moved_mesh(mesh: trimesh.Trimesh, transform: np.ndarray) -> trimesh.Trimesh:
    return transformed(mesh, transform[:3, :3], transform[:3, 3])


def shapes_of_links(model: UrdfModel) -> dict[str, list[LinkShape | LinkMesh]]:
    """For each link its collision shapes other than spheres, or its visual meshes if none."""
    shapes_of: dict[str, list[LinkShape | LinkMesh]] = {}
    for link in model.link_names:
        shapes = [s for s in model.collisions if s.link == link]
        solid = [shape for shape in shapes if not isinstance(shape, LinkSphere)]
        visual = [mesh for mesh in model.visuals if mesh.link == link]
        if solid or visual:
            shapes_of[link] = solid or [*visual]
    return shapes_of


def body_of_object(name: str, link: str, given: Any, max_overshoot: float | None) -> Body:
    """An object on a link: spheres that are given as rows; or a mesh or shape.

    To these spheres are fitted that fill them, and they have convex pieces.
    """
    is_pair = isinstance(given, tuple | list) and len(given) == 2 and np.ndim(given[0]) == 2
    is_path = hasattr(given, "__fspath__") or isinstance(given, str)
    if isinstance(given, trimesh.Trimesh) or is_pair or is_path:
        given = trimesh.Trimesh(*read_mesh(name, given), process=False)
    elif not isinstance(given, Shape):
        rows = sphere_array(f"spheres of {short_repr(name)}", given)
        if len(rows) == 0:
            raise ValueError(f"spheres of {short_repr(name)} must not be empty, got none")
        return Body(link, rows)
    fitted = Body(link, cached_fit(given, max_overshoot, fill=True).spheres)
    return _Cover.of([mesh_of(given)]).with_balls((), fitted)


def padded(
    model: SphereModel, padding: float | Mapping[str, float], links: Sequence[str]
) -> SphereModel:
    """A model with spheres inflated by one length [m], or by one for each of some links."""
    if isinstance(padding, Mapping):
        require_links("keys of padding", padding, [*dict.fromkeys((*links, *model.bodies))])
        lengths = {name: padding.get(name, 0.0) for name in model.bodies}
    else:
        lengths = dict.fromkeys(model.bodies, padding)
    for name, length in lengths.items():
        validate.require_number(f"padding of {short_repr(name)}", length)
    bodies = {name: body.widened(lengths[name]) for name, body in model.bodies.items()}
    return replace(model, bodies=bodies)

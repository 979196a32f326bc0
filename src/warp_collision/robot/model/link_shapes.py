"""Spheres for the shapes of a robot's links, and for attached objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import trimesh

from warp_collision import validate
from warp_collision.io.placing import transformed
from warp_collision.messages import errors_at, short_repr
from warp_collision.obstacles.geometry import content_key, read_mesh
from warp_collision.obstacles.shapes import Shape, mesh_of
from warp_collision.robot.fitting.coverage import Coverage
from warp_collision.robot.fitting.sphere_arrays import inflated, moved, sphere_array
from warp_collision.robot.fitting.sphere_fit import SphereFit, fit_spheres
from warp_collision.robot.model.sphere_model import Body, SphereModel, require_links
from warp_collision.robot.model.urdf_model import LinkMesh, LinkShape, LinkSphere, UrdfModel

# Cache of fits by shape, as one process may read a robot many times.
_fits: dict[str, SphereFit] = {}
_MAX_FITS = 256
_MAX_LENGTH = 1000  # times max_overshoot: of longer meshes nearly none is covered, after minutes


class FittedModel(NamedTuple):
    """Spheres of a URDF's collision shapes, and the coverage of the fitted ones."""

    model: SphereModel
    fits: dict[str, tuple[Coverage, ...]]


def spheres_of_shapes(model: UrdfModel, max_overshoot: float) -> FittedModel:
    """The `<sphere>` shapes of a robot, and fitted spheres for all other shapes."""
    validate.require_number("max_overshoot", max_overshoot, positive=True)
    meshes = [
        mesh_in_link(shape) if isinstance(shape, LinkMesh) else None for shape in model.collisions
    ]
    for shape, mesh in zip(model.collisions, meshes, strict=True):
        if isinstance(shape, LinkMesh) and mesh is not None:
            _require_size(shape, mesh, max_overshoot)  # of all, before any fit takes its time
    rows: dict[str, list[np.ndarray]] = {}
    fits: dict[str, list[Coverage]] = {}
    for shape, mesh in zip(model.collisions, meshes, strict=True):
        if isinstance(shape, LinkSphere):
            spheres = np.array([[*shape.center, shape.radius]])
        else:
            fit = _fitted(shape, mesh, max_overshoot)
            spheres = fit.spheres
            fits.setdefault(shape.link, []).append(fit.report)
        rows.setdefault(shape.link, []).append(spheres)
    bodies = {
        link: Body(link, np.concatenate(rows[link])) for link in model.link_names if link in rows
    }
    return FittedModel(SphereModel(bodies), {link: tuple(some) for link, some in fits.items()})


def _fitted(
    shape: LinkShape | LinkMesh, mesh: trimesh.Trimesh | None, max_overshoot: float
) -> SphereFit:
    """Fitted spheres of a shape in the frame of its link, where a mesh is given."""
    with errors_at(_described(shape, mesh)):
        if isinstance(shape, LinkShape):
            fit = _fit_once(shape.shape, max_overshoot)
            # Fitted in its own frame, where it is exact; the spheres are transformed in float64.
            return fit._replace(spheres=moved(fit.spheres, shape.link_from_shape))
        return _fit_once(mesh_in_link(shape) if mesh is None else mesh, max_overshoot)


def _require_size(shape: LinkMesh, mesh: trimesh.Trimesh, max_overshoot: float) -> None:
    """Requires a mesh that spheres can cover; most that they cannot are in millimetres."""
    limit = _MAX_LENGTH * max_overshoot
    if not np.ptp(mesh.vertices, axis=0).max() <= limit:
        raise ValueError(
            f"{_described(shape, mesh)} must be at most {_MAX_LENGTH} max_overshoot, {limit:g} m, "
            'long to be covered by spheres; is it in mm? scale="0.001 0.001 0.001" in the URDF '
            "makes metres of them"
        )


def _described(shape: LinkShape | LinkMesh, mesh: trimesh.Trimesh | None) -> str:
    """The link, what it is, and the length of its sides."""
    if mesh is None:
        what = short_repr(shape.shape) if isinstance(shape, LinkShape) else "mesh"
        return f"link {short_repr(shape.link)}: {what}"
    file = short_repr(shape.path.name) if isinstance(shape, LinkMesh) else ""
    sides = " x ".join(f"{side:.4g}" for side in np.ptp(mesh.vertices, axis=0))
    return f"link {short_repr(shape.link)}: mesh {file} of {sides} m"


def _fit_once(mesh: Shape | trimesh.Trimesh, max_overshoot: float) -> SphereFit:
    if isinstance(mesh, Shape):
        key = f"{mesh!r} {max_overshoot}"
    else:
        key = content_key(mesh.vertices, mesh.faces, max_overshoot)
    if key not in _fits:
        if len(_fits) >= _MAX_FITS:
            _fits.clear()
        _fits[key] = fit_spheres(mesh, max_overshoot=max_overshoot)
    return _fits[key]


def mesh_in_link(shape: LinkShape | LinkMesh) -> trimesh.Trimesh:
    """The mesh of a shape in the frame of its link."""
    if isinstance(shape, LinkShape):
        mesh, transform = mesh_of(shape.shape), shape.link_from_shape
    else:
        if shape.missing:
            raise FileNotFoundError(shape.missing)
        try:
            mesh = trimesh.Trimesh(*read_mesh(shape.path.name, shape.path), process=False)
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(f"link {short_repr(shape.link)}: {error}") from error
        transform = shape.link_from_mesh
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


def spheres_of_object(name: str, given: Any, max_overshoot: float) -> np.ndarray:
    """Spheres (n, 4) of an object: given as rows, or fitted to fill a mesh or shape."""
    is_pair = isinstance(given, tuple | list) and len(given) == 2 and np.ndim(given[0]) == 2
    if isinstance(given, trimesh.Trimesh | Shape) or is_pair:
        return fit_spheres(given, max_overshoot=max_overshoot, fill=True).spheres
    if hasattr(given, "__fspath__") or isinstance(given, str):
        mesh = read_mesh(name, given)
        return fit_spheres(mesh, max_overshoot=max_overshoot, fill=True).spheres
    rows = sphere_array(f"spheres of {short_repr(name)}", given)
    if len(rows) == 0:
        raise ValueError(f"spheres of {short_repr(name)} must not be empty, got none")
    return rows


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
    bodies = {
        name: Body(body.link, inflated(body.spheres, lengths[name]))
        for name, body in model.bodies.items()
    }
    return replace(model, bodies=bodies)

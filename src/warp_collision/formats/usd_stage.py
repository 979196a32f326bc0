"""USD stages to plain values: the geometric prims, with those of instances at each of their frames.

OpenUSD runs in the worker process: a binary layer is a memory image of sizes and offsets, not all
of which are checked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warp_collision.formats.files import is_file
from warp_collision.formats.openusd import errors_name, openusd
from warp_collision.formats.usd_joints import body_of, moved_bodies
from warp_collision.formats.worker import allow, run_limited
from warp_collision.messages import short_repr

MAX_BYTES = 1 << 30  # of all layers
MAX_LAYERS = 10_000
MAX_PRIMS = 1_000_000  # with what native instances repeat
MAX_INSTANCED = 100_000

_MODULES = ("pxr.Ar", "pxr.Sdf", "pxr.Tf", "pxr.Usd", "pxr.UsdGeom", "pxr.UsdPhysics")
# What is read of each type of prim; others are left out.
_ROUND = ("radius", "height", "axis")
_TAPERED = ("radiusTop", "radiusBottom", "height", "axis")
_ARRAYS = {
    "points": np.float64,
    "faceVertexCounts": np.int64,
    "faceVertexIndices": np.int64,
    "holeIndices": np.int64,
    "primvars:skel:jointIndices": np.int64,
}
_ATTRIBUTES = {
    "Cube": ("size",),
    "Sphere": ("radius",),
    "Cylinder": _ROUND,
    "Capsule": _ROUND,
    "Cone": _ROUND,
    "Plane": ("axis",),
    "Cylinder_1": _TAPERED,
    "Capsule_1": _TAPERED,
    "Mesh": (*_ARRAYS, "orientation"),
}


class UsdPrim(NamedTuple):
    """A geometric prim at one of its frames.

    Attributes:
        name: its path without the first slash. Of instances that of the instancer, the number of
            the instance, and the path below the prototype.
        kind: its type.
        frame: (4, 4) from its coordinates to those of the stage.
        values: its attributes at the earliest time, by name; one object for all instances of a
            prim. Arrays that are not written are empty.
    """

    name: str
    kind: str
    frame: np.ndarray
    values: dict[str, Any]


class UsdStage(NamedTuple):
    """What is on a stage.

    Attributes:
        metres_per_unit: length of its unit [m].
        is_y_up: y is up, else z.
        prims: in the order of the stage.
        left_out: name and reason of what has a geometry and is not read.
    """

    metres_per_unit: float
    is_y_up: bool
    prims: list[UsdPrim]
    left_out: list[tuple[str, str]]


def read_stage(
    path: Path, package_dirs: Sequence[Path] = (), values: Mapping[str, float] | None = None
) -> UsdStage:
    """Reads the geometric prims of a USD file, with all payloads.

    If anything on the stage has a collision API, only prims that have one, or whose ancestor has
    one, are read, visible or not. Otherwise all visible prims are read, except guides.

    Args:
        path: the file. Sublayers, references and payloads lie in its folder or below.
        package_dirs: folders in which, or below which, they may lie as well.
        values: of revolute and prismatic joints [rad, m], to which bodies are moved.

    Raises:
        ValueError: a layer that cannot be opened, lies elsewhere or is no regular file. More than
            10,000 layers, or more than 1 GiB in all. Too many prims or instances. A wrong prim: the
            error begins with its name. A joint value that is wrong.
    """
    folders = [os.path.abspath(folder) for folder in (path.parent, *package_dirs)]
    arguments = os.path.abspath(path), folders, MAX_LAYERS, dict(values or {})
    return run_limited(_read, *arguments, library="OpenUSD", imports=_MODULES)


def _read(path: str, folders: list[str], max_layers: int, values: dict[str, float]) -> UsdStage:
    Usd, UsdGeom = openusd("Usd"), openusd("UsdGeom")
    layers = _Layers(folders, max_layers)
    layers.follow(path)
    stage = Usd.Stage.Open(path)
    for layer in stage.GetUsedLayers():  # by another way, as an expression for a path
        if layer.realPath:
            layers.check(layer.realPath)
    failed = stage.GetCompositionErrors()
    if failed:
        raise ValueError(f"all parts of a stage must open, got {failed[0]}")
    unit = float(UsdGeom.GetStageMetersPerUnit(stage))
    if not 0.0 < unit < np.inf:
        raise ValueError(f"metersPerUnit must be positive, got {unit}")
    is_y_up = UsdGeom.GetStageUpAxis(stage) == UsdGeom.Tokens.y
    motions, left_out = moved_bodies(stage, values, unit) if values else ({}, [])
    return _Walk(stage, motions, left_out).read(unit, is_y_up)


class _Layers:
    """Counts the layers of a stage, each before it is opened."""

    def __init__(self, folders: list[str], max_layers: int) -> None:
        self._folders = [*folders, *map(os.path.realpath, folders)]
        self._max_layers = max_layers
        self._files: set[str] = set()
        self._n_bytes = 0

    def follow(self, path: str) -> None:
        """Checks a layer and all that it refers to."""
        Ar, Sdf = openusd("Ar"), openusd("Sdf")
        self.check(path)
        names, layers, seen = [path], [], {path}  # layers in a list stay open
        for name in names:  # grows
            layers.append(Sdf.Layer.FindOrOpen(name))
            if layers[-1] is None:  # the stage says why
                continue
            # An internal reference, `</Prototype>`, names no file.
            for dependency in filter(None, layers[-1].GetCompositionAssetDependencies()):
                asset = Sdf.ComputeAssetPathRelativeToLayer(layers[-1], dependency)
                resolved = str(Ar.GetResolver().Resolve(Sdf.Layer.SplitIdentifier(asset)[0]))
                if not resolved or asset in seen:  # if it is not there, the stage says why
                    continue
                self.check(resolved)
                names.append(asset)
                seen.add(asset)
                if len(names) > self._max_layers:
                    raise ValueError(
                        f"a stage must have at most {self._max_layers} layers, got more"
                    )

    def check(self, resolved: str) -> None:
        """Counts the file that a layer is in."""
        Ar = openusd("Ar")
        if Ar.IsPackageRelativePath(resolved):
            resolved = Ar.SplitPackageRelativePathOuter(resolved)[0]
        name = os.path.abspath(resolved)
        if name in self._files:
            return
        self._files.add(name)
        if not any(os.path.commonpath((name, folder)) == folder for folder in self._folders):
            raise ValueError(
                "layers must lie in the folder of the file or below, or in package_dirs, got "
                f"{short_repr(name)}"
            )
        if not is_file(Path(name)):
            raise ValueError(f"a layer must be a regular file, got {short_repr(name)}")
        self._n_bytes += os.path.getsize(name)
        if self._n_bytes > MAX_BYTES:
            raise ValueError(
                f"a file and its layers must have at most {MAX_BYTES} bytes, got {self._n_bytes}"
            )
        allow(os.path.getsize(name))


class _Placed(NamedTuple):
    """A geometric prim at one of its frames, and whether it is an obstacle.

    Attributes:
        name: as of `UsdPrim`.
        prim: the prim; of instances that of the prototype.
        frame: (4, 4) from its coordinates to those of the stage, or of what the walk began at.
        collides: whether it does, None if nothing is said.
        hidden: why it is not seen, None if it is.
    """

    name: str
    prim: Any
    frame: np.ndarray
    collides: bool | None
    hidden: str | None

    def reason_to_leave_out(self, has_physics: bool) -> str | None:
        """Why it is left out, None if it is not."""
        kind = self.prim.GetTypeName()
        if has_physics and not self.collides:
            off = "its collision is off" if self.collides is False else "it has no collision API"
            return f"a {kind}: {off}"
        if self.hidden and not has_physics:
            return f"a {kind}: {self.hidden}"
        return None if kind in _ATTRIBUTES else f"a {kind}"


class _Inherited(NamedTuple):
    """What prims inherit from those above them."""

    collides: bool | None = None
    invisible: bool = False
    purpose: str = "default"

    @property
    def hidden(self) -> str | None:
        if self.invisible:
            return "it is invisible"
        return "its purpose is guide" if self.purpose == "guide" else None


class _Walk:
    """Walks over a stage at its earliest time; prims of unknown types are left out."""

    def __init__(
        self, stage: Any, motions: Mapping[str, np.ndarray], left_out: list[tuple[str, str]]
    ) -> None:
        self._motions, self._left_out = motions, left_out
        self._stage, self._time = stage, openusd("Usd").TimeCode.EarliestTime()
        self._frames = openusd("UsdGeom").XformCache(self._time)
        self._prototypes: dict[Any, list[_Placed] | None] = {}
        self._values: dict[Any, dict[str, Any]] = {}
        self._count = self._instanced = 0

    def read(self, metres_per_unit: float, is_y_up: bool) -> UsdStage:
        """All prims with their values."""
        root, default = self._stage.GetPseudoRoot(), openusd("Usd").PrimDefaultPredicate
        placed = self._below(root, default)
        has_physics = any(part.collides is not None for part in placed)
        prims: list[UsdPrim] = []
        for part in placed:
            reason = part.reason_to_leave_out(has_physics)
            if reason is not None:
                self._left_out.append((part.name, reason))
                continue
            with errors_name(part.name):
                values = self._values_of(part.prim)
            prims.append(UsdPrim(part.name, str(part.prim.GetTypeName()), part.frame, values))
        return UsdStage(metres_per_unit, is_y_up, prims, self._left_out)

    def _values_of(self, prim: Any) -> dict[str, Any]:
        shared = prim.GetPrimInPrototype() if prim.IsInstanceProxy() else prim
        path = shared.GetPath()
        if path not in self._values:
            values = {
                name: prim.GetAttribute(name).Get(self._time) if prim.GetAttribute(name) else None
                for name in _ATTRIBUTES[prim.GetTypeName()]
            }
            for name in _ARRAYS.keys() & values.keys():
                value = values[name]
                values[name] = np.array([] if value is None else value, _ARRAYS[name])
            self._values[path] = values
        return self._values[path]

    def _below(self, root: Any, predicate: Any) -> list[_Placed]:
        """Prims at and below a root, in the coordinates of its parent."""
        Usd, UsdGeom = openusd("Usd"), openusd("UsdGeom")
        registry = Usd.SchemaRegistry()
        outside, place = np.eye(4), self._moved_frame
        if not root.IsPseudoRoot():
            place = self._frame  # bodies of prototypes stay
            outside = np.linalg.inv(self._frame(root.GetParent()))
        inherited: dict[Any, _Inherited] = {}
        collected: list[_Placed] = []
        prims = iter(Usd.PrimRange(root, Usd.TraverseInstanceProxies(predicate)))
        for prim in prims:
            self._count += 1
            if self._count > MAX_PRIMS:
                raise ValueError(f"a stage must have at most {MAX_PRIMS} prims, got more")
            path = prim.GetPath()
            above = inherited.get(path.GetParentPath(), _Inherited())
            own = inherited[path] = self._inherited(prim, above)
            name, kind = str(path).removeprefix("/"), prim.GetTypeName()
            with errors_name(name):
                if prim.HasMetadata("clips"):
                    raise ValueError("it must not have value clips")
                if prim.IsA(UsdGeom.PointInstancer):
                    frame = outside @ place(prim)
                    collected += self._instances(UsdGeom.PointInstancer(prim), name, frame, own)
                    prims.PruneChildren()  # they stand where an instance is
                elif prim.IsA(UsdGeom.Gprim):
                    frame = outside @ place(prim)
                    collected.append(_Placed(name, prim, frame, own.collides, own.hidden))
                elif kind and registry.FindConcretePrimDefinition(kind) is None:
                    self._left_out.append((name, f"of an unknown type, {short_repr(kind)}"))
        return collected

    def _instances(
        self, instancer: Any, name: str, frame: np.ndarray, own: _Inherited
    ) -> list[_Placed]:
        """The prims of the instances of a point instancer, without deactivated ones."""
        indices = instancer.GetProtoIndicesAttr().Get(self._time) or []
        if len(indices) > MAX_PRIMS:
            raise ValueError(f"instances must be at most {MAX_PRIMS}, got {len(indices)}")
        targets = list(instancer.GetPrototypesRel().GetForwardedTargets())
        matrices = instancer.ComputeInstanceTransformsAtTime(
            self._time, self._time, instancer.ExcludeProtoXform, instancer.IgnoreMask
        )
        if len(matrices) != len(indices):
            raise ValueError(
                f"positions, orientations and scales must be {len(indices)}, as protoIndices"
            )
        ids = instancer.GetIdsAttr().Get(self._time) or range(len(indices))
        if len(ids) != len(indices):
            raise ValueError(f"ids must be {len(indices)}, as protoIndices, got {len(ids)}")
        listed = instancer.GetPrim().GetMetadata("inactiveIds")
        inactive = {*(listed.GetAddedOrExplicitItems() if listed else ())}
        invisible = {*(instancer.GetInvisibleIdsAttr().Get(self._time) or ())}
        collected: list[_Placed] = []
        for number, (index, matrix) in enumerate(zip(indices, matrices, strict=True)):
            if not 0 <= index < len(targets):
                raise ValueError(f"protoIndices must be 0 to {len(targets) - 1}, got {index}")
            if ids[number] in inactive:
                continue
            parts = self._prototype(targets[index])
            self._instanced += len(parts)
            if self._instanced > MAX_INSTANCED:
                raise ValueError(f"instances must come to at most {MAX_INSTANCED} prims, got more")
            placed = frame @ np.array(matrix, np.float64).T
            hidden = "it is invisible" if ids[number] in invisible else own.hidden
            begin = str(targets[index]).removeprefix("/")
            collected += [
                _Placed(
                    f"{name}/{number}{part.name.removeprefix(begin)}",
                    part.prim,
                    placed @ part.frame,
                    own.collides if part.collides is None else part.collides,
                    hidden or part.hidden,
                )
                for part in parts
            ]
        return collected

    def _prototype(self, path: Any) -> list[_Placed]:
        """The prims of a prototype, in the coordinates of its parent; walked over once."""
        Usd = openusd("Usd")
        if path not in self._prototypes:
            prim = self._stage.GetPrimAtPath(path)
            if not prim or prim.IsPseudoRoot():
                raise ValueError(
                    f"prototypes must be prims of the stage, got {short_repr(str(path))}"
                )
            self._prototypes[path] = None
            # A prototype may be, or be below, what does not stand on the stage itself.
            self._prototypes[path] = self._below(prim, Usd.PrimIsActive & Usd.PrimIsLoaded)
        parts = self._prototypes[path]
        if parts is None:
            raise ValueError(f"a prototype must not hold itself, got {short_repr(str(path))}")
        return parts

    def _inherited(self, prim: Any, above: _Inherited) -> _Inherited:
        UsdGeom, UsdPhysics = openusd("UsdGeom"), openusd("UsdPhysics")
        collides, invisible, purpose = above
        if prim.HasAPI(UsdPhysics.CollisionAPI):
            collides = bool(UsdPhysics.CollisionAPI(prim).GetCollisionEnabledAttr().Get())
        if prim.IsA(UsdGeom.Imageable):
            imageable = UsdGeom.Imageable(prim)
            shown_as = imageable.GetVisibilityAttr().Get(self._time)
            invisible = invisible or shown_as == UsdGeom.Tokens.invisible
            if imageable.GetPurposeAttr().HasAuthoredValue():
                purpose = str(imageable.GetPurposeAttr().Get())
        return _Inherited(collides, invisible, purpose)

    def _frame(self, prim: Any) -> np.ndarray:
        """The transform (4, 4) of a prim to the stage."""
        return np.array(self._frames.GetLocalToWorldTransform(prim), np.float64).T

    def _moved_frame(self, prim: Any) -> np.ndarray:
        """The transform (4, 4) of a prim to the stage, where joints move it."""
        motion = self._motions.get(body_of(prim)) if self._motions else None
        return self._frame(prim) if motion is None else motion @ self._frame(prim)

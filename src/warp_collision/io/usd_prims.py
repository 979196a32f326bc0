"""The geometric prims of a USD stage, with those of instances at each of their places."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

import numpy as np

from warp_collision.formats.usd_trial import openusd
from warp_collision.io.content import MAX_OBSTACLES, Content, errors_begin_with
from warp_collision.messages import MAX_SHOWN, escaped, shown

MAX_PRIMS = 1_000_000  # with what native instances repeat


class Placed(NamedTuple):
    """A geometric prim at one of its places.

    Attributes:
        name: its path without the first slash. Of instances that of the instancer, the number of
            the instance, and the path below the prototype.
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


class StageWalk:
    """Walks over a stage at one time code; prims of unknown types are left out of the content."""

    def __init__(self, stage: Any, time: Any, content: Content) -> None:
        self._stage, self._time, self._content = stage, time, content
        self._frames = openusd("UsdGeom").XformCache(time)
        self._prototypes: dict[Any, list[Placed] | None] = {}
        self._count = self._instanced = 0

    def prims(self) -> list[Placed]:
        """All geometric prims, in the order of the stage.

        Raises:
            ValueError: too many prims or instances, or a wrong instancer; it names the file.
        """
        Usd = openusd("Usd")
        return self._below(self._stage.GetPseudoRoot(), Usd.PrimDefaultPredicate)

    def _below(self, root: Any, predicate: Any) -> list[Placed]:
        """Prims at and below a root, in the coordinates of its parent."""
        Usd, UsdGeom = openusd("Usd"), openusd("UsdGeom")
        registry = Usd.SchemaRegistry()
        outside = np.eye(4)
        if not root.IsPseudoRoot():
            outside = np.linalg.inv(self._frame(root.GetParent()))
        inherited: dict[Any, _Inherited] = {}
        found: list[Placed] = []
        prims = iter(Usd.PrimRange(root, Usd.TraverseInstanceProxies(predicate)))
        for prim in prims:
            self._count += 1
            if self._count > MAX_PRIMS:
                raise ValueError(f"a stage must have at most {MAX_PRIMS} prims, got more")
            path = prim.GetPath()
            above = inherited.get(path.GetParentPath(), _Inherited())
            own = inherited[path] = self._inherited(prim, above)
            name, kind = str(path).removeprefix("/"), prim.GetTypeName()
            with self._errors_name(name):
                if prim.HasMetadata("clips"):
                    raise ValueError("it must not have value clips")
                if prim.IsA(UsdGeom.PointInstancer):
                    frame = outside @ self._frame(prim)
                    found += self._instances(UsdGeom.PointInstancer(prim), name, frame, own)
                    prims.PruneChildren()  # they stand where an instance is
                elif prim.IsA(UsdGeom.Gprim):
                    frame = outside @ self._frame(prim)
                    found.append(Placed(name, prim, frame, own.collides, own.hidden))
                elif kind and registry.FindConcretePrimDefinition(kind) is None:
                    self._content.leave_out(name, f"of an unknown type, {shown(kind)}")
        return found

    def _instances(
        self, instancer: Any, name: str, frame: np.ndarray, own: _Inherited
    ) -> list[Placed]:
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
        found: list[Placed] = []
        for number, (index, matrix) in enumerate(zip(indices, matrices, strict=True)):
            if not 0 <= index < len(targets):
                raise ValueError(f"protoIndices must be 0 to {len(targets) - 1}, got {index}")
            if ids[number] in inactive:
                continue
            parts = self._prototype(targets[index])
            self._instanced += len(parts)
            if self._instanced > MAX_OBSTACLES:
                raise ValueError(f"instances must come to at most {MAX_OBSTACLES} prims, got more")
            placed = frame @ np.array(matrix, np.float64).T
            hidden = "it is invisible" if ids[number] in invisible else own.hidden
            begin = str(targets[index]).removeprefix("/")
            found += [
                Placed(
                    f"{name}/{number}{part.name.removeprefix(begin)}",
                    part.prim,
                    placed @ part.frame,
                    own.collides if part.collides is None else part.collides,
                    hidden or part.hidden,
                )
                for part in parts
            ]
        return found

    def _prototype(self, path: Any) -> list[Placed]:
        """The prims of a prototype, in the coordinates of its parent; walked over once."""
        Usd = openusd("Usd")
        if path not in self._prototypes:
            prim = self._stage.GetPrimAtPath(path)
            if not prim or prim.IsPseudoRoot():
                raise ValueError(f"prototypes must be prims of the stage, got {shown(str(path))}")
            self._prototypes[path] = None
            # A prototype may be, or be below, what does not stand on the stage itself.
            self._prototypes[path] = self._below(prim, Usd.PrimIsActive & Usd.PrimIsLoaded)
        parts = self._prototypes[path]
        if parts is None:
            raise ValueError(f"a prototype must not hold itself, got {shown(str(path))}")
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

    def _errors_name(self, name: str) -> Any:
        where = self._content.where
        return errors_begin_with(f"{where}: {escaped(name, MAX_SHOWN)}", within=where)


def reason_to_leave_out(placed: Placed, has_physics: bool, known: Container[str]) -> str | None:
    """Why something with a geometry is left out, None if it is not."""
    kind = placed.prim.GetTypeName()
    if has_physics and not placed.collides:
        off = "its collision is off" if placed.collides is False else "it has no collision API"
        return f"a {kind}: {off}"
    if placed.hidden and not has_physics:
        return f"a {kind}: {placed.hidden}"
    return None if kind in known else f"a {kind}"

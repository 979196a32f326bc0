"""Fits on disk, by the content of what was fitted: the second time a robot is read at once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import trimesh

from warp_collision.obstacles.geometry import content_key
from warp_collision.obstacles.shapes import Shape
from warp_collision.robot.fitting.coverage import Coverage, coverage
from warp_collision.robot.fitting.sphere_fit import Part, SphereFit, fit_parts, fit_spheres

# Of the algorithm: another one for each change of what it returns.
_VERSION = 5
_Result = TypeVar("_Result")


def cached_fit(mesh: Shape | trimesh.Trimesh, max_overshoot: float | None, fill: bool) -> SphereFit:
    """`fit_spheres`, from the cache on disk if equal content was fitted before.

    The cache is a folder, `WARP_COLLISION_CACHE`, or `warp-collision` in `XDG_CACHE_HOME`, by
    default `~/.cache`. Each fit is a file of its own that appears complete; a folder that cannot be
    written to is no error.
    """
    [fit] = _cached(
        _key([mesh], max_overshoot, fill),
        lambda: [fit_spheres(mesh, max_overshoot=max_overshoot, fill=fill)],
        1,
    )
    return fit


def cached_coverage(
    spheres: np.ndarray, mesh: Shape | trimesh.Trimesh, resolution: float | None
) -> Coverage:
    """`coverage` of spheres (n, 4), from the cache on disk if it was computed before."""
    return cached_result(
        "coverage",
        _key([mesh], spheres.tolist(), resolution),
        lambda: {"report": [*coverage(spheres, mesh, resolution=resolution)]},
        lambda content: Coverage(*content["report"]),
    )


class CachedParts(NamedTuple):
    """What `fit_parts` takes, with the key of its result.

    Attributes:
        key: equal for equal content and options, whatever parts are called.
        parts: the bodies.
        size: of all parts together [m].
        max_overshoot: [m]; by the size if None.
    """

    key: str
    parts: tuple[Part, ...]
    size: float
    max_overshoot: float | None

    @classmethod
    def of(cls, parts: Sequence[Part], size: float, max_overshoot: float | None) -> CachedParts:
        """With its key."""
        key = _key([part.mesh for part in parts], "parts", size, max_overshoot)
        return cls(key, tuple(parts), size, max_overshoot)

    def fits(self) -> list[SphereFit]:
        """The result, from the cache on disk if equal content was fitted before."""
        return _cached(self.key, lambda: fit_parts(*self[1:]), len(self.parts))


def _cached(key: str, fit: Callable[[], Sequence[SphereFit]], count: int) -> list[SphereFit]:
    """A number of fits, from the cache if they are there."""

    def make() -> dict[str, Any]:
        return {"fits": [{"spheres": x.spheres.tolist(), "report": [*x.report]} for x in fit()]}

    def parse(content: dict[str, Any]) -> list[SphereFit]:
        return [_read(part) for _, part in zip(range(count), content["fits"], strict=True)]

    return cached_result("fits", key, make, parse)


def cached_result(
    folder: str, key: str, make: Callable[[], dict[str, Any]], parse: Callable[[dict], _Result]
) -> _Result:
    """What is made of a dictionary for JSON, from the cache on disk if it was made before.

    Args:
        folder: of the cache.
        key: of the content.
        make: makes the dictionary.
        parse: what is wanted of it; raises ValueError, TypeError or KeyError if it is damaged.
    """
    path = _folder() / folder / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return parse(json.loads(path.read_text(encoding="utf-8")))
    content = make()
    _write(path, content)
    return parse(content)


def _folder() -> Path:
    """The folder of the cache."""
    own = os.environ.get("WARP_COLLISION_CACHE")
    if own:
        return Path(own)
    user = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(user) / "warp-collision"


def _key(meshes: Sequence[Shape | trimesh.Trimesh], *options: object) -> str:
    """Equal for equal content and options."""
    texts = [
        repr(mesh)
        if isinstance(mesh, Shape)
        else content_key(np.asarray(mesh.vertices), np.asarray(mesh.faces))
        for mesh in meshes
    ]
    return hashlib.blake2b(repr((_VERSION, texts, options)).encode(), digest_size=16).hexdigest()


def _read(content: dict[str, Any]) -> SphereFit:
    """A fit that was written; raises for whatever else is there."""
    spheres = np.array(content["spheres"], dtype=np.float64).reshape(-1, 4)
    report = Coverage(*content["report"])
    if len(spheres) != report.count:
        raise ValueError(f"a fit must have {report.count} spheres, got {len(spheres)}")
    return SphereFit(spheres, report)


def _write(path: Path, content: dict[str, Any]) -> None:
    """Writes a file that other processes see complete or not at all."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(content))  # `dump` takes twice the time
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise

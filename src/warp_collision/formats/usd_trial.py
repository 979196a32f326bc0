"""Trial reads of USD files in a separate process, since damaged files can crash OpenUSD.

Text is parsed; but a binary layer is a memory image of sizes and offsets, not all of which are
checked: a few wrong bytes make OpenUSD abort, crash, or fill all memory. `read_elsewhere` runs this
file as a script.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# What readers ask of geometric prims: it is asked here first.
ATTRIBUTES = frozenset(
    (
        *("points", "faceVertexCounts", "faceVertexIndices", "holeIndices", "orientation"),
        *("size", "radius", "height", "axis", "radiusTop", "radiusBottom"),
        "primvars:skel:jointIndices",
    )
)

_SECONDS, _SECONDS_PER_BYTE = 3, 2e-6  # of one CPU thread
_MEMORY, _MEMORY_PER_BYTE = 1 << 30, 64  # more than OpenUSD takes without a file
_SLOWER = 200  # times as long by the clock: other programs may keep it waiting
_WHOLE, _FAILED = "whole", "failed: "
_passed: set[tuple[object, ...]] = set()  # files and their state that OpenUSD got through


def is_binary(path: Path) -> bool:
    """Whether a file is a binary layer or a package of layers."""
    with path.open("rb") as file:
        head = file.read(8)
    return head == b"PXR-USDC" or head[:4] == b"PK\x03\x04"


def read_elsewhere(paths: Sequence[Path], n_bytes: int, *, as_stages: bool = False) -> bool:
    """Reads files in another process, which may crash, and takes bounded time and memory.

    Args:
        paths: the files.
        n_bytes: of them and what they refer to.
        as_stages: open them as stages although they refer to other files.

    Returns:
        Whether the files have been read as stages: with `as_stages`, or if none refers to others.

    Raises:
        ValueError: a layer does not open, or that process was ended.
    """
    from warp_collision.messages import MAX_ERROR, escaped  # not in the other process

    states = [(str(path), path.stat()) for path in paths]
    key = tuple((name, state.st_mtime_ns, state.st_size) for name, state in states)
    if not sys.executable or (key in _passed and not as_stages):
        return True
    seconds = _SECONDS + int(_SECONDS_PER_BYTE * n_bytes)
    memory = _MEMORY + _MEMORY_PER_BYTE * n_bytes
    limits = (str(seconds), str(memory), str(int(as_stages)))
    with tempfile.TemporaryDirectory() as folder:  # for what OpenUSD writes when it crashes
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TMPDIR": folder,
            # Each thread reserves memory of its own.
            "PXR_WORK_THREAD_LIMIT": "1",
            "MALLOC_ARENA_MAX": "1",
        }
        try:
            done = subprocess.run(
                [sys.executable, "-P", __file__, *limits, *map(str, map(os.path.abspath, paths))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                timeout=_SLOWER * seconds,
                check=False,
            )
            status, said = done.returncode, done.stdout.decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            status, said = -signal.SIGKILL, ""
    if status:
        names = ", ".join(path.name for path in paths[:3])
        raise ValueError(
            f"OpenUSD must get through it in {seconds} s and {memory >> 20} MiB, got "
            f"{_ending(status)} in {names}"
        )
    if said.startswith(_FAILED):
        text = escaped(said.removeprefix(_FAILED), MAX_ERROR)
        raise ValueError(f"OpenUSD must be able to open it, got {text}")
    whole = said == _WHOLE
    if whole and not as_stages:
        _passed.add(key)
    return whole


def _ending(status: int) -> str:
    """How a process ended."""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"status {status}"


def openusd(name: str) -> Any:
    """A module of OpenUSD, whose types no checker knows."""
    return importlib.import_module(f"pxr.{name}")


def _main(seconds: int, memory: int, as_stages: bool, paths: list[str]) -> None:
    """Reads files as the package does; prints an error where a layer does not open."""
    Tf, *_ = [openusd(name) for name in ("Tf", "Usd", "UsdGeom", "UsdPhysics")]  # before the limits
    _set_limits(seconds, memory)
    try:
        as_stages = as_stages or not any([_refers_to_others(path) for path in paths])
    except Exception as error:  # also where memory ends: not to be tried again without a limit
        try:
            text = " ".join(str(error).split())
        except UnicodeDecodeError:  # it holds bytes of the file
            text = type(error).__name__
        sys.stdout.buffer.write((_FAILED + text).encode("utf-8", "replace"))
        return
    if as_stages:
        for path in paths:
            with contextlib.suppress(Tf.ErrorException, RuntimeError):
                _read_stage(path)
        sys.stdout.write(_WHOLE)


def _set_limits(seconds: int, memory: int) -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:  # of Linux alone
        memory += int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _refers_to_others(path: str) -> bool:
    """Whether a layer, or one in the same package, refers to other files."""
    Ar, Sdf = openusd("Ar"), openusd("Sdf")
    names, layers, others = [path], [], False
    for name in names:  # grows
        layers.append(Sdf.Layer.FindOrOpen(name))
        if layers[-1] is None:
            continue
        for dependency in layers[-1].GetCompositionAssetDependencies():
            asset = Sdf.ComputeAssetPathRelativeToLayer(layers[-1], dependency)
            resolved = str(Ar.GetResolver().Resolve(Sdf.Layer.SplitIdentifier(asset)[0]))
            inside = Ar.IsPackageRelativePath(resolved)
            if not inside or Ar.SplitPackageRelativePathOuter(resolved)[0] != path:
                others = True
            elif asset not in names:
                names.append(asset)
    return others


def _read_stage(path: str) -> None:
    """Composes a stage, and reads all values that the reader of its shapes reads."""
    Tf, Usd, UsdGeom, UsdPhysics = map(openusd, ("Tf", "Usd", "UsdGeom", "UsdPhysics"))
    stage = Usd.Stage.Open(path)
    time = Usd.TimeCode.EarliestTime()
    stage.GetCompositionErrors()
    UsdGeom.GetStageMetersPerUnit(stage)
    UsdGeom.GetStageUpAxis(stage)
    frames = UsdGeom.XformCache(time)
    for prim in Usd.PrimRange(stage.GetPseudoRoot(), Usd.TraverseInstanceProxies(Usd.PrimIsActive)):
        with contextlib.suppress(Tf.ErrorException, RuntimeError):
            prim.HasMetadata("clips")
            if prim.HasAPI(UsdPhysics.CollisionAPI):
                UsdPhysics.CollisionAPI(prim).GetCollisionEnabledAttr().Get()
            frames.GetLocalToWorldTransform(prim)
            if prim.IsA(UsdGeom.Imageable):
                UsdGeom.Imageable(prim).ComputeVisibility(time)
                UsdGeom.Imageable(prim).ComputePurpose()
            if prim.IsA(UsdGeom.Gprim):
                for name in ATTRIBUTES:
                    attribute = prim.GetAttribute(name)
                    if attribute:
                        attribute.Get(time)
            if prim.IsA(UsdGeom.PointInstancer):
                instancer = UsdGeom.PointInstancer(prim)
                instancer.GetPrototypesRel().GetForwardedTargets()
                instancer.ComputeInstanceTransformsAtTime(
                    time, time, instancer.ExcludeProtoXform, instancer.IgnoreMask
                )
                instancer.GetIdsAttr().Get(time)
                instancer.GetInvisibleIdsAttr().Get(time)
                prim.GetMetadata("inactiveIds")


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1", sys.argv[4:])

"""USD stages, opened after all layers that they are made of were found to be near and not large."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warp_collision.formats.mesh_files import is_file
from warp_collision.messages import shown

MAX_BYTES = 1 << 30  # of all layers; what is compressed in them is left to OpenUSD's own checks
MAX_LAYERS = 10_000


def open_stage(path: Path, package_dirs: Sequence[Path] = ()) -> Any:
    """The stage of a USD file, with all payloads.

    Args:
        path: the file. Sublayers, references and payloads lie in its folder or below.
        package_dirs: folders in which, or below which, they may lie as well.

    Raises:
        ImportError: usd-core is not installed.
        ValueError: a layer that cannot be opened, lies elsewhere or is no regular file, more than
            10,000 layers, or more than 1 GiB in all.
    """
    Usd = importlib.import_module("pxr.Usd")
    layers = _Layers([path.parent, *package_dirs])
    layers.follow(path)
    stage = Usd.Stage.Open(str(path))
    for layer in stage.GetUsedLayers():  # by another way, as an expression for a path
        if layer.realPath:
            layers.check(layer.realPath)
    failed = stage.GetCompositionErrors()
    if failed:
        raise ValueError(f"all parts of a stage must open, got {failed[0]}")
    return stage


class _Layers:
    """Counts the layers of a stage before it is opened."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [os.path.abspath(folder) for folder in folders]
        self._real = [os.path.realpath(folder) for folder in folders]
        self._seen: set[str] = set()
        self._bytes = 0

    def follow(self, path: Path) -> None:
        """Checks a layer and all that it refers to, each before it is opened."""
        Ar, Sdf = importlib.import_module("pxr.Ar"), importlib.import_module("pxr.Sdf")
        self.check(str(path))
        opened = [Sdf.Layer.FindOrOpen(str(path))]
        known = {str(path)}
        for layer in opened:  # grows; what is in the list stays open
            if layer is None:  # the stage says why
                continue
            for name in layer.GetCompositionAssetDependencies():
                asset = Sdf.ComputeAssetPathRelativeToLayer(layer, name)
                resolved = str(Ar.GetResolver().Resolve(Sdf.Layer.SplitIdentifier(asset)[0]))
                if not resolved or asset in known:  # what is not there is an error if it is used
                    continue
                known.add(asset)
                self.check(resolved)
                if len(known) > MAX_LAYERS:
                    raise ValueError(f"a stage must have at most {MAX_LAYERS} layers, got more")
                opened.append(Sdf.Layer.FindOrOpen(asset))

    def check(self, resolved: str) -> None:
        """Counts the file that a layer is in, once."""
        Ar = importlib.import_module("pxr.Ar")
        if Ar.IsPackageRelativePath(resolved):
            resolved = Ar.SplitPackageRelativePathOuter(resolved)[0]
        name = os.path.abspath(resolved)
        if name in self._seen:
            return
        self._seen.add(name)
        near = any(_is_below(name, folder) for folder in (*self._folders, *self._real))
        if not near:
            raise ValueError(
                "layers must lie in the folder of the file or below, or in package_dirs, got "
                f"{shown(name)}"
            )
        if not is_file(Path(name)):
            raise ValueError(f"a layer must be a regular file, got {shown(name)}")
        self._bytes += os.path.getsize(name)
        if self._bytes > MAX_BYTES:
            raise ValueError(
                f"a file and its layers must have at most {MAX_BYTES} bytes, got {self._bytes}"
            )


def _is_below(path: str, folder: str) -> bool:
    return os.path.commonpath((path, folder)) == folder

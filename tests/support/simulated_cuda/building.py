"""The C++ part of the simulated GPU: compiled once, and kept in the cache of the user."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

import torch

FOLDER = Path(__file__).parent
NAME = "simulated_cuda_device"
FLAGS = ["-std=c++20", "-O1", "-shared", "-fPIC", "-w", f"-DTORCH_EXTENSION_NAME={NAME}"]


def compiler() -> str | None:
    """The C++ compiler."""
    return shutil.which(os.environ.get("CXX", "g++"))


def reason_against() -> str | None:
    """Why it cannot be built here, if so."""
    if compiler() is None:
        return "needs a C++ compiler, g++ or what CXX names"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "needs the headers of Python"
    return None


def cache_folder(key: str) -> Path:
    """Where what was compiled is kept, by all that it depends on."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "warp-collision" / key


@functools.cache
def extension() -> ModuleType:
    """The module; the first time compiling takes half a minute."""
    sources = sorted((*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")))
    versions = (torch.__version__, sysconfig.get_config_var("SOABI"), *FLAGS)
    key = hashlib.sha256("\n".join(map(str, versions)).encode())
    for path in sources:
        key.update(path.read_bytes())
    library = cache_folder(key.hexdigest()[:16]) / f"{NAME}.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    with (library.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of other processes that test at the same time
        if not library.is_file():
            compile_to(library)
    spec = importlib.util.spec_from_file_location(NAME, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_to(library: Path) -> None:
    """Compiles all sources; what is interrupted leaves nothing."""
    root = Path(torch.__file__).parent
    includes = [
        root / "include",
        root / "include/torch/csrc/api/include",
        sysconfig.get_paths()["include"],
    ]
    lib = root / "lib"
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        command = [
            *(str(compiler()), *FLAGS, *(f"-I{path}" for path in includes)),
            *(str(FOLDER / "device.cpp"), "-o", str(made), f"-L{lib}", f"-Wl,-rpath,{lib}"),
            *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"the simulated GPU does not compile:\n{done.stderr[-4000:]}")
        made.replace(library)

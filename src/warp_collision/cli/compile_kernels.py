"""`warp-collision compile`: compiles all kernels, so that no later call waits for it."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import time
from typing import Any

from warp_collision.cli import common
from warp_collision.cli.terminal import print_text

SUMMARY = "compile all kernels now instead of in first calls"
DESCRIPTION = """\
Compiles all kernels into Warp's kernel cache, as for a container's image.
Without it, each function compiles its own kernels in its first call. That takes
some seconds, once for each version of the library and of Warp.
With --arch no GPU is needed: the kernels are those that one of that
architecture takes from the cache.
"""
EPILOG = """\
examples:
  warp-collision compile
  warp-collision compile --device cuda --arch 90    for an H100, on any machine
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda (default: cuda if any)")
    parser.add_argument(
        "--arch", type=int, metavar="N", help="architecture of a GPU that is not here: 90 for sm_90"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    from warp_collision.devices import GPUS

    begin = time.monotonic()
    if options.arch is None:
        target = str(common.start(options.device))
    elif options.device is None or options.device in GPUS:
        common.start("cpu")
        target = f"sm_{options.arch}"
    else:
        raise ValueError(f"--arch is for --device cuda, got {options.device!r}")
    import torch
    import warp as wp

    from warp_collision.launching.ahead_of_time import compile_ahead
    from warp_collision.launching.launch import load_kernels

    chosen = kernels()
    if options.arch is not None or target != "cpu":
        chosen = [kernel for kernel in chosen if not is_for_cpus(kernel)]
    if options.arch is None:
        load_kernels(chosen, torch.device(target))
    else:
        compile_ahead(chosen, options.arch)
    print_text(
        f"{len(chosen)} modules for {target} are in {wp.config.kernel_cache_dir}, "
        f"after {time.monotonic() - begin:.0f} s"
    )
    return 0


def kernels() -> list[Any]:
    """A kernel of each module that has some."""
    import warp as wp

    from warp_collision import kernels as package

    found = []
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        own = (v for v in vars(module).values() if isinstance(v, wp.Kernel))
        found += [kernel for kernel in own if kernel.module.name == module.__name__][:1]
    return found


def is_for_cpus(kernel: Any) -> bool:
    """Whether a kernel is never launched on a GPU."""
    from warp_collision.kernels import lanes

    return kernel.module.name.startswith(f"{lanes.__name__}.")

"""How all kernels are compiled: the options of their modules, and for which device."""

import inspect
from collections.abc import Callable
from typing import Any

import warp as wp

# Warp's own flags for the CPU raise the thresholds of inlining, which makes compiling longer; these
# kernels gain nothing by it.
OPTIONS = {"enable_backward": False, "cpu_compiler_flags": "-march=native"}
# Of kernels with a thread for each configuration or segment, of which there are few: in blocks of
# one warp they are spread over eight times as many multiprocessors as in Warp's blocks of 256.
FEW_THREADS = OPTIONS | {"block_dim": 32}


def resident_warps(count: int, block: int = 256) -> dict[str, Any]:
    """Options of a kernel of which a GPU's multiprocessor is to hold so many warps at once.

    The compiler then spills what does not fit into the registers that leaves. Versions of Warp that
    do not know the option take as many registers as they want.

    Args:
        count: 16, for example, leaves 128 registers to a thread.
        block: threads of a block, as the module's options have it.
    """
    known = "launch_bounds" in inspect.signature(wp.kernel).parameters
    return {"launch_bounds": (block, 32 * count // block)} if known else {}


def compiled_once(function: Callable[..., Any]) -> Any:
    """A device function that is called rather than compiled at each of its places in a kernel.

    What is asked at many places makes a kernel large, and slow to compile; a call makes a kernel
    with a single place slower. Versions of Warp that do not know the option decide for themselves.
    """
    known = "inline" in inspect.signature(wp.func).parameters
    return wp.func(function, inline=False) if known else wp.func(function)


def named(function: Callable[..., Any], kind: str) -> Any:
    """A device function made by a factory; Warp identifies functions by their qualified names."""
    function.__name__ = function.__qualname__ = f"{function.__name__}_{kind}"
    return wp.func(function)


@wp.func_native("""
#if defined(__CUDA_ARCH__) || WP_TILE_BLOCK_DIM > 1
    return false;
#else
    return true;
#endif
""")
def runs_on_cpu() -> bool:
    """Constant in a compiled kernel: what pays on a CPU alone costs a GPU no registers.

    On a CPU a block has one thread. Compiled for more, kernels do what they do on a GPU.
    """
    ...

"""How all kernels are compiled: the options of their modules, and for which device."""

import warp as wp

# Warp's own flags for the CPU raise the thresholds of inlining, which makes compiling longer; these
# kernels gain nothing by it.
OPTIONS = {"enable_backward": False, "cpu_compiler_flags": "-march=native"}
# Of kernels with a thread for each configuration or segment, of which there are few: in blocks of
# one warp they are spread over eight times as many multiprocessors as in Warp's blocks of 256.
FEW_THREADS = OPTIONS | {"block_dim": 32}


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

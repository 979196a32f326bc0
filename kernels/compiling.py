"""How all kernels are compiled: the options of their modules."""

# Warp's own flags for the CPU raise the thresholds of inlining, which makes compiling longer; these
# kernels gain nothing by it.
OPTIONS = {"enable_backward": False, "cpu_compiler_flags": "-march=native"}

"""The command line: `warp-collision demo` and `warp-collision check`."""

"""The command line: `warp-collision demo`, `warp-collision check` and `warp-collision plan`."""

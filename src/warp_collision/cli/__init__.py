"""The command line: `warp-collision demo`, `check`, `plan` and `compile`."""

"""The command line: `warp-collision demo`, `check`, `plan`, `label` and `compile`."""

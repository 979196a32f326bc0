"""Whole planning problems, solved and judged: `make bench-plan`."""

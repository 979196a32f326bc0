"""Queries of scenes and robots: everything between torch and a launch follows from a record.

- `query` defines the record. `sphere_queries` has the records for spheres and points, and
  `evaluate` runs one. `robot_queries` has both for robots.
- `autograd` has the Functions around queries.
- `operator` defines torch operators and the batching rules of `vmap`.
- `dispatch` chooses a direct launch in eager code, or an operator, which supports all transforms.
- `second_derivatives` makes second derivatives raise.
"""

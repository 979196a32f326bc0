"""Queries of scenes and robots: everything between torch and a launch follows from a record.

`sphere_queries` has the records of queries of spheres and points; `query` is what such a record is,
and `evaluate` runs one; `robot_queries` has both for robots. `autograd` has the Functions around
queries, `operator` the definition of torch operators and the batching rules of `vmap`; `dispatch`
chooses between a direct launch in eager code and an operator, which supports all transforms;
`second_derivatives` makes second derivatives raise.
"""

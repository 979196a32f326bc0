"""Obstacles: exact shapes and triangle meshes, read, repaired and put on a device.

`shapes` are exact; `recognition` tells which ones are given, or which mesh is a cuboid. `geometry`
reads, examines and repairs triangles and writes the `mesh_report`, with the help of `topology`,
`orientation` (components inside out) and `slivers` (thin faces).
`mesh_obstacle` puts them on a device with their record; `distance_grid` is the acceleration
structure of a mesh, which makes queries faster and changes no result.
"""

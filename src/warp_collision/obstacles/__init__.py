"""Obstacles: exact shapes and triangle meshes, read, repaired and put on a device.

`geometry` reads, examines and repairs triangles and writes the report, with the help of `topology`;
`mesh_obstacle` puts them on a device with their record; `distance_grid` and `candidate_lists` are
acceleration structures of a mesh, which make queries faster and change no result.
"""

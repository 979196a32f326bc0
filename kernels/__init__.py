"""Warp device code: functions and kernels only, no torch and no allocation.

Read from the bottom up: `transforms` and `hinge` are plain math, `mesh_distance` queries one mesh,
`scene_walk` goes over the obstacles of one env, and `sphere_cost`, `swept_cost` and
`scene_distance` hold the kernels. Functions never index the caller's buffers; kernels load, call
and store.
"""

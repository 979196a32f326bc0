"""What a robot is: links and joints of a URDF, spheres on the links, and its tables for kernels.

`RobotSpheres` is built from a `RobotDescription`, which is read from files, and a `SphereLayout`,
which orders the spheres of links and attached objects for the kernels. Nothing here knows a joint
path's certificates; `checks` are functions of robots and worlds.
"""

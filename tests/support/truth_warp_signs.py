"""The signs that Warp's own queries give, to compare with."""

import numpy as np
import warp as wp

from reference import Array, Indices


@wp.kernel(enable_backward=False)
def _parity(mesh: wp.uint64, points: wp.array[wp.vec3], sign: wp.array[wp.float32]):
    i = wp.tid()
    query = wp.mesh_query_point_sign_parity(mesh, points[i], 1.0e6)
    sign[i] = query.sign


@wp.kernel(enable_backward=False)
def _normal(mesh: wp.uint64, points: wp.array[wp.vec3], sign: wp.array[wp.float32]):
    i = wp.tid()
    query = wp.mesh_query_point_sign_normal(mesh, points[i], 1.0e6)
    sign[i] = query.sign


@wp.kernel(enable_backward=False)
def _ray(mesh: wp.uint64, points: wp.array[wp.vec3], sign: wp.array[wp.float32]):
    i = wp.tid()
    query = wp.mesh_query_point(mesh, points[i], 1.0e6)
    sign[i] = query.sign


@wp.kernel(enable_backward=False)
def _winding(mesh: wp.uint64, points: wp.array[wp.vec3], sign: wp.array[wp.float32]):
    i = wp.tid()
    query = wp.mesh_query_point_sign_winding_number(mesh, points[i], 1.0e6, 2.0, 0.5)
    sign[i] = query.sign


WARP_METHODS = {"parity": _parity, "normal": _normal, "ray": _ray, "winding": _winding}


def warp_inside(method: str, points: Array, vertices: Array, faces: Indices) -> Array:
    """Whether one of Warp's own sign methods calls points (n, 3) inside, on the mesh as it is."""
    mesh = wp.Mesh(
        wp.array(vertices.astype(np.float32), dtype=wp.vec3, device="cpu"),
        wp.array(faces.astype(np.int32).ravel(), dtype=wp.int32, device="cpu"),
        support_winding_number=method == "winding",
    )
    queries = wp.array(points.astype(np.float32), dtype=wp.vec3, device="cpu")
    sign = wp.zeros(len(points), dtype=wp.float32, device="cpu")
    wp.launch(WARP_METHODS[method], len(points), [mesh.id, queries], [sign], device="cpu")
    return sign.numpy() < 0.0

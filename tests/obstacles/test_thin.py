"""Long thin bodies: right, or refused, and never free where they are solid."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import trimesh

from flawed import Mesh, arrays, prepared
from warp_collision import MeshWorld, signed_distance

CPU = torch.device("cpu")


def cylinder(radius: float, length: float, sides: int) -> Mesh:
    return arrays(trimesh.creation.cylinder(radius=radius, height=length, sections=sides))


# Radius of what surely fits inside of each, around the origin [m].
LONG: dict[str, tuple[Callable[[], Mesh], float]] = {
    "pipe": (lambda: cylinder(0.005, 15.0, 1024), 0.0049),
    "cable": (lambda: cylinder(0.001, 24.0, 128), 0.00099),
    "rail": (lambda: cylinder(0.01, 8.0, 4096), 0.0099),
    "wire": (lambda: arrays(trimesh.creation.box((1e-4, 1e-4, 50.0))), 4.9e-5),
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_thin_body_is_solid(name: str) -> None:
    make, radius = LONG[name]
    world = MeshWorld(device=CPU)
    world.add(name, make())
    distance = signed_distance(torch.zeros(1, 1, 3), world).distance.item()
    assert -1.05 * radius < distance < -radius
    report = world.report(name)
    assert report.closed
    assert report.degenerate_faces == 0
    assert f"sliced {report.sliced_faces} long thin faces into " in str(report)


def test_a_needle_that_nothing_covers_is_refused() -> None:
    """A tip of 0.1 mm at 100 m is no rounding; on the seam of two walls it is."""
    needle = np.array([[0.0, 0.0, 0.0], [100.0, 0.0, 0.0], [100.0, 1e-4, 0.0]])
    with pytest.raises(ValueError, match=r"mesh 'mesh' must have faces that .*, 1 are longer"):
        prepared((needle, np.array([[0, 1, 2]])))
    wall = np.array([[0.0, 0.0, -9.0], [100.0, 0.0, -9.0], [0.0, 0.0, 9.0], [100.0, 1e-5, 9.0]])
    vertices = np.concatenate([wall, needle * (1.0, 0.1, 1.0)])
    faces = np.array([[0, 1, 5], [0, 5, 4], [2, 4, 6], [2, 6, 3]])
    geometry = prepared((vertices, np.concatenate([faces, [[4, 5, 6]]])))
    assert geometry.report.degenerate_faces == 1
    assert len(geometry.faces) == 4
    # The same with walls that share no vertices with the needle, and with a gap between them.
    middle = np.array([0.0, 0.0, 9.0])
    apart = np.concatenate([wall, wall[:2] + middle, wall[2:] - middle])
    sheets = np.array([[0, 1, 5], [0, 5, 4], [2, 6, 7], [2, 7, 3]])
    for needle_face in ([8, 9, 10], [9, 10, 8], [10, 9, 8]):
        mesh = np.concatenate([apart, needle * (1.0, 0.1, 1.0)]), [*sheets, needle_face]
        assert len(prepared((mesh[0], np.array(mesh[1]))).faces) == 4
    short = apart * (0.3, 1.0, 1.0)
    mesh = np.concatenate([short, needle * (1.0, 0.1, 1.0)]), np.array([*sheets, [8, 9, 10]])
    with pytest.raises(ValueError, match="no others cover them"):
        prepared(mesh)

"""Scenes of exact shapes, in float64 and as worlds of the library."""

from collections.abc import Sequence

import numpy as np
import torch

from exact_shapes import ExactShape, capsule, cone, cuboid, cylinder, sphere
from reference import Body
from warp_collision import Capsule, Cone, Cuboid, Cylinder, HalfSpace, MeshWorld, Sphere
from warp_collision.obstacles.shapes import Shape


def library_shape(exact: ExactShape) -> Shape:
    """The same as the library takes it."""
    if exact.kind == "cuboid":
        x, y, z = exact.parameters
        return Cuboid((x, y, z))
    if exact.kind == "half_space":
        x, y, z, offset = exact.parameters
        return HalfSpace((x, y, z), offset)
    kinds = {"sphere": Sphere, "capsule": Capsule, "cylinder": Cylinder, "cone": Cone}
    return kinds[exact.kind](*exact.parameters)


def random_scene(rng: np.random.Generator, count: int = 5, padding: float = 0.0) -> list[Body]:
    """Shapes of all kinds in a cube of 2 m, some of them inflated."""
    bodies = []
    for index in range(count):
        a, b, c = rng.uniform(0.05, 0.6, 3)
        made = (
            *(cuboid(a, b, c), sphere(0.5 * a), capsule(0.3 * a, b), cylinder(0.4 * a, b)),
            cone(0.4 * a, b),
        )
        pose = np.concatenate((rng.uniform(-0.7, 0.7, 3), rng.normal(size=4)))
        pose[3:] /= np.linalg.norm(pose[3:])
        inflated = padding * float(rng.random() < 0.6)
        bodies.append(
            Body(made[index % len(made)], pose.astype(np.float32).astype(float), inflated)
        )
    return bodies


def build(scenes: Sequence[Sequence[Body]], device: torch.device, room: int = 4) -> MeshWorld:
    """A world with one env per scene."""
    world = MeshWorld(len(scenes), max(room, *map(len, scenes)), device)
    for env, scene in enumerate(scenes):
        for slot, body in enumerate(scene):
            assert isinstance(body.shape, ExactShape)
            shape = library_shape(body.shape)
            world.add(f"shape_{slot}", shape, body.pose, env, padding=body.padding)
    return world

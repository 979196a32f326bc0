"""Calls of the drop-in Functions with their long argument lists, for the tests."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import compare
import shapes
from reference import Obstacle
from warp_collision import MeshWorld
from warp_collision.warp_primitives import SdfMeshWarpPy, SweptSdfMeshWarpPy

Tensor = torch.Tensor
KINDS = ("rest", "swept")


@dataclass
class Call:
    """The arguments of one of the two Functions; buffers start full of rubbish."""

    kind: str  # "rest" or "swept"
    spheres: Tensor
    world: MeshWorld
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape, device = self.spheres.shape[:-1], self.spheres.device
        spheres = {"device": device, "dtype": torch.float32}
        scalars = {
            name: torch.full((1,), value, **spheres)
            for name, value in (
                ("weight", 1.0),
                ("activation_distance", 0.02),
                ("speed_dt", 0.1),
                ("max_dist", 1.0),
            )
        }
        options = {
            "rest": {"return_loss": False, "compute_esdf": False},
            "swept": {"sweep_steps": 1, "enable_speed_metric": False, "return_loss": False},
        }
        self.arguments: dict[str, Any] = {
            "query_spheres": self.spheres,
            "out_cost": torch.full(shape, 7.0, **spheres),
            "out_grad": torch.full((*shape, 4), 7.0, **spheres),
            "sparsity_idx": torch.full(shape, 7, dtype=torch.uint8, device=device),
            **scalars,
            "mesh_idx": self.world.mesh_ids,
            "mesh_pose_inverse": self.world.mesh_from_world,
            "mesh_enable": self.world.enabled,
            "n_env_mesh": self.world.n_meshes,
            "env_query_idx": None,
            **options[self.kind],
            **self.changes,
        }

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def __call__(self, **changes: Any) -> Tensor:
        """Calls the Function; changes stay."""
        self.arguments.update(changes)
        return FUNCTIONS[self.kind].apply(*(self.arguments[name] for name in NAMES[self.kind]))

    @property
    def buffers(self) -> list[Tensor]:
        """Cost, gradient and sparsity as they are now."""
        return [self.arguments[name] for name in ("out_cost", "out_grad", "sparsity_idx")]


FUNCTIONS = {"rest": SdfMeshWarpPy, "swept": SweptSdfMeshWarpPy}
_BUFFERS = ("query_spheres", "out_cost", "out_grad", "sparsity_idx")
_SCENE = ("mesh_idx", "mesh_pose_inverse", "mesh_enable", "n_env_mesh", "max_dist")
NAMES = {
    "rest": (
        *(*_BUFFERS, "weight", "activation_distance", *_SCENE),
        *("env_query_idx", "return_loss", "compute_esdf"),
    ),
    "swept": (
        *(*_BUFFERS, "weight", "activation_distance", "speed_dt", *_SCENE),
        *("sweep_steps", "enable_speed_metric", "env_query_idx", "return_loss"),
    ),
}


def scenes() -> list[list[Obstacle]]:
    """Two envs; the second mesh of the first one is switched off."""
    rng = np.random.default_rng(60)
    return [
        [
            shapes.placed("box", rng),
            shapes.placed("icosphere", rng, enabled=False),
            shapes.placed("torus", rng),
        ],
        [shapes.placed("icosphere", rng)],
    ]


def paths(device: torch.device, shape: tuple[int, int, int] = (3, 6, 8)) -> Tensor:
    """Moving spheres, some disabled."""
    rng = np.random.default_rng(61)
    return compare.to_device(shapes.random_paths(rng, scenes()[0][0], shape, disabled=0.1), device)

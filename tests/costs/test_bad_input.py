"""Bad input to the functions: an exception that names argument, rule and value."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from reference import IDENTITY
from refusals import forbid_launches, refuses
from warp_collision import (
    MeshWorld,
    any_in_collision,
    clearance,
    in_collision,
    signed_distance,
    sphere_cost,
    swept_in_collision,
    swept_sphere_cost,
)
from worlds import SCENES, build

Tensor = torch.Tensor
Function = Callable[..., Any]
INF, NAN = float("inf"), float("nan")


@pytest.fixture
def world(device: torch.device) -> MeshWorld:
    """The world of `SCENES`: envs of two, three and no meshes."""
    return build(*SCENES, device=device)


@pytest.fixture(autouse=True)
def no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test in which a kernel runs."""
    forbid_launches(monkeypatch)


# -- spheres and points ---------------------------------------------------------------------------

SPHERE_FUNCTIONS: tuple[Function, ...] = (
    sphere_cost,
    swept_sphere_cost,
    clearance,
    in_collision,
    any_in_collision,
    swept_in_collision,
)
COSTS: tuple[Function, ...] = (sphere_cost, swept_sphere_cost)
SHAPE = r"\(batch, horizon, n_spheres, 4\)"
SPHERES: list[tuple[Callable[[Tensor], Any], type[Exception], str]] = [
    (lambda s: s[0], ValueError, rf"shape {SHAPE}, got \(3, 4, 4\)"),
    (lambda s: s[..., :3], ValueError, rf"shape {SHAPE}, got \(2, 3, 4, 3\)"),
    (lambda s: s[None], ValueError, rf"shape {SHAPE}, got \(1, 2, 3, 4, 4\)"),
    (lambda s: s[0, 0, 0, 0], ValueError, rf"shape {SHAPE}, got \(\)"),
    (lambda s: s.long(), TypeError, r"floating point, got torch\.int64"),
    (lambda s: s.bool(), TypeError, r"floating point, got torch\.bool"),
    (lambda s: s.to(torch.complex64), TypeError, r"floating point, got torch\.complex64"),
    (lambda s: s.to("meta"), ValueError, r"on device \S+ like the world, got meta"),
    (lambda s: s.cpu().numpy(), TypeError, rf"torch\.Tensor of shape {SHAPE}, got ndarray"),
    (lambda s: s.tolist(), TypeError, rf"torch\.Tensor of shape {SHAPE}, got list"),
    (lambda s: None, TypeError, rf"torch\.Tensor of shape {SHAPE}, got NoneType"),
]


@pytest.mark.parametrize("function", SPHERE_FUNCTIONS)
@pytest.mark.parametrize(("spoil", "error", "message"), SPHERES)
def test_spheres(
    function: Function,
    spoil: Callable[[Tensor], Any],
    error: type[Exception],
    message: str,
    world: MeshWorld,
) -> None:
    spheres = torch.zeros((2, 3, 4, 4), device=world.device)
    refuses(lambda: function(spoil(spheres), world), error, rf"spheres must .*{message}")


@pytest.mark.parametrize(
    ("points", "error", "message"),
    [
        (torch.zeros(3), ValueError, r"shape \(batch, \.\.\., 3\), got \(3,\)"),
        (torch.zeros(2, 4), ValueError, r"shape \(batch, \.\.\., 3\), got \(2, 4\)"),
        (torch.zeros(2, 3).int(), TypeError, r"floating point, got torch\.int32"),
        (torch.zeros(2, 3, device="meta"), ValueError, "like the world, got meta"),
        ([[0.0, 0.0, 0.0]], TypeError, r"torch\.Tensor of shape \(batch, \.\.\., 3\), got list"),
    ],
)
def test_points(points: Any, error: type[Exception], message: str, world: MeshWorld) -> None:
    if isinstance(points, Tensor) and points.device.type == "cpu":
        points = points.to(world.device)
    refuses(lambda: signed_distance(points, world), error, rf"points must .*{message}")


# -- the other operands ---------------------------------------------------------------------------

SCALARS: list[tuple[str, Any, type[Exception], str]] = [
    ("weight", NAN, ValueError, "weight must be finite, got nan"),
    ("weight", INF, ValueError, "weight must be finite, got inf"),
    ("weight", "1", TypeError, "weight must be a number or a tensor, got str"),
    ("weight", None, TypeError, "weight must be a number or a tensor, got NoneType"),
    ("weight", torch.ones(2), ValueError, r"weight must be a number or have one .* got \(2,\)"),
    ("weight", torch.ones(1, device="meta"), ValueError, "weight must be on device .* got meta"),
    ("activation_distance", -0.01, ValueError, r"must not be negative, got -0\.01"),
    ("activation_distance", NAN, ValueError, "activation_distance must be finite, got nan"),
    ("activation_distance", INF, ValueError, "activation_distance must be finite, got inf"),
    ("activation_distance", [0.1], TypeError, "activation_distance must be a number .* got list"),
    (
        "activation_distance",
        torch.ones(1, requires_grad=True),
        ValueError,
        "activation_distance must not require a gradient",
    ),
]
SWEPT_SCALARS: list[tuple[str, Any, type[Exception], str]] = [
    ("tolerance", 0.0, ValueError, r"tolerance must be positive, got 0\.0"),
    ("tolerance", -1.0, ValueError, r"tolerance must be positive, got -1\.0"),
    ("tolerance", NAN, ValueError, "tolerance must be finite, got nan"),
    ("tolerance", INF, ValueError, "tolerance must be finite, got inf"),
    ("tolerance", torch.ones(3), ValueError, r"tolerance must .* one element, got \(3,\)"),
    ("tolerance", torch.ones(1, requires_grad=True), ValueError, "tolerance must not require"),
    ("dt", 0.0, ValueError, r"dt must be positive, got 0\.0"),
    ("dt", -0.1, ValueError, r"dt must be positive, got -0\.1"),
    ("dt", INF, ValueError, "dt must be finite, got inf"),
    ("dt", None, ValueError, "dt must be given for the speed metric, got None"),
    ("dt", "fast", TypeError, "dt must be a number or a tensor, got str"),
    ("min_speed", 0.0, ValueError, r"min_speed must be positive, got 0\.0"),
    ("min_speed", NAN, ValueError, "min_speed must be finite, got nan"),
    ("min_speed", torch.ones(2), ValueError, r"min_speed must .* one element, got \(2,\)"),
    ("min_speed", None, TypeError, "min_speed must be a number or a tensor, got NoneType"),
]


@pytest.mark.parametrize("function", COSTS)
@pytest.mark.parametrize(("name", "value", "error", "message"), SCALARS)
def test_scalars(
    function: Function,
    name: str,
    value: Any,
    error: type[Exception],
    message: str,
    world: MeshWorld,
) -> None:
    if isinstance(value, Tensor) and value.device.type == "cpu":
        value = value.detach().to(world.device).requires_grad_(value.requires_grad)
    spheres = torch.zeros((2, 3, 4, 4), device=world.device)
    refuses(lambda: function(spheres, world, **{name: value}), error, message)


@pytest.mark.parametrize(("name", "value", "error", "message"), SWEPT_SCALARS)
def test_scalars_of_the_sweep(
    name: str, value: Any, error: type[Exception], message: str, world: MeshWorld
) -> None:
    if isinstance(value, Tensor):
        value = value.detach().to(world.device).requires_grad_(value.requires_grad)
    spheres = torch.zeros((2, 3, 4, 4), device=world.device)
    options = {"dt": 0.1, name: value}
    refuses(lambda: swept_sphere_cost(spheres, world, speed_metric=True, **options), error, message)


ENV_INDEX: list[tuple[Any, type[Exception], str]] = [
    (torch.zeros(3, dtype=torch.int32), ValueError, r"shape \(batch,\) = \(2,\), got \(3,\)"),
    (torch.zeros((), dtype=torch.int32), ValueError, r"shape \(batch,\) = \(2,\), got \(\)"),
    (torch.zeros((2, 1), dtype=torch.int32), ValueError, r"= \(2,\), got \(2, 1\)"),
    (torch.zeros(2), TypeError, r"int32 or int64, got torch\.float32"),
    (torch.zeros(2, dtype=torch.bool), TypeError, r"int32 or int64, got torch\.bool"),
    (torch.zeros(2, dtype=torch.int32, device="meta"), ValueError, "on device .*got meta"),
    ([0, 0], TypeError, r"torch\.Tensor of shape \(2,\), got list"),
    (1, TypeError, r"torch\.Tensor of shape \(2,\), got int"),
]


@pytest.mark.parametrize("function", [*SPHERE_FUNCTIONS, signed_distance])
@pytest.mark.parametrize(("value", "error", "message"), ENV_INDEX)
def test_env_index(
    function: Function, value: Any, error: type[Exception], message: str, world: MeshWorld
) -> None:
    if isinstance(value, Tensor) and value.device.type == "cpu":
        value = value.to(world.device)
    operand = torch.zeros((2, 3, 4, 3 if function is signed_distance else 4), device=world.device)
    refuses(
        lambda: function(operand, world, env_index=value), error, rf"env_index must .*{message}"
    )


POSES: list[tuple[Any, type[Exception], str]] = [
    (torch.zeros(2, 7), ValueError, r"shape \(3, 4, 7\), .*, got \(2, 7\)"),
    (torch.zeros(3, 4, 8), ValueError, r"shape \(3, 4, 7\), .*, got \(3, 4, 8\)"),
    (torch.zeros(3, 4, 7).int(), TypeError, r"floating point, got torch\.int32"),
    (torch.zeros(3, 4, 7, device="meta"), ValueError, "on device .*got meta"),
    ([[IDENTITY]], TypeError, r"torch\.Tensor of shape \(3, 4, 7\), got list"),
]


@pytest.mark.parametrize("function", [sphere_cost, swept_sphere_cost, clearance, signed_distance])
@pytest.mark.parametrize(("value", "error", "message"), POSES)
def test_poses_operand(
    function: Function, value: Any, error: type[Exception], message: str, world: MeshWorld
) -> None:
    if isinstance(value, Tensor) and value.device.type == "cpu":
        value = value.to(world.device)
    operand = torch.zeros((2, 3, 4, 3 if function is signed_distance else 4), device=world.device)
    refuses(lambda: function(operand, world, poses=value), error, rf"poses must .*{message}")

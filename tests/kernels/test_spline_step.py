"""Newton steps of splines: against derivatives by autograd and a dense solver."""

import pytest
import torch

from warp_collision.devices import CPU
from warp_collision.kernels.lanes.spline_step import FIXED, INSIDE, LANES, N_ROWS, PUSH, spline_step
from warp_collision.launching.launch import launch

BATCH, N, JOINTS, SLACK = 2, 14, 10, 0.05
BLOCKS = -(-JOINTS // LANES)


def scene(seed: int):
    """Random splines with what holds them; limits of the motion and of joint values."""
    random = torch.Generator().manual_seed(seed)
    points = torch.rand((BATCH, N, JOINTS), generator=random, dtype=torch.float64) - 0.5
    points = points.cumsum(1)
    points[:, :FIXED], points[:, -FIXED:] = points[:, :1], points[:, -1:]
    limits = 0.5 + torch.rand((3, JOINTS), generator=random, dtype=torch.float64)
    if seed % 3 == 0:
        limits[2] = torch.inf
    weight = 10.0 ** torch.randint(0, 5, (BATCH, N), generator=random).double()
    gradient = 0.1 * torch.randn((BATCH, N - 2, JOINTS), generator=random)
    low, high = points.amin(1) - 0.2, points.amax(1) + 0.1
    if seed % 2 == 0:
        high[:, 0] = torch.inf
    bounds = torch.stack((low, high), dim=2)
    return points, limits, weight, gradient, bounds


def differences(points: torch.Tensor) -> list[torch.Tensor]:
    return [points.diff(n=order, dim=0) for order in (1, 2, 3)]


def shortest_span(points: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
    parts = zip(differences(points), limits, strict=True)
    return torch.stack(
        [(part.abs() / limit).amax() ** (1.0 / k) for k, (part, limit) in enumerate(parts, 1)]
    ).amax()


def reference(points, limits, weight, gradient, bounds, n_steps: int) -> torch.Tensor:
    """The same steps of one spline by dense Hessians."""
    points, span = points.clone(), shortest_span(points, limits)
    scaled_gradient = float(PUSH) * gradient.double()
    inner = slice(FIXED, N - FIXED)
    for _ in range(n_steps):
        span = span * (1.0 + SLACK)
        most = [limit * span**k for k, limit in enumerate(limits, 1)]

        def barrier(free: torch.Tensor, now=points, most=most) -> torch.Tensor:
            all_points = torch.cat((now[:FIXED], free.view(-1, JOINTS), now[-FIXED:]))
            total = torch.zeros((), dtype=torch.float64)
            for part, limit in zip(differences(all_points), most, strict=True):
                total = total - torch.log1p(-((part / limit) ** 2)).sum()
            for j in range(JOINTS):
                low, high = bounds[j]
                total = total - (all_points[inner, j] - low).log().sum()
                if high.isfinite():
                    total = total - (high - all_points[inner, j]).log().sum()
            knots = (all_points[:-2] + 4.0 * all_points[1:-1] + all_points[2:]) / 6.0
            return total + (knots * scaled_gradient).sum()

        free = points[inner].flatten()
        slope = torch.autograd.functional.jacobian(barrier, free)
        hessian = torch.autograd.functional.hessian(barrier, free)
        hessian = hessian + torch.diag(weight[inner].repeat_interleave(JOINTS))
        move = torch.zeros_like(points)
        move[inner] = -torch.linalg.solve(hessian, slope).view(-1, JOINTS)
        # The largest share of the step that stays within all limits, by bisection.
        room, end = 0.0, 1e6
        for _ in range(200):
            share = 0.5 * (room + end)
            at = points + share * move
            kept = all(
                bool((part.abs() <= limit).all())
                for part, limit in zip(differences(at), most, strict=True)
            ) and bool(((at[inner] >= bounds[:, 0]) & (at[inner] <= bounds[:, 1])).all())
            room, end = (share, end) if kept else (room, share)
        points = points + min(1.0, float(INSIDE) * room) * move
        span = shortest_span(points, limits)
    return points


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_steps", [1, 2])
def test_steps_are_those_of_a_dense_solver(seed, n_steps):
    points, limits, weight, gradient, bounds = scene(seed)
    span = torch.stack([shortest_span(row, limits) for row in points])
    moved = torch.empty_like(points)
    launch(
        spline_step,
        (BATCH,),
        *(points, span, torch.full_like(span, SLACK), weight, gradient, 1.0 / limits, bounds),
        *(torch.tensor([n_steps], dtype=torch.int32),),
        *(points.new_empty((BATCH * BLOCKS, N_ROWS, N, LANES)), moved),
        device=CPU,
    )
    assert (moved[:, :FIXED] == points[:, :FIXED]).all()
    assert (moved[:, -FIXED:] == points[:, -FIXED:]).all()
    assert (moved != points).any(2).sum() == BATCH * (N - 2 * FIXED)
    for row in range(BATCH):
        operands = points[row], limits, weight[row], gradient[row], bounds[row]
        expected = reference(*operands, n_steps)
        assert (moved[row] - expected).abs().max() < 1e-9


def test_costs_that_are_not_finite_push_nothing():
    points, limits, weight, gradient, bounds = scene(1)
    found = []
    for filled in (torch.nan, 0.0):
        gradient[:] = filled
        span = torch.stack([shortest_span(row, limits) for row in points])
        moved = torch.empty_like(points)
        launch(
            spline_step,
            (BATCH,),
            *(points, span, torch.full_like(span, SLACK), weight, gradient, 1.0 / limits, bounds),
            *(torch.tensor([2], dtype=torch.int32),),
            *(points.new_empty((BATCH * BLOCKS, N_ROWS, N, LANES)), moved),
            device=CPU,
        )
        found.append(moved)
    assert torch.equal(*found)

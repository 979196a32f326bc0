"""Other people's planners and optimizers with a collision cost in their loops, as they are."""

import numpy as np
import pytest
import torch
import trimesh
from torch import func

from warp_collision import MeshWorld, clearance, sphere_cost, swept_sphere_cost

Tensor = torch.Tensor
RADIUS = 0.05
START, GOAL = (-0.5, 0.03, 0.0), (0.5, 0.0, 0.02)


@pytest.fixture
def world(device: torch.device) -> MeshWorld:
    """A block and a post between start and goal."""
    world = MeshWorld(device=device)
    world.add("block", trimesh.creation.box((0.3, 0.4, 0.4)), (0.05, -0.05, 0.0, 1, 0, 0, 0))
    world.add("post", trimesh.creation.cylinder(0.04, 0.8), (-0.2, 0.2, 0.0, 1, 0, 0, 0))
    return world


def spheres_of(centers: Tensor) -> Tensor:
    """Spheres (batch, horizon, 1, 4) of one sphere at centers (batch, horizon, 3)."""
    radius = torch.full_like(centers[..., :1], RADIUS)
    return torch.cat((centers, radius), dim=-1).unsqueeze(2)


def bent_path(device: torch.device, count: int = 12) -> Tensor:
    """Waypoints (count, 3) from start to goal, through the block and a bit off the middle."""
    share = torch.linspace(0.0, 1.0, count, device=device)[:, None]
    ends = torch.tensor([START, GOAL], device=device)
    line = ends[0] + share * (ends[1] - ends[0])
    return line + torch.tensor([0.0, 0.02, 0.1], device=device) * torch.sin(torch.pi * share)


def objective(path: Tensor, world: MeshWorld) -> Tensor:
    """Collision and smoothness of waypoints (n, 3)."""
    collision = swept_sphere_cost(spheres_of(path[None]), world, weight=50.0).sum()
    return collision + 5.0 * (path[1:] - path[:-1]).square().sum()


def assert_free(path: Tensor, world: MeshWorld) -> None:
    """No place of the motion touches anything."""
    spheres = spheres_of(path[None].float())
    assert not swept_sphere_cost(spheres, world, activation_distance=0.0).any()
    assert (clearance(spheres, world).clearance > 0.0).all()


def test_mppi(world: MeshWorld, device: torch.device) -> None:
    """pytorch-mppi: a cost under batched rollouts, (samples, 3) states at a time."""
    reason = "needs the extra 'clients'"
    mppi = pytest.importorskip("pytorch_mppi", reason=reason)
    torch.manual_seed(0)
    goal = torch.tensor(GOAL, device=device)

    def running_cost(state: Tensor, action: Tensor) -> Tensor:
        collision = sphere_cost(spheres_of(state[None]), world, activation_distance=0.05)
        return 200.0 * collision.sum((0, 2)) + (state - goal).square().sum(-1)

    controller = mppi.MPPI(
        lambda state, action: state + action,
        running_cost,
        3,
        noise_sigma=2e-3 * torch.eye(3, device=device),
        num_samples=200,
        horizon=12,
        device=device,
        lambda_=0.02,
        u_min=torch.full((3,), -0.08, device=device),
        u_max=torch.full((3,), 0.08, device=device),
    )
    state = torch.tensor(START, device=device)
    visited = [state]
    for _ in range(40):
        state = state + controller.command(state)
        visited.append(state)
    path = torch.stack(visited)
    assert (clearance(spheres_of(path[None]), world).clearance > 0.0).all()
    assert (state - goal).norm() < 0.15


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(search: str | None, world: MeshWorld, device: torch.device) -> None:
    path = bent_path(device)
    assert objective(path, world) > 10.0
    inner = path[1:-1].clone().requires_grad_(True)

    def whole() -> Tensor:
        return torch.cat((path[:1], inner, path[-1:]))

    optimizer = torch.optim.LBFGS([inner], lr=1.0 if search else 0.02, line_search_fn=search)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = objective(whole(), world)
        loss.backward()
        return loss

    for _ in range(10 if search else 40):
        optimizer.step(closure)
    assert_free(whole().detach(), world)


def test_scipy(world: MeshWorld, device: torch.device) -> None:
    """Its numbers are NumPy's in double precision, flat."""
    optimize = pytest.importorskip("scipy.optimize", reason="needs the extra 'clients'")
    path = bent_path(device).double()

    def whole(flat: np.ndarray) -> Tensor:
        inner = torch.from_numpy(flat).reshape(-1, 3).to(device)
        return torch.cat((path[:1], inner, path[-1:]))

    def value_and_jac(flat: np.ndarray) -> tuple[float, np.ndarray]:
        waypoints = whole(flat).requires_grad_(True)
        loss = objective(waypoints, world)
        (gradient,) = torch.autograd.grad(loss, waypoints)
        assert gradient.dtype is torch.float64
        return loss.item(), gradient[1:-1].flatten().cpu().numpy()

    begin = path[1:-1].flatten().cpu().numpy()
    found = optimize.minimize(value_and_jac, begin, jac=True, method="L-BFGS-B")
    assert found.fun < 0.2 * value_and_jac(begin)[0]
    assert_free(whole(found.x), world)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_vmap_in_a_compiled_step(world: MeshWorld, device: torch.device) -> None:
    """A step of gradient descent on several paths at once, in one graph."""
    paths = torch.stack([bent_path(device), bent_path(device).flip(0) + 0.01])
    fixed = torch.ones((12, 1), device=device)
    fixed[0] = fixed[-1] = 0.0

    def step(paths: Tensor) -> Tensor:
        gradient = func.vmap(func.grad(lambda path: objective(path, world)))(paths)
        return paths - 2e-3 * fixed * gradient

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(paths), step(paths), rtol=1e-5, atol=1e-6)
    for _ in range(300):
        paths = compiled(paths)
    for path in paths:
        assert_free(path, world)

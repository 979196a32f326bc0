"""The parts of the planner alone: descent, terms, shortcuts, resampling."""

import itertools
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from warp_collision import Cuboid, Cylinder, MeshWorld
from warp_collision.examples import load_panda
from warp_collision.planning import CollisionTerm, JointLimitsTerm, SmoothnessTerm
from warp_collision.planning.descent import PathDescent, straight_lines
from warp_collision.planning.objective import CollisionGradient, Objective
from warp_collision.planning.search import BestPaths
from warp_collision.planning.shortcuts import (
    pad_start,
    path_length,
    resample,
    shorten,
    shortest_of_each,
)


def random_paths(batch: int, horizon: int, n_joints: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(batch, horizon, n_joints, generator=torch.Generator().manual_seed(seed))


def descended(paths: torch.Tensor, limits: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Steps of Adam in float64, in the coordinates in which smoothness is half the squared norm."""
    paths, inner = paths.double().clone(), paths.shape[1] - 2
    matrix = torch.autograd.functional.hessian(
        lambda x: SmoothnessTerm()(torch.nn.functional.pad(x, (1, 1))[None, :, None]).sum(),
        torch.zeros(inner, dtype=torch.float64),
    )
    smooth = torch.linalg.inv(torch.linalg.cholesky(matrix)).mT
    mean, square = torch.zeros(2, *paths[:, 1:-1].shape, dtype=torch.float64)
    limited = JointLimitsTerm(limits.double())
    for step, gradient in enumerate(gradients.double(), start=1):
        at = paths.clone().requires_grad_()
        (SmoothnessTerm()(at).sum() + limited(at).sum()).backward()
        by_coordinate = smooth.mT @ (gradient + at.grad)[:, 1:-1]
        mean = 0.9 * mean + 0.1 * by_coordinate
        square = 0.99 * square + 0.01 * by_coordinate.square()
        estimate = mean / (1.0 - 0.9**step), (square / (1.0 - 0.99**step)).sqrt()
        paths[:, 1:-1] -= smooth @ (0.03 * estimate[0] / estimate[1])
    return paths


def test_a_descent_is_that_of_adam_in_the_metric_of_smoothness(device):
    paths, gradients = random_paths(4, 9, 3), 5.0 * random_paths(6 * 4, 9, 3, 1).view(6, 4, 9, 3)
    limits = torch.tensor([[-0.3, 0.2], [-1.0, 0.1], [-torch.inf, torch.inf]])
    descent = PathDescent(paths.to(device), limits.to(device))
    for gradient in gradients:
        descent.step(gradient.to(device))
    expected = descended(paths, limits, gradients).float()
    torch.testing.assert_close(descent.paths.cpu(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(descent.paths[:, [0, -1]].cpu(), paths[:, [0, -1]])
    assert descent.steps.tolist() == [6] * 4


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_path_stays_where_a_number_is_not_finite(device, value):
    paths = random_paths(4, 5, 2).to(device)
    gradient, cost = torch.zeros_like(paths), torch.zeros(4, device=device)
    gradient[1, 0, 1] = gradient[2, 3, 0] = cost[3] = value
    descent = PathDescent(paths, torch.tensor([[-9.0, 9.0]] * 2, device=device))
    descent.step(gradient, cost)
    assert descent.steps.tolist() == [1, 0, 0, 0]
    assert torch.equal(descent.paths[1:], paths[1:])
    assert not torch.equal(descent.paths[0], paths[0])


def test_a_step_goes_down_and_keeps_the_ends():
    paths = random_paths(5, 12, 2)
    limits = torch.tensor([[-1.0, 1.0]] * 2)
    objective = Objective([lambda joints: (joints - 3.0).square().sum(-1)], None, limits)
    problem = torch.arange(5)
    descent = PathDescent(paths, limits)
    derivative = objective.derivative(descent.paths, problem)
    before = objective(paths, problem)
    for _ in range(5):
        descent.step(*derivative())
    after = descent.paths
    assert (objective(after, problem) < before).all()
    assert torch.equal(after[:, 0], paths[:, 0])
    assert torch.equal(after[:, -1], paths[:, -1])


@pytest.mark.parametrize("pairs", [True, False], ids=["with itself", "world alone"])
def test_values_and_derivatives_of_collisions_are_those_of_autograd(device, pairs):
    """In envs, at bases, with what is attached in one env, a buffer, and an allowed contact."""
    robot, world = load_panda(), MeshWorld(2, device=device)
    robot.attach("tool", "panda_hand", [[0.0, 0.0, 0.12, 0.03]], envs=[1])
    for env, x in enumerate((0.4, 0.5)):
        world.add("block", Cuboid((0.3, 0.3, 0.6)), (x, 0.1, 0.4, 0.9, 0.1, 0.3, 0.2), env=env)
    checked = replace(robot.default_pairs, buffers=np.full(robot.n_spheres, 0.02, dtype=np.float32))
    term = CollisionTerm(
        robot,
        world,
        pairs=checked,
        self_weight=3.0 if pairs else 0.0,
        ignore=[("panda_link7", "block")],
        env_index=torch.tensor([1, 0], dtype=torch.int32, device=device),
        base_pose=torch.tensor([[0.05, 0, 0, 1, 0, 0, 0], [0, 0.1, 0, 1, 0, 0, 0.1]]).to(device),
    )
    joints = torch.tensor([0.2, 1.2, 0.0, -2.6, 0.0, 0.6, 0.8]) + 0.3 * random_paths(3, 6, 7)
    joints = joints.to(device).requires_grad_()
    problem = torch.tensor([0, 1, 1], device=device)
    cost = term(joints, problem=problem)
    assert (cost > 0.0).any(1).all()
    cost.sum().backward()
    direct = CollisionGradient(term, joints.detach(), problem)
    torch.testing.assert_close(direct(), joints.grad, rtol=1e-5, atol=1e-4)
    assert torch.equal(direct.cost(), cost)


@pytest.mark.parametrize(
    "term",
    [
        SmoothnessTerm(2.0),
        JointLimitsTerm(torch.tensor([[-0.3, 0.2], [-1.0, 0.1]]), weight=3.0, buffer=0.05),
    ],
    ids=lambda term: type(term).__name__,
)
def test_gradients_of_terms_match_finite_differences(term):
    term = term if isinstance(term, SmoothnessTerm) else _in_double(term)
    paths = random_paths(2, 4, 2).double().requires_grad_()
    assert torch.autograd.gradcheck(term, (paths,))


def _in_double(term: JointLimitsTerm) -> JointLimitsTerm:
    term.lower, term.upper = term.lower.double(), term.upper.double()
    return term


def nan_at(joints: torch.Tensor) -> torch.Tensor:
    cost = joints.square().sum(-1)
    bad = torch.zeros_like(cost)
    bad[1, 3] = torch.nan
    return cost + bad


def infinite(joints: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(len(joints)) == 2, torch.inf, joints.sum((1, 2)))


def enormous(joints: torch.Tensor) -> torch.Tensor:  # finite at each waypoint
    return torch.full(joints.shape[:2], 3e38) * joints[..., 0].square().clamp(min=1.0, max=1.1)


def distance_moved(joints: torch.Tensor) -> torch.Tensor:  # at rest without a derivative
    moved = (joints - joints[:, :1]).square().sum(-1).sqrt()
    return moved.nan_to_num()


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (nan_at, r"must be finite, got nan of nan_at in batch row 5, waypoint 3, iteration 7$"),
        (infinite, r"^terms must be finite, got inf of infinite in batch row 0, iteration 7$"),
        (enormous, "got inf of the sum of all terms in batch row 4, iteration 7"),
        (distance_moved, "got nan of the derivative of distance_moved in batch row 4, waypoint 0"),
    ],
)
def test_terms_that_are_not_finite_are_named(term, message):
    objective = Objective([SmoothnessTerm(), term])
    with pytest.raises(ValueError, match=message):
        objective.require_finite(random_paths(3, 5, 2), torch.tensor([4, 5, 0]), "iteration 7")


def test_the_collision_term_is_of_the_env_of_its_problem():
    panda, world = load_panda(), MeshWorld(2, device="cpu")
    world.add("post", Cylinder(0.1, 1.0), (0.5, 0.0, 0.5, 1, 0, 0, 0), env=1)
    index = torch.tensor([1, 0], dtype=torch.int32)
    term = CollisionTerm(panda, world, self_weight=0.0, env_index=index)
    path = torch.tensor([[0.0, 0.4, 0.0, -1.6, 0.0, 2.0, 0.8]]).expand(3, 4, 7)
    cost = Objective([term])(path, torch.tensor([0, 1, 0]))
    assert cost[0] == cost[2] > 0.0
    assert cost[1] == 0.0


def beside_disc(motions: torch.Tensor, radius: float) -> torch.Tensor:
    """Whether planar paths (n, horizon, 2) stay out of a disc around (0.1, -0.2)."""
    begin, step = motions[:, :-1], motions[:, 1:] - motions[:, :-1]
    middle = motions.new_tensor([0.1, -0.2])
    offset = middle - begin
    s = (offset * step).sum(-1) / step.square().sum(-1).clamp(min=1e-12)
    nearest = begin + s.clamp(0.0, 1.0)[..., None] * step
    return ((nearest - middle).norm(dim=-1) > radius).all(1)


def test_shortcuts_around_a_disc_come_near_the_shortest_way(device):
    """The shortest way between opposite points around a disc has two tangents and an arc."""
    angle = torch.linspace(torch.pi, 0.0, 32)
    wide = torch.stack((0.1 + 3.0 * angle.cos(), -0.2 + 2.5 * angle.sin()), dim=1)
    straight = torch.tensor([[-2.0, 2.0], [2.0, 2.0]])
    free = straight_lines(straight[:1], straight[1:], 32)[0]
    paths = torch.stack((wide, free))
    assert beside_disc(paths, 1.0).all()
    seen = []

    def hits(motions, problem, n_segments):
        return ~beside_disc(motions, 1.0)[:, None]

    def near(motions, problem, n_segments):
        seen.append(problem[n_segments == 1])
        return ~beside_disc(motions, 1.1)[:, None] | (n_segments == 0)[:, None]

    options = {"rounds": 8, "n_nodes": 40, "numbers": random.Random(0)}
    shorter = shorten(paths.to(device), torch.tensor([3, 5], device=device), hits, near, **options)
    shorter = shorter.cpu()
    assert shorter.shape == paths.shape
    assert torch.equal(shorter[:, 0], paths[:, 0])
    assert torch.equal(shorter[:, -1], paths[:, -1])
    assert beside_disc(shorter, 1.0).all()
    start = torch.tensor([3.0])
    tangent, reach = (start**2 - 1.1**2).sqrt(), torch.acos(1.1 / start)
    best = 2.0 * tangent + 1.1 * (torch.pi - 2.0 * reach)
    lengths = path_length(shorter)
    assert best.item() <= lengths[0].item() < 1.03 * best.item()
    assert lengths[1].item() == pytest.approx(4.0, rel=1e-6)
    assert {3} <= set(torch.cat(seen).tolist()) <= {3, 5}


@pytest.mark.parametrize("refused", [False, True])
def test_shortcuts_leave_out_a_last_round_that_cannot_gain(refused):
    """It has the vertices of the round before alone, unless that one is refused."""
    angle = torch.linspace(torch.pi, 0.0, 5)
    corners = torch.stack((0.1 + 3.0 * angle.cos(), -0.2 + 2.5 * angle.sin()), dim=1)
    asked, problem = [], torch.zeros(1, dtype=torch.int64)

    def hits(motions, problem, n_segments):
        hit = ~beside_disc(motions, 1.0)[:, None]
        return hit | (refused and len(asked) == 1)

    def near(motions, problem, n_segments):
        asked.append(int(n_segments.sum()))
        return hits(motions, problem, n_segments) | (n_segments == 0)[:, None]

    options = {"n_nodes": 20, "numbers": random.Random(0)}
    paths = pad_start(corners[None], 9)
    shorter = shorten(paths, problem, hits, near, rounds=2, **options)
    assert len(asked) == (2 if refused else 1)
    assert not torch.equal(shorter, paths)
    assert torch.equal(shorten(shorter, problem, hits, near, rounds=1, **options), shorter)
    assert len(asked) == (3 if refused else 2)


def test_shortcuts_return_what_was_free_where_nothing_is(device):
    paths = random_paths(3, 6, 2).to(device)
    every = lambda motions, *_: torch.ones_like(motions[:, 1:, 0], dtype=torch.bool)  # noqa: E731
    options = {"rounds": 3, "n_nodes": 12, "numbers": random.Random(0)}
    problem = torch.zeros(3, dtype=torch.int64, device=device)
    assert torch.equal(shorten(paths, problem, every, every, **options), paths)


@pytest.mark.parametrize("by_time", [False, True])
def test_shortcuts_take_the_cheapest_way_through_the_vertices(by_time, device):
    """Without points between them, compared with all ways there are, of random free segments."""
    n = 7
    paths = random_paths(20, n, 3)
    paths[4, :3] = paths[4, :1]  # five vertices
    pairs = list(itertools.combinations(range(n), 2))
    generator = torch.Generator().manual_seed(0)
    free = torch.rand(len(paths), n, n, generator=generator) < 0.4
    lookup = {
        (tuple(paths[row, i].tolist()), tuple(paths[row, j].tolist())): bool(free[row, i, j])
        for row in range(len(paths))
        for i, j in pairs
    }
    every = torch.arange(len(paths), device=device)

    def near(motions, problem, n_segments):
        ends = [tuple(tuple(end) for end in motion) for motion in motions.tolist()]
        is_asked = n_segments.tolist()
        hit = [not (asked and lookup[pair]) for asked, pair in zip(is_asked, ends, strict=True)]
        return torch.tensor(hit, device=device)[:, None]

    def nothing(motions, problem, n_segments):
        return torch.zeros_like(motions[:, 1:, 0], dtype=torch.bool)

    pace = torch.tensor([0.3, 2.0, 0.9])[: 3 if by_time else 0]
    options = {"rounds": 1, "n_nodes": 7, "numbers": random.Random(0), "pace": pace.to(device)}
    found = shorten(paths.to(device), every, nothing, near, **options).cpu()
    assert not torch.equal(found, paths)

    def cost_of(way: torch.Tensor) -> float:
        if not by_time:
            return path_length(way[None]).item()
        seconds = pace * (way[1:] - way[:-1]).abs()
        return (seconds.amax(-1) + 0.5 * seconds.norm(dim=-1)).sum().item()

    for row, path in enumerate(paths):
        first = 2 if row == 4 else 0
        per_segment = 1e-4 * path_length(path[None]).item()
        ways = [
            (first, *inner, n - 1)
            for count in range(n - 1 - first)
            for inner in itertools.combinations(range(first + 1, n - 1), count)
        ]
        costs = {
            way: cost_of(path[list(way)]) + per_segment * (len(way) - 1)
            for way in ways
            if all(j == i + 1 or free[row, i, j] for i, j in itertools.pairwise(way))
        }
        cheapest = min(costs, key=costs.__getitem__)
        expected = pad_start(path[list(cheapest)][None], n)[0]
        assert torch.equal(found[row], expected), row


def test_points_on_paths_are_one_in_each_part_of_the_length(device):
    corners = pad_start(random_paths(3, 5, 2), 9).to(device)
    resting = torch.ones(1, 9, 2, device=device)
    paths, seen = torch.cat((corners, resting)), []

    def hits(motions, problem, n_segments):
        return torch.zeros_like(motions[:, 1:, 0], dtype=torch.bool)

    def near(motions, problem, n_segments):
        begins = torch.where((n_segments == 1)[:, None], motions[:, 0], torch.nan)
        seen.append(begins.unflatten(0, (4, -1))[:, -19:].cpu())  # of motions to the last node
        return torch.ones_like(motions[:, 1:, 0], dtype=torch.bool)

    options = {"rounds": 2, "n_nodes": 20, "numbers": random.Random(1)}
    problem = torch.zeros(4, dtype=torch.int64, device=device)
    shorten(paths, problem, hits, near, **options)
    nodes = seen[0]
    for row, path in enumerate(corners[:, 4:].cpu()):
        length = path_length(path[None]).item()
        on_path = [node for node in nodes[row] if not node.isnan().any()]
        begins = path[:-1].double()
        steps = path[1:].double() - begins
        before = torch.cat((torch.zeros(1), steps.norm(dim=1).cumsum(0)))
        at = []
        for node in on_path:
            s = ((node - begins) * steps).sum(1) / steps.square().sum(1)
            away = (begins + s.clamp(0, 1)[:, None] * steps - node).norm(dim=1)
            assert away.min() < 1e-5
            k = int(away.argmin())
            at.append((before[k] + s[k].clamp(0, 1) * steps[k].norm()).item())
        vertices = [v for v in before.tolist() if any(abs(v - a) < 1e-4 for a in at)]
        points = sorted(a for a in at if all(abs(v - a) > 1e-4 for v in before.tolist()))
        assert len(vertices) >= 3
        parts = [int(15 * a / length) for a in points]
        assert len(set(parts)) == len(parts)


def test_resampling_keeps_the_polyline(device):
    corners = pad_start(random_paths(1, 5, 3), 7)
    other = random_paths(1, 7, 3, seed=1)
    resting = torch.ones(1, 7, 3)
    paths = torch.cat((corners, other, resting))
    fine = resample(paths.to(device), 20).cpu()
    assert fine.shape == (3, 20, 3)
    torch.testing.assert_close(path_length(fine), path_length(paths))
    for row in range(3):
        for vertex in paths[row]:
            assert (fine[row] == vertex).all(-1).any()
    steps = (fine[0, 1:] - fine[0, :-1]).norm(dim=-1)
    assert steps.max() < 2.5 * path_length(paths)[0] / 19
    assert torch.equal(resample(other.to(device), 7).cpu(), other)
    coarse = resample(paths.to(device), 6).cpu()
    assert coarse.isfinite().all(-1).all(-1).tolist() == [True, False, True]


def test_the_best_of_several_paths_of_a_problem_is_kept(device):
    """Paths in a plane, of which those above y = 1 are not proven, and are near above y = 0.5."""
    start = torch.tensor([[0.0, 0.0]] * 4, device=device)
    problems = SimpleNamespace(
        pace=torch.empty(0, device=device),
        start=start,
        goal=start + 1.0,
        near=lambda paths, _: (paths[:, 1:] > 0.5).any(-1),
        hits_where_near=lambda paths, _, near: ~near | (paths[:, 1:] > 1.0).any(-1),
    )
    best = BestPaths(problems, None, 3, None)

    def offer(*given):
        """Paths through (0.5, y) with an end at (1, 0), for problems."""
        heights = [y for _, y in given]
        paths = torch.tensor([[[0.0, 0.0], [0.3, y], [0.45, 0.0]] for y in heights], device=device)
        best.offer(paths, torch.tensor([problem for problem, _ in given], device=device))
        return best.joints[:, 1, 1].tolist()

    best.rounds = 3
    straight = 0.5
    assert offer((2, 0.4), (0, 1.5), (2, 0.25), (2, 0.375)) == [straight, straight, 0.25, straight]
    assert best.free.tolist() == [False, False, True, False]
    best.rounds = 5
    assert offer((0, 0.75), (2, 0.3), (1, 0.125), (1, -0.125)) == [0.75, 0.125, 0.25, straight]
    assert best.iterations.tolist() == [5, 5, 3, 0]
    assert best.far.tolist() == [False, True, True, False]
    length = (0.3**2 + 0.75**2) ** 0.5
    assert best.cost[0].item() == pytest.approx(2 * length + (0.15**2 + 0.75**2) ** 0.5, rel=1e-6)
    assert best.cost[3].item() == torch.inf


def test_theshortest_of_each_problem():
    length = torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0, 0.5])
    problem = torch.tensor([1, 1, 1, 0, 1, 2])
    assert sorted(shortest_of_each(length, problem, 2).tolist()) == [1, 2, 3, 5]


def test_a_collision_term_has_bases_by_problem_or_one_for_all(device):
    robot, world = load_panda(), MeshWorld(device=device)
    world.add("block", Cuboid((0.3, 0.3, 0.3)), (0.5, 0.0, 0.5, 0.9, 0.1, 0.3, 0.2))
    joints = torch.tensor([[[0, 0.4, 0, -1.6, 0, 2, 0.8]] * 2] * 7, device=device)
    problem = torch.tensor([0, 1, 1, 0, 1, 0, 1], device=device)
    away = torch.tensor([0.05, -0.03, 0.02, 0.99, 0.02, 0.05, -0.03], device=device)
    matrix = torch.eye(4, device=device)
    expected = CollisionTerm(robot, world, self_weight=0.0, base_pose=away)(joints)
    assert (expected > 0.0).all()
    torch.testing.assert_close(
        CollisionTerm(robot, world, self_weight=0.0, base_pose=away)(joints, problem=problem),
        expected,
    )
    far = away + torch.tensor([50.0, 0, 0, 0, 0, 0, 0], device=device)
    both = CollisionTerm(robot, world, self_weight=0.0, base_pose=torch.stack((away, far)))
    torch.testing.assert_close(
        both(joints, problem=problem), torch.where(problem[:, None] == 0, expected, 0.0)
    )
    still = CollisionTerm(robot, world, self_weight=0.0)(joints)
    for base in (matrix, matrix.expand(2, 4, 4)):
        term = CollisionTerm(robot, world, self_weight=0.0, base_pose=base)
        torch.testing.assert_close(term(joints, problem=problem), still)

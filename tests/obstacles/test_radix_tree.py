"""Trees of parts: no chains where many lie in one place, and distances are those of all parts."""

import numpy as np
import pytest
import torch

from warp_collision import MeshWorld, PointCloud, signed_distance
from warp_collision.obstacles.radix_tree import LEAF, RadixTree

Array = np.ndarray
IS_LEAF = 1 << 31


def lying(where: str, count: int, rng: np.random.Generator) -> Array:
    """Points (count, 3) that are hard for a tree."""
    points = rng.uniform(-1.0, 1.0, (count, 3))
    if where == "in few places":
        points = points[rng.integers(min(5, count), size=count)]
    elif where == "in one place":
        points[:] = points[0]
    elif where == "on a line":
        points = points[:1] + rng.uniform(size=(count, 1)) * [0.3, -0.2, 0.9]
    elif where == "on a plane":
        points[:, 2] = 0.25 * points[:, 0] - 0.5
    elif where == "in powers":  # a chain, of no more than there are bits
        points = np.eye(3)[rng.integers(3, size=count)] / 2.0 ** rng.integers(20, size=(count, 1))
    elif where == "beside outliers":
        points[: max(1, count // 1000)] *= 90.0
    return points.astype(np.float32)


CASES = ["anywhere", "in few places", "in one place", "on a line", "on a plane", "in powers"]
CASES += ["beside outliers"]
# Nodes that a walk remembers; it looks at all parts where that is not enough.
STACK = 40


def nodes_of(tree: RadixTree) -> tuple[Array, Array, Array, Array]:
    """Lower and upper corners of all nodes, and what stands beside them."""
    lowers, uppers = tree._nodes.numpy()
    return lowers[:, :3], uppers[:, :3], *(s.view(np.uint32)[:, 3] for s in (lowers, uppers))


def assert_sound(tree: RadixTree, parts: Array) -> int:
    """Each part stands in one leaf and in all boxes above it; returns the depth."""
    lower, upper, left, right = nodes_of(tree)
    found, deepest, stack = [], 0, [(0, 1)]
    while stack:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        if left[node] & IS_LEAF:
            inside = np.arange(left[node] & ~np.uint32(IS_LEAF), right[node])
            assert len(inside) <= LEAF
            found += inside.tolist()
            placed = parts[inside][parts[inside, 0, 3] >= 0.0]
            assert (placed[:, 0, :3] >= lower[node]).all()
            assert (placed[:, -1, :3] <= upper[node]).all()
        else:
            for child in (left[node], right[node]):
                if lower[child][0] <= upper[child][0]:  # not empty
                    assert (lower[child] >= lower[node]).all()
                    assert (upper[child] <= upper[node]).all()
                stack.append((int(child), depth + 1))
    assert sorted(found) == list(range(len(parts)))
    return deepest


@pytest.mark.parametrize("where", CASES)
@pytest.mark.parametrize(("count", "capacity"), [(1, 1), (1, 9), (8, 8), (97, 97), (3000, 9999)])
def test_no_chain_wherever_parts_lie(where: str, count: int, capacity: int) -> None:
    rng = np.random.default_rng(141)
    given = np.zeros((count, 1, 4), np.float32)
    given[:, 0, :3], given[:, 0, 3] = lying(where, count, rng), 0.01
    given[1::3, 0, 3] = -1.0  # without a place
    given[1::3, 0, :3] = np.nan
    parts = torch.zeros((capacity, 1, 4))
    tree = RadixTree(parts)
    rows = torch.from_numpy(given)
    tree.build(rows, *tree.sorted(rows))
    depth = assert_sound(tree, parts.numpy())
    assert (depth > STACK) == (where == "in powers" and count > 1000)
    if where == "in one place":
        assert depth <= np.log2(capacity) + 2
    placed = given[given[:, 0, 3] >= 0.0, 0]
    kept = parts[:, 0].numpy()
    kept = kept[kept[:, 3] >= 0.0]
    np.testing.assert_array_equal(np.sort(kept, axis=0), np.sort(placed, axis=0))
    assert np.isinf(parts[len(placed) :, 0, :3].numpy()).all()


def test_many_in_one_place() -> None:
    parts = torch.zeros((100_000, 1, 4))
    tree = RadixTree(parts)
    rows = torch.ones(100_000, 1, 4)
    tree.build(rows, *tree.sorted(rows))
    assert assert_sound(tree, parts.numpy()) <= 18


def test_boxes() -> None:
    """A part may be a box, whose code is that of its middle."""
    rng = np.random.default_rng(142)
    given = np.zeros((500, 2, 4), np.float32)
    given[:, 0, :3] = lying("on a plane", 500, rng)
    given[:, 1, :3] = given[:, 0, :3] + rng.uniform(0.0, 0.3, (500, 3))
    given[:, 1, 3] = rng.choice([-1.0, 1.0], 500)
    parts = torch.zeros((500, 2, 4))
    tree = RadixTree(parts)
    rows = torch.from_numpy(given)
    tree.build(rows, *tree.sorted(rows))
    assert_sound(tree, parts.numpy())
    found = parts.numpy().reshape(500, 8)
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(given.reshape(500, 8), axis=0))


@pytest.mark.parametrize("where", CASES)
@pytest.mark.parametrize("capacity", [None, 5000])
def test_distances_are_those_of_all_parts(where: str, capacity: int | None) -> None:
    """A walk that is too deep looks at all parts: it is right, too."""
    rng = np.random.default_rng(143)
    points = lying(where, 1500, rng)
    radii = (0.01 + 0.02 * (np.arange(len(points)) % 7)).astype(np.float32)
    queries = np.concatenate([rng.uniform(-1.5, 1.5, (400, 3)), points[:200] + 0.003])
    queries = queries.astype(np.float32)
    world = MeshWorld(device="cpu", grid_cells=0)
    world.add("cloud", PointCloud(np.c_[points, radii], capacity=capacity))
    found = signed_distance(torch.from_numpy(queries), world).distance.numpy()
    away = np.linalg.norm(queries[:, None].astype(np.float64) - points, axis=-1)
    np.testing.assert_allclose(found, (away - radii).min(axis=1), rtol=1e-6, atol=1e-6)
    assert (found < 0.0).any()

"""Convex pieces of links: they cover the shapes, and decide self-collision where spheres touch.

Distances of pieces in float64 are those of non-negative least squares, without a support function.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh
from scipy.optimize import nnls

from arms import bracket
from cases import mostly_slow
from pieces import inside_of, outside_of
from reference import mesh_signed_distance
from warp_collision import (
    Cuboid,
    MeshWorld,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.obstacles.orientation import winding_number
from warp_collision.planning import optimize_paths
from warp_collision.robot import RobotSpheres, self_clearance, self_collision_cost
from warp_collision.robot.model.convex_pieces import (
    _EVERYWHERE,
    _NOT_CONVEX,
    ConvexPiece,
    _convex_corners,
    _halves,
    _Inside,
    _is_closed,
    _Part,
    _Region,
    _sides,
    convex_pieces,
)
from warp_collision.robot.model.link_shapes import mesh_in_link
from warp_collision.robot.model.sampled_pairs import random_joints

TOLERANCE, NEAR = 1e-3, 0.03


def distance(first: ConvexPiece, second: ConvexPiece) -> float:
    """Distance of two pieces, 0 or less where they touch, float64 [m]."""
    a, b, heavy = first.points, second.points, 1e3
    rows = np.zeros((5, len(a) + len(b)))
    rows[:3] = np.concatenate([a, -b]).T
    rows[3, : len(a)] = rows[4, len(a) :] = heavy
    return nnls(rows, np.array([0.0, 0.0, 0.0, heavy, heavy]))[1] - first.radius - second.radius


def clearances(robot: RobotSpheres, joints: torch.Tensor) -> torch.Tensor:
    """(n, n_pairs) of links: by their spheres, or by their pieces where these are farther apart.

    By the spheres alone where these are more than `NEAR` apart.
    """
    pairs = robot.default_pairs
    spheres, at = robot(joints.double()), robot.link_transforms(joints.double()).numpy()
    found = torch.full((len(joints), len(pairs)), torch.inf, dtype=torch.float64)
    for k, rows, gaps in pairs.near(spheres, torch.inf):
        found[rows, k] = gaps.flatten(1).amin(1)
    bodies = robot.layout.bodies
    for k, names in enumerate(pairs.link_pairs):
        for row in torch.nonzero(found[:, k] < NEAR)[:, 0].tolist():
            one, other = (
                bodies[name].pieces_in(at[row, robot.link_names.index(bodies[name].link)])
                for name in names
            )
            gap = min(distance(a, b) for a in one for b in other)
            if gap > 0.0:
                found[row, k] = max(found[row, k], gap)
    return found


def test_pieces_cover_shapes():
    rng = np.random.default_rng(0)
    turn = trimesh.transformations.random_rotation_matrix(rng.uniform(size=3))
    torus = trimesh.creation.torus(0.1, 0.02)
    torus.apply_transform(turn)
    flat = trimesh.Trimesh([[0, 0, 0.1], [0.2, 0, 0.1], [0, 0.3, 0.1]], [[0, 1, 2]])
    shapes = (
        bracket(),
        torus,
        flat,
        trimesh.creation.icosphere(2, 0.2),
        trimesh.creation.capsule(count=(16, 16)),
    )
    for mesh in shapes:
        pieces = convex_pieces(np.asarray(mesh.triangles))
        assert 1 <= len(pieces) <= 24
        points = trimesh.sample.sample_surface(mesh, 12, seed=1)[0]
        for point in np.concatenate([points, mesh.vertices[:8]]):
            at = ConvexPiece(point[None], 0.0)
            assert min(distance(at, piece) for piece in pieces) <= 1e-7
        # Not much more than the shape: a sample of the pieces' points is on or near it.
        reach = np.linalg.norm(np.ptp(mesh.vertices, axis=0))
        assert max(piece.radius for piece in pieces) < 4e-3 * reach


def spool() -> trimesh.Trimesh:
    """Two thick disks on a thin shaft, one body: its convex hull is far from it."""
    outline = [[0, 0], [0.4, 0], [0.4, 0.2], [0.1, 0.25], [0.1, 0.5], [0.5, 0.5], [0.5, 0.8]]
    return trimesh.creation.revolve([*outline, [0, 0.8]])


def blob() -> trimesh.Trimesh:
    """A ball with bumps and dents."""
    mesh = trimesh.creation.icosphere(3, 1.0)
    x, y, z = mesh.vertices.T
    radius = 0.2 + 0.1 * np.sin(4 * x + 1) * np.cos(5 * y) + 0.06 * np.sin(6 * z)
    return trimesh.Trimesh(radius[:, None] * mesh.vertices, mesh.faces)


def outside_of_pieces(mesh: trimesh.Trimesh, n: int, seed: int) -> np.ndarray:
    """Of random points inside of a mesh, those that are in no piece."""
    points = np.random.default_rng(seed).uniform(*mesh.bounds, (n, 3))
    windings = [winding_number(point, mesh.vertices, mesh.faces) for point in points]
    points = points[np.abs(windings) > 0.5]
    assert len(points) > 10
    return outside_of(convex_pieces(np.asarray(mesh.triangles)), points)


CONCAVE = {
    "spool": spool,
    "blob": blob,
    "bracket": bracket,
    "annulus": lambda: trimesh.creation.annulus(0.1, 0.2, 0.3),
    "torus": lambda: trimesh.creation.torus(0.1, 0.03),
}


@pytest.mark.parametrize("name", CONCAVE)
@pytest.mark.parametrize("is_turned", mostly_slow((False, True), (True,)))
def test_pieces_cover_the_inside(name, is_turned):
    """What is within a closed link is in a piece, and not only its surface."""
    mesh = CONCAVE[name]()
    if is_turned:
        mesh.apply_transform(
            trimesh.transformations.random_rotation_matrix(np.array([0.3, 0.5, 0.7]))
        )
    assert len(outside_of_pieces(mesh, 500, seed=3)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CONCAVE)
def test_pieces_cover_the_inside_at_a_million_points(name):
    rng = np.random.default_rng(8)
    for _ in range(10):
        mesh = CONCAVE[name]()
        mesh.apply_transform(trimesh.transformations.random_rotation_matrix(rng.uniform(size=3)))
        inside = inside_of(mesh, rng.uniform(*mesh.bounds, (100_000, 3)))
        assert len(inside) > 1_000
        assert len(outside_of(convex_pieces(np.asarray(mesh.triangles)), inside)) == 0


def test_pieces_cover_a_mesh_that_is_inside_out():
    mesh = spool()
    mesh.invert()
    assert len(outside_of_pieces(mesh, 500, seed=4)) == 0


def test_a_link_inside_another_is_never_free(tmp_path):
    """No surfaces meet there, so that judges of surfaces do not see it."""
    spool().export(tmp_path / "spool.stl")
    (tmp_path / "robot.urdf").write_text("""<robot name="inside">
      <link name="base">
        <collision><geometry><mesh filename="spool.stl"/></geometry></collision></link>
      <link name="slide"/>
      <link name="tool">
        <collision><geometry><box size="0.04 0.04 0.04"/></geometry></collision></link>
      <joint name="x" type="prismatic"><parent link="base"/><child link="slide"/>
        <origin xyz="0.7 0 0.65"/><axis xyz="1 0 0"/>
        <limit lower="-1.2" upper="0.3" effort="1" velocity="1"/></joint>
      <joint name="z" type="prismatic"><parent link="slide"/><child link="tool"/>
        <axis xyz="0 0 1"/><limit lower="-0.6" upper="0.5" effort="1" velocity="1"/></joint>
    </robot>""")
    robot = RobotSpheres(tmp_path / "robot.urdf")
    world = MeshWorld()
    across, up = torch.meshgrid(
        torch.linspace(-1.13, -0.27, 23), torch.linspace(-0.12, 0.12, 7), indexing="ij"
    )
    inside = torch.stack((across, up), dim=-1)
    assert configuration_in_collision(inside, robot, world).all()
    assert joint_path_in_collision(inside, robot, world).all()
    away = torch.tensor([[[0.0, 0.0], [0.0, 0.4], [-0.5, 0.25], [-0.4, -0.28]]])
    assert not configuration_in_collision(away, robot, world).any()
    start, goal = torch.tensor([[0.0, 0.0]]), torch.tensor([[-0.6, 0.0]])
    with pytest.raises(ValueError, match="base"):
        optimize_paths(start, goal, robot, world)


def test_pieces_leave_out_what_is_hollow():
    pieces = convex_pieces(np.asarray(bracket().triangles))
    volume = sum(trimesh.Trimesh(piece.points).convex_hull.volume for piece in pieces)
    assert volume < 1.01 * bracket().volume
    assert bracket().convex_hull.volume > 2.0 * bracket().volume


@pytest.mark.parametrize("name", CONCAVE)
def test_cuts_save_no_more_than_what_is_hollow(name):
    """Parts enclose together what the whole does, and no cut of one saves more than the rest."""
    rng = np.random.default_rng(9)
    mesh = CONCAVE[name]()
    mesh.apply_transform(trimesh.transformations.random_rotation_matrix(rng.random(3)))
    triangles = np.asarray(mesh.triangles)
    assert _is_closed(triangles)
    assert not _is_closed(triangles[1:])
    inside = _Inside(triangles, is_closed=True)
    regions = [_Region.of(triangles, _EVERYWHERE, inside)]
    for axis in rng.permutation(3):
        cuts = [(one, axis, one.triangles[..., axis].mean()) for one in regions]
        regions = [
            _Region.of(*side, inside)
            for one, *cut in cuts
            for side in zip(_sides(one.triangles, *cut), _halves(one.cell, *cut), strict=True)
        ]
        assert sum(one.solid for one in regions) == pytest.approx(mesh.volume, rel=1e-9)
        for one in regions:
            part = _Part.of(one.triangles, one)
            assert part.with_best_cut(inside, 0.0).gain <= part.gain + 1e-9 * mesh.volume


def test_a_convex_shape_is_one_piece():
    (piece,) = convex_pieces(np.asarray(trimesh.creation.box((0.1, 0.2, 0.3)).triangles))
    assert len(piece.points) == 8
    assert piece.radius < 3e-6
    round_one = trimesh.creation.cylinder(0.1, 0.2, sections=400)
    (few,) = convex_pieces(np.asarray(round_one.triangles))
    assert len(few.points) < 0.5 * len(round_one.vertices)
    assert few.radius < 3.1e-4


def random_hull(rng: np.random.Generator) -> trimesh.Trimesh:
    """A hull of points around a place, flat or long."""
    points = rng.normal(size=(200, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    hull = trimesh.Trimesh(points * rng.uniform(0.02, 0.3, 3)).convex_hull
    hull.apply_transform(trimesh.transformations.random_rotation_matrix(rng.random(3)))
    return hull.apply_translation(rng.normal(size=3))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_convex_is_not_cut(seed: int) -> None:
    """Rough by less than a millionth of its size: what it encloses is near the whole hull."""
    rng = np.random.default_rng(seed)
    hull = random_hull(rng)
    least = float(hull.extents.min())
    hull.vertices += 1e-6 * least * rng.normal(size=hull.vertices.shape)
    corners = _convex_corners(np.asarray(hull.triangles))
    assert corners is not None
    around = trimesh.Trimesh(corners).convex_hull
    points = trimesh.sample.sample_surface(around, 500, seed=seed)[0]
    out = mesh_signed_distance(points, hull.vertices, hull.faces).distance
    assert out.max() <= _NOT_CONVEX * np.linalg.norm(hull.extents)
    assert len(convex_pieces(np.asarray(hull.triangles))) == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", ["dent", "open", "inside out", "cavity", "two", "mixed"])
def test_what_is_not_convex(what: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hull = random_hull(rng)
    vertices, faces = hull.vertices.copy(), hull.faces.copy()
    if what == "dent":
        vertices[3] += 0.05 * (vertices.mean(axis=0) - vertices[3])
    elif what == "open":
        faces = faces[1:]
    elif what == "inside out":
        faces = faces[:, ::-1]
    elif what == "mixed":
        faces[0] = faces[0, ::-1]
    else:
        inner = 0.1 * (vertices - vertices.mean(axis=0)) + vertices.mean(axis=0)
        other = inner if what == "cavity" else vertices + 3.0 * hull.extents.max()
        order = [2, 1, 0] if what == "cavity" else [0, 1, 2]
        faces = np.concatenate([faces, faces[:, order] + len(vertices)])
        vertices = np.concatenate([vertices, other])
    assert _convex_corners(vertices[faces]) is None


def test_configurations(arm, device):
    joints = random_joints(arm.joint_limits, 300, None)
    least = clearances(arm, joints).amin(1)
    world = MeshWorld(device=device)
    hit = configuration_in_collision(joints.to(device), arm, world).cpu()
    known = (least.abs() > 1e-5) & ~((least > 0.0) & (least < 1e-5))
    assert torch.equal(hit[known], least[known] <= 0.0)
    by_spheres = torch.zeros(len(joints), dtype=torch.bool)
    for _, rows, gaps in arm.default_pairs.near(arm(joints.double()), 0.0):
        by_spheres[rows] |= (gaps < 0.0).flatten(1).any(1)
    assert not (hit & ~by_spheres).any()
    assert hit.sum() > 30
    assert (by_spheres & ~hit).sum() > 15


def test_meshes_that_touch_are_never_free(arm):
    """Points of one link inside of a box of another one."""
    joints = random_joints(arm.joint_limits, 400, None)
    hit = configuration_in_collision(joints, arm, MeshWorld(device="cpu"))
    at = arm.link_transforms(joints.double()).numpy()
    points = {
        link: np.concatenate(
            [trimesh.sample.sample_surface(mesh_in_link(s), 200, seed=1)[0] for s in shapes]
        )
        for link, shapes in arm.link_shapes.items()
    }
    index = arm.link_names.index
    count = 0
    for one, other in arm.default_pairs.link_pairs:
        for row in range(len(joints)):
            relative = np.linalg.inv(at[row, index(other)]) @ at[row, index(one)]
            there = points[one] @ relative[:3, :3].T + relative[:3, 3]
            if any(box_holds(shape, there) for shape in arm.link_shapes[other]):
                count += 1
                assert hit[row]
    assert count > 4


def box_holds(shape, points: np.ndarray) -> bool:
    if not isinstance(getattr(shape, "shape", None), Cuboid):
        return False
    inverse = np.linalg.inv(shape.link_from_shape)
    local = points @ inverse[:3, :3].T + inverse[:3, 3]
    return bool((np.abs(local) <= 0.5 * np.array(shape.shape.dims)).all(axis=1).any())


def test_joint_paths(arm, device):
    rng = np.random.default_rng(5)
    ends = random_joints(arm.joint_limits, 40, torch.Generator().manual_seed(2))
    step = 0.15 * torch.from_numpy(rng.normal(size=ends.shape))
    paths = torch.stack((ends, ends + step), 1).float()
    world = MeshWorld(device=device)
    hit = joint_path_in_collision(paths.to(device), arm, world, tolerance=TOLERANCE).cpu()[:, 0]
    found = joint_path_clearance(paths.to(device), arm, world, tolerance=TOLERANCE)
    lower, upper = (part.cpu()[:, 0] for part in (found.self_lower, found.self_upper))
    s = torch.linspace(0, 1, 41, dtype=torch.float64)[:, None]
    for row, path in enumerate(paths.double()):
        least = clearances(arm, path[0] + s * (path[1] - path[0])).min().item()
        assert lower[row] <= upper[row]
        if least < NEAR - 1e-3:
            assert lower[row] <= least + 1e-6
        if not hit[row]:
            assert upper[row] <= lower[row] + TOLERANCE + 3e-5
        if hit[row]:
            assert least < 0.02  # samples, between which it comes nearer
        else:
            assert least > 0.0
            assert lower[row] > -TOLERANCE
    assert 3 < hit.sum() < 30


def test_a_free_motion_is_proven_where_spheres_touch_all_along(arm):
    joints = random_joints(arm.joint_limits, 300, None)
    world = MeshWorld(device="cpu")
    least = clearances(arm, joints).amin(1)
    touch = torch.zeros(len(joints), dtype=torch.bool)
    for _, rows, gaps in arm.default_pairs.near(arm(joints.double()), 0.0):
        touch[rows] |= (gaps < 0.0).flatten(1).any(1)
    chosen = joints[touch & (least > 2e-3)].float()
    assert len(chosen) > 10
    paths = torch.stack((chosen, chosen + 1e-3), 1)
    assert not joint_path_in_collision(paths, arm, world).any()
    found = joint_path_clearance(paths, arm, world)
    assert (found.self_lower > 0.0).all()


def test_what_is_told_is_what_is_checked(arm):
    joints = random_joints(arm.joint_limits, 60, None).float()
    world = MeshWorld(device="cpu")
    hit = configuration_in_collision(joints, arm, world)
    report = arm.report(joints[:, None], world)
    assert sorted(set(report.batch.tolist())) == torch.nonzero(hit)[:, 0].tolist()
    matrix = arm.self_collision_matrix(n_samples=300)
    all_joints = random_joints(arm.joint_limits, 300, None)
    counts = (clearances(arm, all_joints) <= 0.0).sum(0).tolist()
    shares = {frozenset(entry[:2]): entry.share for entry in matrix.entries if entry.checked}
    for pair, count in zip(arm.default_pairs.link_pairs, counts, strict=True):
        assert abs(300 * shares[frozenset(pair)] - count) <= 1


def test_files_padding_and_objects(arm, tmp_path):
    joints = random_joints(arm.joint_limits, 200, None)
    world = MeshWorld(device="cpu")
    hit = configuration_in_collision(joints, arm, world)
    arm.save(tmp_path / "arm.yaml")
    again = RobotSpheres.from_file(tmp_path / "arm.yaml")
    assert torch.equal(configuration_in_collision(joints, again, world), hit)
    thick = RobotSpheres(arm._description.urdf, padding=0.01)
    both = configuration_in_collision(joints, thick, world)
    assert (both | ~hit).all()
    assert (both & ~hit).any()
    least = clearances(thick, joints).amin(1)
    assert torch.equal(both[least.abs() > 1e-5], (least <= 0.0)[least.abs() > 1e-5])
    # An object's own spheres are its shape.
    again.attach("ball", "tool", [[0.0, 0.0, 0.25, 0.1]])
    carried = configuration_in_collision(joints, again, world)
    least = clearances(again, joints).amin(1)
    assert torch.equal(carried[least.abs() > 1e-5], (least <= 0.0)[least.abs() > 1e-5])
    assert carried.sum() > hit.sum()
    empty = replace(again.self_collision_pairs(), link_pairs=())
    assert not configuration_in_collision(joints, again, world, self_collision=empty).any()


def test_spheres_of_a_caller_are_the_shape(arm):
    given = {name: arm.spheres_of(name) for name in dict.fromkeys(arm.sphere_links)}
    own = RobotSpheres(arm._description.urdf, spheres=given)
    joints = random_joints(arm.joint_limits, 200, None)
    world = MeshWorld(device="cpu")
    by_spheres = torch.zeros(len(joints), dtype=torch.bool)
    for _, rows, gaps in own.default_pairs.near(own(joints.double()), 0.0):
        by_spheres[rows] |= (gaps < 0.0).flatten(1).any(1)
    assert torch.equal(configuration_in_collision(joints, own, world), by_spheres)


def test_costs_see_spheres_that_stick_out_less(arm, device):
    pairs = arm.default_pairs
    joints = random_joints(arm.joint_limits, 100, None).float()[:, None].to(device)
    spheres = arm(joints).requires_grad_()
    inside = spheres.detach().clone()
    for i, link in enumerate(arm.sphere_links):
        out = max(report.overshoot for report in arm.fits[link])
        inside[..., i, 3] = (inside[..., i, 3] - 0.5 * out).clamp(min=0.0)
    plain = replace(pairs, overshoots=None)
    cost = self_collision_cost(spheres, pairs)
    torch.testing.assert_close(cost, self_collision_cost(inside, plain))
    torch.testing.assert_close(
        self_clearance(spheres, pairs).clearance, self_clearance(inside, plain).clearance
    )
    cost.sum().backward()
    assert spheres.grad.isfinite().all()


def test_not_finite(arm):
    joints = torch.tensor([[torch.nan, 0.0, 0.0], [0.0, torch.inf, 0.0]])
    world = MeshWorld(device="cpu")
    assert configuration_in_collision(joints, arm, world).all()
    paths = torch.stack((torch.zeros(2, 3), joints), 1)
    assert joint_path_in_collision(paths, arm, world).all()
    assert joint_path_clearance(paths, arm, world).self_lower.isnan().all()

"""Surfaces of links: they decide where convex pieces fill what is hollow.

The judge is one of surfaces, in float64: edges of one mesh that cross triangles of the other, and
winding numbers for what is wholly inside.
"""

import numpy as np
import pytest
import torch
import trimesh

from pieces import outside_of
from reference import mesh_signed_distance
from warp_collision import (
    Cuboid,
    MeshWorld,
    configuration_in_collision,
    joint_path_clearance,
    joint_path_in_collision,
)
from warp_collision.obstacles.orientation import winding_number
from warp_collision.robot import RobotSpheres
from warp_collision.robot.model.convex_pieces import ConvexPiece, convex_pieces, follow
from warp_collision.robot.model.link_surface import LinkSurface, surface_rows
from warp_collision.robot.model.sampled_pairs import random_joints

JOINTS = """
  <link name="x"/><link name="y"/><link name="z"/><link name="turned"/>
  <link name="part">{shape}</link>
  <joint name="jx" type="prismatic"><parent link="base"/><child link="x"/><axis xyz="1 0 0"/>
    <limit lower="-{reach}" upper="{reach}"/></joint>
  <joint name="jy" type="prismatic"><parent link="x"/><child link="y"/><axis xyz="0 1 0"/>
    <limit lower="-{reach}" upper="{reach}"/></joint>
  <joint name="jz" type="prismatic"><parent link="y"/><child link="z"/><axis xyz="0 0 1"/>
    <limit lower="-{reach}" upper="{reach}"/></joint>
  <joint name="ja" type="revolute"><parent link="z"/><child link="turned"/><axis xyz="1 2 0"/>
    <limit lower="-3" upper="3"/></joint>
  <joint name="jb" type="revolute"><parent link="turned"/><child link="part"/>
    <origin xyz="0.02 0.01 -0.03" rpy="0.3 1.1 -0.4"/><axis xyz="0 1 3"/>
    <limit lower="-3" upper="3"/></joint>"""
MESH = '<collision>{origin}<geometry><mesh filename="{name}.stl"{more}/></geometry></collision>'
ORIGIN = '<origin xyz="0.03 -0.02 0.01" rpy="0.4 -0.2 0.9"/>'


def robot_of(folder, outer: trimesh.Trimesh, inner: trimesh.Trimesh, reach: float, **options):
    """Two bodies, of which one moves freely."""
    for name, mesh in (("outer", outer), ("inner", inner)):
        mesh.export(folder / f"{name}.stl")
    shapes = [MESH.format(origin=o, name=n, more="") for o, n in ((ORIGIN, "outer"), ("", "inner"))]
    text = JOINTS.format(shape=shapes[1], reach=reach)
    path = folder / "robot.urdf"
    path.write_text(f'<robot name="r"><link name="base">{shapes[0]}</link>{text}</robot>')
    (folder / "robot.srdf").write_text('<robot name="r"/>')  # all pairs of links are checked
    return RobotSpheres(path, srdf=folder / "robot.srdf", **options)


def crosses(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether an edge of triangles (n, 3, 3) crosses one of others (m, 3, 3)."""
    begin, end = one.reshape(-1, 1, 3), np.roll(one, -1, axis=1).reshape(-1, 1, 3)
    a, b, c = other.swapaxes(0, 1)

    def volume(p, q, r, s):
        return (np.cross(q - p, r - p) * (s - p)).sum(-1)

    apart = volume(a, b, c, begin) * volume(a, b, c, end) <= 0.0
    sides = [volume(begin, end, p, q) for p, q in ((a, b), (b, c), (c, a))]
    same = np.all([side >= 0.0 for side in sides], axis=0)
    return bool((apart & (same | np.all([side <= 0.0 for side in sides], axis=0))).any())


def touch(one: trimesh.Trimesh, other: trimesh.Trimesh) -> bool:
    """Whether two closed bodies of one part each touch."""
    if (one.bounds[0] > other.bounds[1]).any() or (other.bounds[0] > one.bounds[1]).any():
        return False
    if crosses(one.triangles, other.triangles) or crosses(other.triangles, one.triangles):
        return True
    return any(
        abs(winding_number(a.vertices[0], b.vertices, b.faces)) > 0.5
        for a, b in ((one, other), (other, one))
    )


def judged(robot: RobotSpheres, meshes: dict, joints: torch.Tensor) -> np.ndarray:
    """(n,) whether base and part touch."""
    transforms = robot.link_transforms(joints.double()).numpy()
    index = robot.link_names.index
    found = []
    for at in transforms:
        placed = []
        for link, mesh in meshes.items():
            moved = mesh.copy()
            moved.apply_transform(at[index(link)])
            placed.append(moved)
        found.append(touch(*placed))
    return np.array(found)


def placed_outer(mesh: trimesh.Trimesh) -> trimesh.Trimesh:
    """The mesh of the base in its link."""
    mesh = mesh.copy()
    turn = trimesh.transformations.euler_matrix(0.4, -0.2, 0.9)
    turn[:3, 3] = 0.03, -0.02, 0.01
    mesh.apply_transform(turn)
    return mesh


def cup() -> trimesh.Trimesh:
    """A thick cup, open above."""
    outline = [[0, 0], [0.2, 0], [0.22, 0.3], [0.17, 0.3], [0.15, 0.05], [0, 0.05]]
    return trimesh.creation.revolve(outline, sections=12)


def hook() -> trimesh.Trimesh:
    """A part of a torus, closed by caps, of one body."""
    return trimesh.creation.torus(0.08, 0.02, major_sections=10, minor_sections=6)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    robot = robot_of(tmp_path_factory.mktemp("pair"), cup(), hook(), 0.25)
    return robot, {"base": placed_outer(cup()), "part": hook()}


def test_configurations_are_those_of_the_surfaces(pair, device):
    robot, meshes = pair
    joints = random_joints(robot.joint_limits, 80, None).float()
    world = MeshWorld(device=device)
    hit = configuration_in_collision(joints[None].to(device), robot, world)[0].cpu().numpy()
    truth = judged(robot, meshes, joints)
    assert not (truth & ~hit).any()
    assert (truth != hit).sum() <= 1  # nearer than rounding
    assert 10 < truth.sum() < 70
    coarse = convex_pieces(np.asarray(cup().triangles))
    assert not follow(coarse, np.asarray(cup().triangles))  # what this test is about


def test_a_clearance_from_obstacles_changes_nothing_between_links(pair, device):
    robot, _ = pair
    world, options = MeshWorld(device=device), {"world_clearance": 0.04}
    joints = random_joints(robot.joint_limits, 200, None).float()[None].to(device)
    hit = configuration_in_collision(joints, robot, world)
    assert torch.equal(configuration_in_collision(joints, robot, world, **options), hit)
    steps = joints[0, :40, None] + torch.tensor([0.0, 0.05], device=device)[:, None]
    proven = joint_path_in_collision(steps, robot, world)
    assert torch.equal(joint_path_in_collision(steps, robot, world, **options), proven)
    assert 5 < proven.sum() < 35


def puck() -> trimesh.Trimesh:
    """A thick disk with a groove around it, of less than 1 % of its volume."""
    outline = [[0, 0], [0.2, 0], [0.2, 0.19], [0.18, 0.19], [0.18, 0.22], [0.2, 0.22]]
    return trimesh.creation.revolve([*outline, [0.2, 0.3], [0, 0.3]], sections=24)


def test_pieces_that_stick_out_do_not_follow():
    """A groove of 3 cm is filled by pieces, however little it is of the whole; or is not."""
    triangles = np.asarray(puck().triangles)
    pieces = convex_pieces(triangles)
    volume = sum(trimesh.convex.convex_hull(piece.points).volume for piece in pieces)
    assert 1.001 < volume / puck().volume < 1.02
    assert not follow(pieces, triangles)
    hulls = [trimesh.convex.convex_hull(piece.points) for piece in pieces]
    points = np.concatenate(
        [trimesh.sample.sample_surface(hull, 3000, seed=1)[0] for hull in hulls]
    )
    farthest = mesh_signed_distance(points, puck().vertices, puck().faces).distance.max()
    assert follow(pieces, triangles, 1.4 * farthest)
    assert not follow(pieces, triangles, 0.97 * farthest)
    for mesh in (trimesh.creation.box((0.1, 0.2, 0.3)), trimesh.creation.icosphere(3, 0.1)):
        turned = mesh.copy()
        turned.apply_transform(placed_frame())
        triangles = np.asarray(turned.triangles)
        pieces = convex_pieces(triangles)
        assert follow(pieces, triangles)
        assert follow(pieces, triangles, 2e-3)
        turned.invert()
        assert follow(pieces, np.asarray(turned.triangles))


def test_the_option_of_a_robot_says_what_decides(tmp_path):
    """A ball in the groove is free by triangles, and touches where pieces may fill the groove."""
    ball = trimesh.creation.icosphere(2, 0.012)
    mesh = puck()
    mesh.apply_transform(np.linalg.inv(placed_frame()))
    ball.apply_transform(np.linalg.inv(part_frame()))
    joints = torch.tensor([[[0.195, 0.0, 0.205, 0.0, 0.0]]])
    for overshoot, is_hit in ((None, False), (0.03, True)):
        robot = robot_of(tmp_path, mesh, ball, 0.3, piece_overshoot=overshoot)
        assert configuration_in_collision(joints, robot, MeshWorld(device="cpu")).item() == is_hit
        world = MeshWorld(device="cpu")
        tip = robot.link_transforms(torch.zeros(1, 5))[0, robot.link_names.index("base")].clone()
        tip[:3, 3] += torch.tensor([0.195, 0.0, 0.205])
        world.add("tip", Cuboid((0.02, 0.02, 0.02)), tip)
        away = torch.tensor([[[-0.3, 0.0, -0.3, 0.0, 0.0]]])
        options = {"shapes": "exact", "self_collision": False}
        hit = configuration_in_collision(away, robot, world, **options)
        assert hit.item() == is_hit
    with pytest.raises(ValueError, match="piece_overshoot must be positive, got 0"):
        robot_of(tmp_path, mesh, ball, 0.3, piece_overshoot=0)


def test_a_report_and_a_matrix_say_the_same(pair):
    robot, meshes = pair
    joints = random_joints(robot.joint_limits, 40, None).float()
    report = robot.report(joints[:, None], MeshWorld(device="cpu"))
    truth = judged(robot, meshes, joints)
    assert sorted(set(report.batch.tolist())) == np.flatnonzero(truth).tolist()


def test_motions(pair, device):
    """What is proven is free at samples, and what is far enough from contact is proven."""
    robot, meshes = pair
    generator = torch.Generator().manual_seed(4)
    begin = random_joints(robot.joint_limits, 24, generator)
    step = 0.04 * torch.randn(begin.shape, generator=generator)
    paths = torch.stack((begin, begin + step), 1).float()
    world = MeshWorld(device=device)
    hit = joint_path_in_collision(paths.to(device), robot, world, tolerance=1e-4).cpu()[:, 0]
    found = joint_path_clearance(paths.to(device), robot, world, tolerance=1e-4)
    lower, upper = found.self_lower.cpu()[:, 0], found.self_upper.cpu()[:, 0]
    at = torch.linspace(0, 1, 4, dtype=torch.float64)[:, None]
    truth = [
        judged(robot, meshes, path[0] + at * (path[1] - path[0])).any() for path in paths.double()
    ]
    free = ~hit
    assert not (torch.tensor(truth) & free).any()
    assert (hit & ~torch.tensor(truth)).sum() <= 4  # between samples, or within the tolerance
    assert (lower[free] > 0.0).all()
    assert (upper - lower)[free].max() < 1.5e-4
    assert 5 < free.sum() < 21


def test_what_is_farther_than_the_tolerance_is_proven(pair):
    """Far from the origin, where the rounding of distances is part of it."""
    robot, _ = pair
    base = torch.tensor([30.0, -20.0, 10.0, 0.8, 0.2, 0.5, -0.2])
    generator = torch.Generator().manual_seed(5)
    begin = random_joints(robot.joint_limits, 150, generator)
    paths = torch.stack((begin, begin + 0.3 * torch.randn(begin.shape, generator=generator)), 1)
    paths, world = paths.float(), MeshWorld(device="cpu")
    lower = joint_path_clearance(paths, robot, world, base_pose=base).self_lower[:, 0]
    for tolerance in (5e-3, 2e-3, 1e-3, 5e-4, 2e-4):
        hit = joint_path_in_collision(paths, robot, world, base_pose=base, tolerance=tolerance)[
            :, 0
        ]
        far = lower > tolerance
        assert not (hit & far).any()
        assert 20 < far.sum() < 140


def test_a_ball_in_a_hole_has_its_clearance(tmp_path):
    """Of a ring: in the hole, in its wall, and from the one into the other."""
    ring = trimesh.creation.annulus(0.1, 0.2, 0.3, sections=40)
    ring.apply_transform(np.linalg.inv(placed_frame()))
    ball = trimesh.creation.icosphere(2, 0.099)
    ball.apply_transform(np.linalg.inv(part_frame()))
    robot = robot_of(tmp_path, ring, ball, 0.3)
    world = MeshWorld(device="cpu")

    def path(*places: tuple[float, float, float]) -> torch.Tensor:
        return torch.tensor([[[*place, 0.0, 0.0] for place in places]])

    through = path((0, 0, -0.06), (0, 0, 0.06))
    assert not joint_path_in_collision(through, robot, world, tolerance=1e-4).any()
    clearance = joint_path_clearance(through, robot, world, tolerance=1e-4)
    apothem = 0.1 * np.cos(np.pi / 40)
    # The pieces of the ring reach into the hole by more than this gap.
    turns = np.linspace(0.0, 2.0 * np.pi, 400)
    rim = 0.099 * np.column_stack([np.cos(turns), np.sin(turns), np.zeros(400)])
    frame = np.linalg.inv(placed_frame())
    rim = rim @ frame[:3, :3].T + frame[:3, 3]
    assert len(outside_of(convex_pieces(np.asarray(ring.triangles)), rim)) < 400
    assert clearance.self_lower.item() == pytest.approx(apothem - 0.099, abs=9e-4)
    inside = path((0.15, 0, 0), (0, 0.15, 0.02))
    assert configuration_in_collision(inside, robot, world).all()
    assert joint_path_in_collision(inside, robot, world).all()
    assert joint_path_in_collision(path((0, 0, 0), (0.15, 0, 0)), robot, world).all()
    options = {"srdf": tmp_path / "robot.srdf", "padding": 2e-4}
    padded = RobotSpheres(tmp_path / "robot.urdf", **options)
    thick = joint_path_clearance(through, padded, world, tolerance=1e-4)
    assert thick.self_lower.item() == pytest.approx(clearance.self_lower.item() - 4e-4, abs=1e-4)
    robot.save(tmp_path / "robot.yaml")
    again = RobotSpheres.from_file(tmp_path / "robot.yaml")
    same = joint_path_clearance(through, again, world, tolerance=1e-4)
    assert torch.equal(same.self_lower, clearance.self_lower)
    held = -part_frame()[:3, :3].T @ part_frame()[:3, 3]
    robot.attach("held", "part", [[*held, 0.0995]])
    wide = joint_path_clearance(through, robot, world, tolerance=1e-4)
    assert wide.self_lower.item() == pytest.approx(apothem - 0.0995, abs=1e-4)


def placed_frame() -> np.ndarray:
    frame = trimesh.transformations.euler_matrix(0.4, -0.2, 0.9)
    frame[:3, 3] = 0.03, -0.02, 0.01
    return frame


def part_frame() -> np.ndarray:
    frame = trimesh.transformations.euler_matrix(0.3, 1.1, -0.4)
    frame[:3, 3] = 0.02, 0.01, -0.03
    return frame


def test_an_open_mesh_and_one_that_is_inside_out(tmp_path):
    """An inverted body is as solid as others; of an open one the surface counts."""
    inverted = cup()
    inverted.invert()
    robot = robot_of(tmp_path, inverted, trimesh.creation.icosphere(1, 0.01), 0.25)
    joints = random_joints(robot.joint_limits, 60, None).float()
    meshes = {"base": placed_outer(inverted), "part": trimesh.creation.icosphere(1, 0.01)}
    hit = configuration_in_collision(joints[None], robot, MeshWorld(device="cpu"))[0].numpy()
    truth = judged(robot, meshes, joints)
    assert not (truth & ~hit).any()
    assert (hit & ~truth).sum() <= 1
    open_cup = cup()
    open_cup.update_faces(np.arange(len(open_cup.faces)) % 40 != 7)
    robot = robot_of(tmp_path, open_cup, trimesh.creation.icosphere(1, 0.01), 0.25)
    hit = configuration_in_collision(joints[None], robot, MeshWorld(device="cpu"))[0].numpy()
    assert not (truth & ~hit).any()


def test_a_tree_holds_its_elements():
    """Each node's box holds all triangles below, and its dipole is the sum of theirs."""
    rng = np.random.default_rng(3)
    triangles = rng.normal(size=(1, 3)) + 0.1 * rng.normal(size=(37, 3, 3))
    solid = ConvexPiece(rng.normal(size=(6, 3)), 0.02)
    rows = surface_rows(triangles, 0.001, [solid]).astype(np.float64)
    levels, n_points = rows[0, :2].astype(int)
    n_nodes = (2 << levels) - 1
    nodes = rows[1 : 1 + 4 * n_nodes].reshape(n_nodes, 4, 4)
    seen = 0
    areas = np.zeros(3)
    for leaf in range(1 << levels, 2 << levels):
        row, count = int(nodes[leaf - 1, 0, 3]), int(nodes[leaf - 1, 1, 3])
        seen += count
        for _ in range(count):
            n, radius, _, rest = rows[row + 1]
            points = rows[row + 2 : row + 2 + int(n), :3]
            ball = rows[row]
            reach = np.linalg.norm(points - ball[:3], axis=1).max() + radius
            assert reach <= ball[3] + 1e-7
            if rest < 0.0:
                areas += 0.5 * np.cross(points[1] - points[0], points[2] - points[0])
            node = leaf
            while node:
                center, half = nodes[node - 1, :2, :3]
                assert (np.abs(points - center) + radius <= half + 1e-7).all()
                node //= 2
            row += 2 + int(n)
    assert seen == 38
    assert row == len(rows) or row <= len(rows)
    np.testing.assert_allclose(4 * np.pi * nodes[0, 3, :3], areas, atol=1e-6)
    assert n_points > 1


@pytest.mark.parametrize("content", [["", ""], ["eJw=", "eJw="], ["&", 3]])
def test_damaged_surfaces_are_errors(content):
    with pytest.raises((ValueError, TypeError)):
        LinkSurface.unpacked({"n_solid": 0, "radius": 0.0, "content": content})

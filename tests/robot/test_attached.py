"""Objects that a robot carries, and reports of what it collides with."""

import numpy as np
import pytest
import torch
import trimesh
from torch import func

from differentiable import JIT_WARNING
from warp_collision import (
    Cuboid,
    Cylinder,
    MeshWorld,
    configuration_in_collision,
    in_collision,
    joint_path_in_collision,
)
from warp_collision.examples import load_panda
from warp_collision.poses import quaternion_rotate
from warp_collision.robot import coverage

pytestmark = pytest.mark.filterwarnings(JIT_WARNING)
POSE = torch.tensor([0.02, -0.03, 0.15, 0.6, 0.2, -0.5, 0.3], dtype=torch.float64)
ROWS = [[0.0, 0.0, 0.05, 0.03], [0.0, 0.01, 0.0, 0.04], [0.1, 0.0, 0.0, -1.0]]


@pytest.fixture
def panda():
    return load_panda()


def test_an_object_moves_with_its_link(panda):
    before = panda.sphere_links
    panda.attach("can", "panda_hand", ROWS, pose=POSE, padding=0.002)
    assert panda.attached == ("can",)
    assert panda.n_spheres == 62
    assert [link for link in panda.sphere_links if link != "can"] == list(before)
    joints = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hand = panda.link_transforms(joints)[:, panda.link_names.index("panda_hand")]
    rows = torch.tensor(ROWS, dtype=torch.float64)
    unit = POSE[3:] / POSE[3:].norm()
    in_hand = quaternion_rotate(unit.expand(3, 4), rows[:, :3]) + POSE[:3]
    expected = in_hand @ hand[:, :3, :3].mT + hand[:, None, :3, 3]
    mine = [i for i, link in enumerate(panda.sphere_links) if link == "can"]
    for dtype, error in ((torch.float64, 1e-14), (torch.float32, 2e-6)):
        found = panda(joints.to(dtype))[:, mine].double()
        torch.testing.assert_close(found[..., :3], expected, atol=error, rtol=0)
    torch.testing.assert_close(found[0, :, 3], torch.tensor([0.032, 0.042, -1.0]).double())
    panda.detach("can")
    assert panda.sphere_links == before
    assert torch.equal(panda(joints), load_panda()(joints))


def test_an_object_counts_in_every_check(panda):
    rod = [[0.0, 0.0, 0.05 * i, 0.01] for i in range(3, 8)]
    path = torch.tensor([[[-0.4, 0.4, 0, -1.6, 0, 2, 0.8], [0.4, 0.4, 0, -1.6, 0, 2, 0.8]]])
    middle = path.mean(1, keepdim=True)
    panda.attach("rod", "panda_hand", rod)
    tip = panda(middle)[0, 0, panda.sphere_links.index("rod") + 4, :3].tolist()
    panda.detach("rod")
    world = MeshWorld()
    world.add("post", Cylinder(0.02, 0.04), (*tip, 1, 0, 0, 0))
    pairs = panda.default_pairs
    assert not joint_path_in_collision(path, panda, world).any()
    panda.attach("rod", "panda_hand", rod)
    assert not configuration_in_collision(path, panda, world).any()
    assert joint_path_in_collision(path, panda, world).all()
    assert configuration_in_collision(middle, panda, world).all()
    assert in_collision(panda(middle), world).sum() == 1
    with pytest.raises(ValueError, match="pairs of this robot with what is attached to it"):
        joint_path_in_collision(path, panda, world, self_collision=pairs)
    panda.detach("rod")
    assert not joint_path_in_collision(path, panda, world, self_collision=pairs).any()


def test_an_object_may_touch_what_carries_it(panda):
    panda.attach("can", "panda_hand", ROWS, touch_links=["panda_link6"])
    partners = {
        other
        for pair in panda.default_pairs.link_pairs
        for other in {*pair} - {"can"}
        if "can" in pair
    }
    assert "panda_link0" in partners
    assert not partners & {"panda_hand", "panda_leftfinger", "panda_link7", "panda_link6"}


@pytest.mark.parametrize(
    "shape",
    [
        Cuboid((0.1, 0.06, 0.2)),
        pytest.param(trimesh.creation.icosphere(2, 0.05), marks=pytest.mark.slow),
    ],
)
def test_an_attached_mesh_is_filled(panda, shape):
    panda.attach("thing", "panda_hand", shape, max_overshoot=0.015)
    report = coverage(panda.spheres_of("thing"), shape, fill=True)
    assert (report.uncovered, report.uncovered_inside) == (0.0, 0.0)
    assert report.overshoot <= 0.015 + 1e-6


def test_compiled_and_transformed_calls_follow(panda):
    joints = torch.randn(3, 7, generator=torch.Generator().manual_seed(1))
    compiled = torch.compile(lambda q: panda(q), fullgraph=True, backend="aot_eager")
    assert compiled(joints).shape == (3, 59, 4)
    panda.attach("can", "panda_hand", ROWS)
    assert torch.equal(compiled(joints), panda(joints))
    based = torch.randn(3, 7, generator=torch.Generator().manual_seed(2))
    compiled = torch.compile(lambda q, b: panda(q, b), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(joints, based), panda(joints, based))
    torch.testing.assert_close(func.vmap(panda)(joints, based), panda(joints, based))
    forward = func.jacfwd(lambda b: panda(joints, b))(based)
    torch.testing.assert_close(forward, func.jacrev(lambda b: panda(joints, b))(based))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("can", "hand", ROWS), ValueError, r"link must be links of the robot, got \['hand'\]"),
        (("panda_hand", "panda_hand", ROWS), ValueError, "name must be new to the robot, got 'pan"),
        (("", "panda_hand", ROWS), TypeError, "name must be text that is not empty, got ''"),
        (("can", "panda_hand", []), ValueError, "spheres of 'can' must not be empty, got none"),
        (("can", "panda_hand", [[0, 0, np.inf, 1]]), ValueError, "spheres of 'can' must be rows"),
        (("can", "panda_hand", "none.stl"), FileNotFoundError, "mesh 'can': there is no file"),
    ],
)
def test_wrong_objects(panda, arguments, error, message):
    with pytest.raises(error, match=message):
        panda.attach(*arguments)
    assert panda.attached == ()
    assert panda.n_spheres == 59


def test_wrong_options_of_objects(panda):
    with pytest.raises(ValueError, match=r"touch_links must be links .* got \['finger'\]"):
        panda.attach("can", "panda_hand", ROWS, touch_links=["finger"])
    with pytest.raises(ValueError, match="pose must have a quaternion"):
        panda.attach("can", "panda_hand", ROWS, pose=torch.zeros(7))
    with pytest.raises(ValueError, match=r"a padding must not make a radius negative, got -0.1"):
        panda.attach("can", "panda_hand", ROWS, padding=-0.1)
    with pytest.raises(ValueError, match="of an attached object, got 'can'; there is nothing"):
        panda.detach("can")
    panda.attach("can", "panda_hand", ROWS)
    with pytest.raises(ValueError, match="name must be new to the robot, got 'can'"):
        panda.attach("can", "panda_link6", ROWS)


# -- reports ---------------------------------------------------------------------------------------


@pytest.fixture
def scene() -> MeshWorld:
    """Two envs; obstacles that overlap, a padded one, one that is switched off."""
    world = MeshWorld(n_envs=2)
    world.add("can", Cylinder(0.1, 0.3), (0.5, 0.1, 0.5, 1, 0, 0, 0))
    world.add("box", trimesh.creation.box((0.2, 0.3, 0.2)), (0.55, 0.0, 0.6, 0.9, 0.1, 0.2, 0.3))
    world.add("wall", Cuboid((0.1, 2.0, 2.0)), (0.85, 0.0, 0.5, 1, 0, 0, 0), padding=0.05)
    world.add("off", Cuboid((1.0, 1.0, 1.0)), (0.5, 0.0, 0.5, 1, 0, 0, 0))
    world.enable("off", False)
    world.add("floor", Cuboid((2.0, 2.0, 0.1)), (0, 0, 0.2, 1, 0, 0, 0), env=1)
    return world


def expected_depths(spheres, world, names, env):
    """Depth of each sphere in each obstacle, one world with one obstacle at a time."""
    kinds = {
        "can": (Cylinder(0.1, 0.3), 0.0),
        "box": (trimesh.creation.box((0.2, 0.3, 0.2)), 0.0),
        "wall": (Cuboid((0.1, 2.0, 2.0)), 0.05),
        "floor": (Cuboid((2.0, 2.0, 0.1)), 0.0),
    }
    from warp_collision import clearance

    for name in names:
        shape, padding = kinds[name]
        alone = MeshWorld()
        alone.add(name, shape, world.pose(name, env), padding=padding)
        yield name, -clearance(spheres, alone).clearance


def test_a_report_has_every_pair_worst_first(panda, scene):
    generator = torch.Generator().manual_seed(5)
    joints = torch.rand(4, 3, 7, generator=generator) - torch.tensor([0.5, 0, 0.5, 2.2, 0, -1.4, 0])
    envs = torch.tensor([0, 1, 0, 1], dtype=torch.int32)
    report = panda.report(joints, scene, env_index=envs, self_collision=False)
    spheres = panda(joints)
    expected = {}
    for env, names in ((0, ("can", "box", "wall")), (1, ("floor",))):
        rows = torch.nonzero(envs == env)[:, 0].tolist()
        for name, depths in expected_depths(spheres[rows], scene, names, env):
            for b, h, s in torch.nonzero(depths > 0).tolist():
                key = (rows[b], h, panda.sphere_links[s], name)
                expected[key] = max(expected.get(key, 0.0), float(depths[b, h, s]))
    found = dict(
        zip(zip(report.batch, report.waypoint, report.link, report.obstacle, strict=True),
            report.depth, strict=True)
    )  # fmt: skip
    assert found.keys() == expected.keys()
    assert len(found) > 10
    assert {"can", "box", "wall", "floor"} == set(report.obstacle)
    for key, depth in expected.items():
        assert found[key] == pytest.approx(depth, abs=2e-6)
    assert (np.diff(report.depth) <= 0.0).all()
    for i, sphere in enumerate(report.sphere):
        x, y, z, r = spheres[report.batch[i], report.waypoint[i], sphere].tolist()
        away = np.linalg.norm(report.point[i] - (x, y, z))
        assert abs(away - abs(r - report.depth[i])) < 1e-5
    assert panda.report(spheres, scene, env_index=envs, self_collision=False).link == report.link


def test_the_robot_with_itself_is_reported(panda):
    folded = torch.tensor([[[0.0, 1.7, 0.0, -3.0, 0.0, 0.0, 0.8]]])
    report = panda.report(folded, MeshWorld())
    assert report.with_itself.all()
    assert (report.depth > 0.0).all()
    assert "(itself)" in str(report)
    free = panda.report(torch.tensor([[[0.0, -0.5, 0.0, -2.2, 0.0, 1.6, 0.8]]]), MeshWorld())
    assert str(free) == "nothing collides"
    # Not link5 and link7, which are 15 mm apart at all joint values.
    near = panda.report(
        torch.tensor([[[0.0, -0.5, 0.0, -2.2, 0.0, 1.6, 0.8]]]), MeshWorld(), margin=0.05
    )
    assert {*zip(near.link, near.obstacle, strict=True)} == {("panda_link6", "panda_hand")}


def test_wanted_contacts_are_left_out(panda, scene):
    joints = torch.tensor([[[0.0, 0.4, 0, -1.6, 0, 2, 0.8]]])
    report = panda.report(joints, scene)
    pair = (report.link[0], report.obstacle[0])
    fewer = panda.report(joints, scene, ignore=[pair])
    pairs = list(zip(report.link, report.obstacle, strict=True))
    assert list(zip(fewer.link, fewer.obstacle, strict=True)) == [p for p in pairs if p != pair]
    for wrong in (("hand", "can"), ("panda_hand", "cup"), ("panda_hand",)):
        with pytest.raises(ValueError, match="ignore must be pairs of a link of the robot"):
            panda.report(joints, scene, ignore=[wrong])


def test_values_beyond_limits_are_counted(panda):
    joints = torch.zeros(2, 3, 7)
    joints[..., 5] = 1.0
    joints[0, 1, 3] = 0.2
    joints[1, :, 0] = -3.0
    report = panda.report(joints, MeshWorld(), self_collision=False)
    assert report.beyond_limits.tolist() == [3, 0, 0, 1, 0, 0, 0]
    assert "4 joint values are beyond the limits" in str(report)


def test_what_is_not_finite_is_worst(panda, scene):
    joints = torch.zeros(1, 3, 7)
    joints[0, 1, 3] = torch.nan
    report = panda.report(joints, scene, self_collision=False)
    assert np.isnan(report.depth[0])
    assert report.waypoint[0] == 1
    assert set(report.obstacle[: int(np.isnan(report.depth).sum())]) == {"can", "box", "wall"}
    assert report.beyond_limits[3] >= 1
    assert np.isnan(panda.report(joints, MeshWorld()).depth).any()


@pytest.mark.parametrize(
    ("configurations", "error", "message"),
    [
        (torch.zeros(1, 1, 6), ValueError, r"joints must have shape \(\.\.\., 7\)"),
        (torch.zeros(1, 1, 58, 4), ValueError, "n_spheres = 59 as the robot"),
        (torch.zeros(1, 7), ValueError, "spheres must have shape"),
        ([[0.0] * 7], TypeError, "spheres must be a torch.Tensor"),
    ],
)
def test_wrong_configurations(panda, scene, configurations, error, message):
    with pytest.raises(error, match=message):
        panda.report(configurations, scene)


def test_a_long_report_is_cut(panda, scene):
    joints = torch.tensor([0.0, 0.4, 0, -1.6, 0, 2, 0.8]).expand(1, 20, 7)
    report = panda.report(joints, scene)
    text = str(report).splitlines()
    assert len(text) == 22
    assert text[-1] == f"and {len(report.link) - 20} more"
    assert text[0].split() == [
        "batch",
        "waypoint",
        "link",
        "obstacle",
        "depth",
        "[mm]",
        "point",
        "[m]",
    ]


def test_what_a_robot_prints():
    panda = load_panda()
    assert repr(panda) == (
        "RobotSpheres(12 links, 7 joints: panda_joint1, panda_joint2, panda_joint3, panda_joint4, "
        "panda_joint5, panda_joint6, panda_joint7; 59 spheres)"
    )
    panda.attach("can\n", "panda_hand", [[0, 0, 0.1, 0.04]])
    assert repr(panda).endswith(r"; 60 spheres, carries 'can\n')")
    text = repr(panda.self_collision_pairs())
    assert text == (
        "SelfCollisionPairs(49 pairs of links, 1148 of 60 spheres; left out 17 pairs of links, "
        "0 of spheres that always touch)"
    )

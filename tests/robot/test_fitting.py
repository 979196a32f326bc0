"""Fitted spheres cover what they stand for, and reports of given ones say what they leave out."""

import numpy as np
import pytest
import trimesh
from scipy import sparse

from cases import mostly_slow
from reference import mesh_signed_distance
from robots import PANDA
from warp_collision import Capsule, Cuboid, Cylinder, Sphere
from warp_collision.examples import load_panda
from warp_collision.robot import Coverage, RobotSpheres, coverage, fit_spheres
from warp_collision.robot.fitting import fit_cache, sphere_fit
from warp_collision.robot.fitting.pieces import groups
from warp_collision.robot.fitting.solid import Solid

MESHES = PANDA.parent / "meshes"


def turned(mesh: trimesh.Trimesh, seed: int) -> trimesh.Trimesh:
    """The mesh off the origin, along no axis."""
    mesh.apply_transform(trimesh.transformations.random_rotation_matrix(_numbers(seed, 3)))
    return mesh.apply_translation(0.3 * _numbers(seed + 1, 3))


def _numbers(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=n)


def farthest(points: np.ndarray, spheres: np.ndarray) -> float:
    """How far a point is from the nearest sphere, at most, in float64."""
    offsets = points[:, None] - spheres[None, :, :3]
    return float((np.linalg.norm(offsets, axis=2) - spheres[:, 3]).min(axis=1).max())


def on_spheres(spheres: np.ndarray, count: int = 60) -> np.ndarray:
    """Places all over the spheres."""
    directions = np.random.default_rng(7).normal(size=(count, 3))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    return (spheres[:, None, :3] + spheres[:, None, 3:] * directions).reshape(-1, 3)


def sticks_out(mesh: trimesh.Trimesh, points: np.ndarray) -> float:
    """How far outside of a mesh a point is at most, by the float64 reference."""
    return float(mesh_signed_distance(points, mesh.vertices, mesh.faces).distance.max())


SOLIDS = {
    "box": lambda: turned(trimesh.creation.box((0.3, 0.1, 0.15)), 1),
    "plate": lambda: turned(trimesh.creation.box((0.3, 0.2, 0.001)), 2),
    "ring": lambda: turned(trimesh.creation.torus(0.1, 0.03, 24, 12), 3),
    "two": lambda: trimesh.util.concatenate(
        [turned(trimesh.creation.icosphere(2, 0.06), s) for s in (4, 5)]
    ),
}


@pytest.mark.parametrize("name", mostly_slow(SOLIDS, ("ring",)))
@pytest.mark.parametrize("fill", mostly_slow((False, True), (True,)))
def test_fitted_spheres_cover_a_mesh(name, fill):
    mesh = SOLIDS[name]()
    fit = fit_spheres(mesh, max_overshoot=0.025, fill=fill)
    points, _ = trimesh.sample.sample_surface(mesh, 20_000, seed=1)
    assert farthest(np.concatenate([points, mesh.vertices]), fit.spheres) <= 0.0
    if fill:
        anywhere = np.random.default_rng(6).uniform(*mesh.bounds, size=(3000, 3))
        distance = mesh_signed_distance(anywhere, mesh.vertices, mesh.faces).distance
        inside = anywhere[distance < 0.0]
        assert len(inside) > 2
        assert farthest(inside, fit.spheres) <= 0.0
    assert sticks_out(mesh, on_spheres(fit.spheres)) <= fit.report.overshoot <= 0.025 + 1e-6
    report = fit.report
    assert (report.count, report.uncovered, report.gap) == (len(fit.spheres), 0.0, 0.0)
    assert report.uncovered_inside == (0.0 if fill else None)


@pytest.mark.parametrize(
    "shape", [Cuboid((0.2, 0.1, 0.3)), Cylinder(0.08, 0.3), Capsule(0.05, 0.2), Sphere(0.1)]
)
def test_fitted_spheres_cover_a_shape(shape):
    fit = fit_spheres(shape, max_overshoot=0.02)
    mesh = trimesh.Trimesh(*shape.tessellate())
    points, _ = trimesh.sample.sample_surface(mesh, 20_000, seed=1)
    assert farthest(points, fit.spheres) <= 0.0
    assert fit.report.overshoot <= 0.02 + 1e-6
    assert fit.report.uncovered == 0.0
    if isinstance(shape, Sphere):
        assert fit.report.count == 1


def test_panda_meshes_need_few_spheres():
    found = [
        fit_spheres(MESHES / f"{name}.stl", max_overshoot=0.02).report
        for name in ("link3", "link7", "finger")
    ]
    assert [report.uncovered for report in found] == [0.0] * 3
    assert max(report.overshoot for report in found) <= 0.02 + 1e-6
    assert all(np.array([report.count for report in found]) <= [12, 7, 3])


def test_equal_input_has_equal_results():
    one, other = (fit_spheres(MESHES / "link7.stl", max_overshoot=0.015) for _ in range(2))
    np.testing.assert_array_equal(one.spheres, other.spheres)
    assert np.array_equal(one.spheres, one.spheres.astype(np.float32))


def test_a_number_of_spheres():
    mesh = SOLIDS["box"]()
    one, few = (fit_spheres(mesh, count=count).report for count in (1, 12))
    assert (one.count, one.uncovered, few.uncovered) == (1, 0.0, 0.0)
    assert 1 < few.count <= 12
    assert one.overshoot > 2.0 * few.overshoot


def test_both_limits_leave_something_uncovered():
    mesh = SOLIDS["box"]()
    fit = fit_spheres(mesh, count=3, max_overshoot=0.02)
    assert fit.report.count == 3
    assert fit.report.overshoot <= 0.02 + 1e-6
    points, _ = trimesh.sample.sample_surface(mesh, 50_000, seed=2)
    offsets = np.linalg.norm(points[:, None] - fit.spheres[None, :, :3], axis=2)
    share = float((offsets > fit.spheres[:, 3]).all(axis=1).mean())
    assert 0.1 < share <= fit.report.uncovered + 0.01
    assert fit.report.uncovered <= share + 0.03


@pytest.mark.parametrize("resolution", [1e-3, 5e-3])
def test_reports_are_bounds(resolution):
    mesh = trimesh.load(MESHES / "link2.stl")
    spheres = load_panda().spheres_of("panda_link2")
    report = coverage(spheres, mesh, resolution=resolution)
    points, _ = trimesh.sample.sample_surface(mesh, 100_000, seed=3)
    gap = farthest(points, spheres)
    assert gap <= report.gap <= gap + 2.0 * resolution + 1e-3
    offsets = np.linalg.norm(points[:, None] - spheres[None, :, :3], axis=2)
    share = float((offsets > spheres[:, 3]).all(axis=1).mean())
    assert share - 0.01 <= report.uncovered <= share + 20.0 * resolution
    out = sticks_out(mesh, on_spheres(spheres))
    assert out <= report.overshoot <= out + 0.06


def test_the_spheres_of_the_panda_leave_much_uncovered():
    reports = load_panda().coverage(resolution=2e-3)
    arm = [reports[f"panda_link{i}"] for i in range(6)]
    assert all(0.39 < report.uncovered < 0.76 for report in arm)
    assert 0.080 < max(report.gap for report in arm) < 0.085
    assert reports["panda_link0"].count == 1
    assert "panda_link8" not in reports  # it has no mesh


def test_covered_inside():
    box = Cuboid((0.2, 0.2, 0.2))
    ball = [[0.0, 0.0, 0.0, 0.1]]
    report = coverage(ball, box, fill=True, resolution=5e-3)
    outside = 1.0 - np.pi / 6.0
    assert outside <= report.uncovered_inside <= outside + 0.05
    assert coverage([[0.0, 0.0, 0.0, 0.18]], box, fill=True).uncovered_inside == 0.0
    hollow = fit_spheres(Cuboid((0.4, 0.4, 0.4)), max_overshoot=0.01)
    assert coverage(hollow.spheres, Cuboid((0.4, 0.4, 0.4))).uncovered == 0.0


def test_disabled_spheres_cover_nothing():
    report = coverage([[0.0, 0.0, 0.0, -1.0]], Cuboid((0.2, 0.2, 0.2)), resolution=0.02, fill=True)
    assert report == Coverage(0, -np.inf, 1.0, np.inf, 1.0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"count": 0}, ValueError, "count must be at least 1, got 0"),
        ({"count": 2.5}, TypeError, "count must be an int, got float"),
        ({"max_overshoot": 0.0}, ValueError, "max_overshoot must be positive, got 0.0"),
        ({"max_overshoot": np.nan}, ValueError, "max_overshoot must be finite, got nan"),
        ({"max_overshoot": "1 cm"}, TypeError, "max_overshoot must be a number, got str"),
        ({"max_overshoot": 1e-5}, ValueError, "max_overshoot must be larger for a mesh"),
    ],
)
def test_wrong_options(options, error, message):
    with pytest.raises(error, match=message):
        fit_spheres(Cuboid((0.2, 0.2, 0.2)), **options)


def test_wrong_meshes():
    with pytest.raises(TypeError, match=r"mesh 'mesh' must be a .* got int"):
        fit_spheres(3)
    with pytest.raises(ValueError, match="vertices must be finite"):
        fit_spheres((np.full((3, 3), np.nan), [[0, 1, 2]]))
    with pytest.raises(ValueError, match=r"spheres must be rows of 4 .* got \[0.0, nan"):
        coverage([[0.0, np.nan, 0.0, 1.0]], Cuboid((0.2, 0.2, 0.2)))
    with pytest.raises(ValueError, match="resolution must be positive, got 0"):
        coverage([[0.0, 0.0, 0.0, 1.0]], Cuboid((0.2, 0.2, 0.2)), resolution=0)


ORDINARY = """<robot name="ordinary" version="1.1">
  <link name="a">
    <collision><origin xyz="0 0.1 0" rpy="0.3 0 1"/><geometry><box size="0.2 0.1 0.1"/></geometry>
    </collision>
    <collision><geometry><sphere radius="0.06"/></geometry></collision>
  </link>
  <link name="b">
    <collision><origin rpy="1 1 0"/><geometry><cylinder radius="0.05" length="0.2"/></geometry>
    </collision>
  </link>
  <link name="c">
    <collision><geometry><capsule radius="0.03" length="0.1"/></geometry></collision>
    <collision><origin xyz="0 0 0.2"/><geometry><mesh filename="box.stl" scale="1 -1 0.5"/>
    </geometry></collision>
  </link>
  <joint name="one" type="revolute"><parent link="a"/><child link="b"/><axis xyz="0 0 1"/></joint>
  <joint name="two" type="prismatic"><parent link="b"/><child link="c"/></joint>
</robot>"""


def test_shapes_of_a_urdf_are_covered(tmp_path):
    trimesh.creation.box((0.1, 0.2, 0.3)).export(tmp_path / "box.stl")
    (tmp_path / "ordinary.urdf").write_text(ORDINARY)
    robot = RobotSpheres(tmp_path / "ordinary.urdf", max_overshoot=0.03)
    assert {link: len(reports) for link, reports in robot.fits.items()} == {"a": 1, "b": 1, "c": 2}
    for reports in robot.fits.values():
        assert all(report.uncovered == 0.0 for report in reports)
        assert all(report.overshoot <= 0.03 + 1e-6 for report in reports)
    # The turned spheres round in float64.
    assert all(report.uncovered < 1e-3 for report in robot.coverage().values())
    assert [0.0, 0.0, 0.0, 0.06] in robot.spheres_of("a").tolist()
    boxed = trimesh.creation.box((0.1, 0.2, 0.15)).apply_translation((0, 0, 0.2))
    points, _ = trimesh.sample.sample_surface(boxed, 5000, seed=4)
    assert farthest(points, robot.spheres_of("c")) <= 1e-9
    again = RobotSpheres(tmp_path / "ordinary.urdf", max_overshoot=0.03)
    np.testing.assert_array_equal(again.spheres_of("b"), robot.spheres_of("b"))
    coarse = RobotSpheres(tmp_path / "ordinary.urdf", max_overshoot=0.08)
    assert coarse.n_spheres < robot.n_spheres
    given = RobotSpheres(tmp_path / "ordinary.urdf", spheres={"c": [[0, 0, 0, 0.1]]})
    assert given.fits == {}
    assert given.links_without_spheres == ("a", "b")


def test_meshes_in_millimetres_are_refused_before_anything_is_fitted(tmp_path, monkeypatch):
    trimesh.creation.box((100.0, 200.0, 300.0)).export(tmp_path / "box.stl")
    (tmp_path / "mm.urdf").write_text(ORDINARY)
    fits = []
    monkeypatch.setattr(fit_cache, "fit_parts", lambda *given: fits.append(given))
    with pytest.raises(
        ValueError, match=r"mm\.urdf: link 'c': mesh 'box\.stl' of 1.* m must be at"
    ) as e:
        RobotSpheres(tmp_path / "mm.urdf", max_overshoot=0.02)
    assert "20 m long" in str(e.value)
    with pytest.raises(ValueError, match="must be at most 20 m long"):
        RobotSpheres(tmp_path / "mm.urdf")
    assert 'in mm? scale="0.001 0.001 0.001"' in str(e.value)
    assert fits == []


@pytest.mark.slow
def test_a_shape_with_too_many_pieces_is_named(tmp_path):
    trimesh.creation.icosphere(1, 0.2).export(tmp_path / "box.stl")
    (tmp_path / "fine.urdf").write_text(ORDINARY)
    with pytest.raises(ValueError, match=r"link 'a': Cuboid.* max_overshoot must be larger"):
        RobotSpheres(tmp_path / "fine.urdf", max_overshoot=8e-4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"solid", "link 'c': mesh 'box.stl': "),
        (None, "link 'c': mesh 'box.stl': there is no file"),
    ],
)
def test_a_urdf_with_a_bad_mesh(tmp_path, content, message):
    if content is not None:
        (tmp_path / "box.stl").write_bytes(content)
    (tmp_path / "ordinary.urdf").write_text(ORDINARY)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        RobotSpheres(tmp_path / "ordinary.urdf")


@pytest.mark.parametrize("corners", [3, 8, 20, 70])
def test_a_ball_contains_a_piece_if_it_contains_its_corners(corners):
    rng = np.random.default_rng(corners)
    pieces = rng.normal(size=(250, 1, 3)) + 0.3 * rng.normal(size=(250, corners, 3))
    pieces[::3, corners // 2 :] = pieces[::3, :1]  # as groups with fewer corners have it
    balls = np.column_stack([rng.normal(size=(40, 3)), rng.uniform(0.1, 3.0, 40)])
    reach = np.linalg.norm(pieces[None] - balls[:, None, None, :3], axis=3).max(axis=2)
    found = sphere_fit._holders(balls, pieces, 1e-6).toarray() > 0.0
    np.testing.assert_array_equal(found.T, reach <= balls[:, 3:] - 1e-6)
    assert 0.1 < found.mean() < 0.9
    assert sphere_fit._holders(balls, pieces[:0], 1e-6).shape == (0, 40)
    assert sphere_fit._holders(balls[:0], pieces, 1e-6).shape == (250, 0)


def test_the_first_ball_around_everything_covers_alone():
    rng = np.random.default_rng(8)
    mesh = turned(trimesh.creation.annulus(0.2, 0.5, 0.3), 3)
    solid = Solid("ring", mesh)
    balls = np.column_stack([rng.normal(0.0, 0.2, (300, 3)), rng.uniform(0.3, 0.9, 300)])
    apart = np.linalg.norm(mesh.vertices[None] - balls[:, None, :3], axis=2).max(axis=1)
    holds = np.flatnonzero(apart <= balls[:, 3] - 1e-5)
    assert len(holds) < 200
    assert holds[0] > 0
    [ball] = sphere_fit._around(solid, balls)
    np.testing.assert_allclose(ball[:3], balls[holds[0], :3], atol=1e-7)
    assert apart[holds[0]] < ball[3] < apart[holds[0]] + 1e-5
    assert len(sphere_fit._around(solid, balls[apart > balls[:, 3]])) == 0


def test_groups_are_of_triangles_in_one_cube():
    rng = np.random.default_rng(9)
    triangles = rng.uniform(-1.0, 1.0, (400, 1, 3)) + rng.normal(0.0, 0.05, (400, 3, 3))
    corners, group = groups(triangles, 0.4)
    cells = np.floor(triangles.mean(axis=1) / 0.4)
    assert len(corners) == len(np.unique(cells, axis=0)) == group.max() + 1
    for index, members in enumerate(corners):
        assert (cells[group == index] == cells[group == index][0]).all()
        expected = {*map(tuple, triangles[group == index].reshape(-1, 3))}
        assert {*map(tuple, members)} == expected


def test_a_greedy_cover_takes_what_covers_most_of_the_rest():
    rng = np.random.default_rng(5)
    table = rng.uniform(size=(80, 200)) < 0.08
    weights = np.floor(rng.uniform(1.0, 9.0, 200))
    left, expected = weights.copy(), []
    while (table * left).sum(axis=1).max() > 0.0:
        expected.append(int((table * left).sum(axis=1).argmax()))
        left[table[expected[-1]]] = 0.0
    held = sparse.csr_array(table.astype(np.float64))
    for count in (None, 5):
        chosen = sphere_fit._greedy(held.T.tocsr(), held, weights, count)
        np.testing.assert_array_equal(chosen, expected[:count])

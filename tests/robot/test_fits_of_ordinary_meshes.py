"""Fine, thin, open, flat and dirty meshes are covered; defaults by size; fits kept on disk."""

import functools
import json
import os
import threading

import numpy as np
import pytest
import trimesh
from benchmarks import robots

from cases import mostly_slow
from warp_collision import Cuboid
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres, SphereFit, coverage, fit_spheres
from warp_collision.robot.fitting import fit_cache
from warp_collision.robot.fitting.fit_cache import cached_coverage, cached_fit

URDF = """<robot name="two">
  <link name="torso"><collision><geometry><box size="0.5 0.3 0.6"/></geometry></collision></link>
  <link name="finger"><collision><geometry><box size="0.02 0.01 0.05"/></geometry></collision>
  </link>
  <joint name="one" type="revolute"><parent link="torso"/><child link="finger"/>
  <axis xyz="0 0 1"/><limit lower="-1" upper="1"/></joint>
</robot>"""


def uncovered_by(spheres: np.ndarray, points: np.ndarray) -> tuple[float, float]:
    """Fraction of the points in no sphere, and how far they are from one at most, in float64."""
    gaps = np.linalg.norm(points[:, None] - spheres[None, :, :3], axis=2) - spheres[:, 3]
    nearest = gaps.min(axis=1)
    return float((nearest > 0.0).mean()), float(nearest.max())


def samples(mesh: trimesh.Trimesh, count: int = 20_000) -> np.ndarray:
    """Points of the surface, corners included."""
    return np.concatenate([trimesh.sample.sample_surface(mesh, count, seed=1)[0], mesh.vertices])


def soup(seed: int) -> trimesh.Trimesh:
    """Triangles that cross each other."""
    rng = np.random.default_rng(seed)
    return trimesh.Trimesh(
        rng.uniform(-0.2, 0.2, (30, 3)), rng.permutation(30).reshape(10, 3), process=False
    )


def two_bodies() -> trimesh.Trimesh:
    return trimesh.util.concatenate(
        [trimesh.creation.box((0.3, 0.1, 0.02)), trimesh.creation.icosphere(2, 0.08)]
    )


def hemisphere() -> trimesh.Trimesh:
    ball = trimesh.creation.icosphere(3, 0.1)
    return trimesh.Trimesh(ball.vertices, ball.faces[ball.triangles_center[:, 2] > 0.0])


MESHES = {
    "box": lambda: trimesh.creation.box((0.3, 0.1, 0.2)),
    "torus": lambda: trimesh.creation.torus(0.1, 0.03),
    "cylinder": lambda: trimesh.creation.cylinder(0.05, 0.3),
    "two bodies": two_bodies,
    "hemisphere": hemisphere,
    "soup": lambda: soup(1),
    "many crossing triangles": lambda: soup(2),
}


@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("resolution", mostly_slow((1e-3, 4e-3), (4e-3,)))
def test_reports_agree_with_dense_samples(name, resolution):
    """A report is never below the fraction that a dense float64 sample finds, and near it."""
    mesh, rng = MESHES[name](), np.random.default_rng(3)
    points = trimesh.sample.sample_surface(mesh, 40_000, seed=1)[0]
    for count in (1, 4, 12):
        spheres = np.column_stack(
            [rng.uniform(*mesh.bounds, (count, 3)), rng.uniform(0.01, 0.1, count)]
        )
        fraction, gap = uncovered_by(spheres, points)
        gap = max(gap, uncovered_by(spheres, mesh.vertices)[1])
        report = coverage(spheres, mesh, resolution=resolution)
        noise = 4.0 * np.sqrt(0.25 / len(points))
        assert fraction - noise <= report.uncovered <= fraction + noise + 20.0 * resolution
        assert gap <= report.gap <= gap + resolution + 5e-3


@pytest.mark.parametrize("subdivisions", [4, pytest.param(6, marks=pytest.mark.slow)])
def test_a_fine_mesh_is_covered(subdivisions):
    """With 5,120 faces, and 81,920."""
    ball = trimesh.creation.icosphere(subdivisions, 0.05)
    fit = fit_spheres(ball, max_overshoot=0.002)
    assert (fit.report.uncovered, fit.report.gap) == (0.0, 0.0)
    assert fit.report.count == 1
    assert fit.report.overshoot <= 0.002 + 1e-6
    assert uncovered_by(fit.spheres, samples(ball))[0] == 0.0


def test_a_fine_open_mesh_is_covered():
    """No ball larger than the overshoot is allowed anywhere: groups get balls around them."""
    ball = trimesh.creation.icosphere(4, 0.05)
    mesh = trimesh.Trimesh(ball.vertices, ball.faces[ball.triangles_center[:, 2] > 0.0])
    fit = fit_spheres(mesh, max_overshoot=0.01)
    assert (fit.report.uncovered, fit.report.gap) == (0.0, 0.0)
    assert fit.report.overshoot <= 0.01 + 1e-6
    assert fit.report.count <= 60
    assert uncovered_by(fit.spheres, samples(mesh, 5000))[0] == 0.0


@pytest.mark.parametrize("height", mostly_slow((1e-8, 1e-9, 1e-12, 0.0), (1e-9, 0.0)))
@pytest.mark.parametrize("place", [0.0, 0.2])
def test_a_lone_sliver_is_covered_too(height, place):
    """One that float32 cannot tell from a line, in the middle of a face or away from all others."""
    box = trimesh.creation.box((0.1, 0.1, 0.1))
    top = 0.05 + place
    sliver = np.array([[0.0, 0.0, top], [0.04, 0.0, top], [0.02, height, top]])
    mesh = trimesh.Trimesh(
        np.concatenate([box.vertices, sliver]), np.concatenate([box.faces, [[8, 9, 10]]]),
        process=False,
    )  # fmt: skip
    fit = fit_spheres(mesh, max_overshoot=0.02)
    assert (fit.report.uncovered, fit.report.gap) == (0.0, 0.0)
    assert fit.report.overshoot <= 0.02 + 1e-6
    assert uncovered_by(fit.spheres, samples(mesh))[1] <= 0.0
    ends = sliver[:2] + (sliver[1] - sliver[0]) * np.array([[0.5], [-0.5]])
    assert uncovered_by(fit.spheres, np.concatenate([ends, sliver]))[1] <= 0.0


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_a_mesh_of_slivers_alone(scale):
    line = np.array([[0.0, 0.0, 0.0], [0.3, 0.0, 0.0], [0.1, 0.0, 0.0]]) * scale
    fit = fit_spheres((line, [[0, 1, 2]]))
    assert fit.report.gap == 0.0
    assert 1 < fit.report.count <= 40
    assert uncovered_by(fit.spheres, np.linspace(line[0], line[1], 1000))[1] <= 0.0


SQUARE = np.array([[0.0, 0, 0], [0.2, 0, 0], [0.2, 0.1, 0], [0, 0.1, 0]])
SHEET = (SQUARE, np.array([[0, 1, 2], [0, 2, 3]]))
CLOSED_SHEET = (SQUARE, np.array([[0, 1, 2], [0, 2, 3], [2, 1, 0], [3, 2, 0]]))


@pytest.mark.parametrize("mesh", [SHEET, CLOSED_SHEET], ids=["flat", "closed to nothing"])
def test_what_encloses_nothing_is_filled(mesh):
    fit = fit_spheres(mesh, max_overshoot=0.02, fill=True)
    assert fit.report.uncovered_inside == fit.report.uncovered == 0.0
    assert uncovered_by(fit.spheres, samples(trimesh.Trimesh(*mesh)))[1] <= 0.0
    assert coverage(fit.spheres, mesh, fill=True).uncovered_inside == 0.0
    assert coverage(fit.spheres[:1], mesh, fill=True, resolution=4e-3).uncovered_inside in (
        0.0,
        1.0,
    )
    panda = load_panda()
    panda.attach("sheet", "panda_hand", mesh, max_overshoot=0.02)
    assert panda.sphere_links.count("sheet") == fit.report.count


def test_the_default_goes_by_size(tmp_path):
    # Scaled by a power of two nothing is rounded otherwise. By other factors the ties of a greedy
    # cover, of which a box has many, are broken otherwise, and counts differ by a few.
    small, large = (fit_spheres(Cuboid(tuple(s * np.array((0.2, 0.1, 0.4))))) for s in (0.125, 2.0))
    np.testing.assert_array_equal(large.spheres, 16.0 * small.spheres)
    assert large.report.count <= 40
    assert large.report.overshoot == pytest.approx(16.0 * small.report.overshoot, rel=1e-6)
    (tmp_path / "two.urdf").write_text(URDF)
    robot = RobotSpheres(tmp_path / "two.urdf")
    assert all(robot.sphere_links.count(link) <= 40 for link in ("torso", "finger"))
    assert robot.fits["finger"][0].overshoot < 0.006 < 0.03 < robot.fits["torso"][0].overshoot
    assert all(report.uncovered == 0.0 for some in robot.fits.values() for report in some)
    assert all(report.uncovered == 0.0 for report in robot.coverage().values())


def test_how_far_spheres_stick_out(tmp_path):
    """What the benchmark of robots says of the links, as length and as share of their sizes."""
    (tmp_path / "two.urdf").write_text(URDF)
    robot = RobotSpheres(tmp_path / "two.urdf")
    lengths, shares = robots.overshoots(robot)
    sticks_out = [robot.fits[link][0].overshoot for link in ("torso", "finger")]
    np.testing.assert_array_equal(lengths, sticks_out)
    sizes = np.sqrt([0.25 + 0.09 + 0.36, 4e-4 + 1e-4 + 25e-4])
    np.testing.assert_allclose(shares, sticks_out / sizes)


def test_an_overshoot_for_some_links(tmp_path):
    (tmp_path / "two.urdf").write_text(URDF)
    default = RobotSpheres(tmp_path / "two.urdf")
    robot = RobotSpheres(tmp_path / "two.urdf", max_overshoot={"finger": 0.002})
    assert robot.fits["finger"][0].overshoot <= 0.002 + 1e-6
    np.testing.assert_array_equal(robot.spheres_of("torso"), default.spheres_of("torso"))
    with pytest.raises(ValueError, match=r"keys of max_overshoot must be links .*\['thumb'\]"):
        RobotSpheres(tmp_path / "two.urdf", max_overshoot={"thumb": 0.002})
    with pytest.raises(ValueError, match="max_overshoot of 'finger' must be positive, got 0"):
        RobotSpheres(tmp_path / "two.urdf", max_overshoot={"finger": 0})


def test_progress_names_the_links(tmp_path):
    (tmp_path / "two.urdf").write_text(URDF)
    calls = []
    RobotSpheres(tmp_path / "two.urdf", progress=lambda *given: calls.append(given))
    assert calls == [("torso", 1, 2), ("finger", 2, 2)]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of an empty cache of fits."""
    monkeypatch.setenv("WARP_COLLISION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fits"


def test_a_fit_is_read_back(cache, monkeypatch):
    box = trimesh.creation.box((0.1, 0.2, 0.3))
    fits = [cached_fit(box, 0.1, fill=fill) for fill in (False, True)]
    shape = cached_fit(Cuboid((0.1, 0.2, 0.3)), 0.1, fill=False)
    assert len([*cache.iterdir()]) == 3
    monkeypatch.setattr(fit_cache, "fit_spheres", None)
    for fill, fit in zip((False, True), fits, strict=True):
        again = cached_fit(box.copy(), 0.1, fill=fill)
        np.testing.assert_array_equal(again.spheres, fit.spheres)
        assert again.report == fit.report
    np.testing.assert_array_equal(
        cached_fit(Cuboid((0.1, 0.2, 0.3)), 0.1, fill=False).spheres, shape.spheres
    )
    for other in (lambda: cached_fit(box, 0.101, fill=False), lambda: cached_fit(
        trimesh.creation.box((0.1, 0.2, 0.300001)), 0.1, fill=False
    )):  # fmt: skip
        with pytest.raises(TypeError, match="not callable"):
            other()


def test_what_spheres_leave_out_is_computed_once(cache, monkeypatch):
    box, spheres = trimesh.creation.box((0.1, 0.2, 0.3)), np.array([[0.0, 0.0, 0.0, 0.15]])
    found = cached_coverage(spheres, box, 0.01)
    assert found == coverage(spheres, box, resolution=0.01)
    of_robot = load_panda().coverage(links=["panda_link0"], resolution=0.01)
    monkeypatch.setattr(fit_cache, "coverage", None)
    assert cached_coverage(spheres.copy(), box.copy(), 0.01) == found
    assert load_panda().coverage(links=["panda_link0"], resolution=0.01) == of_robot
    other = trimesh.creation.box((0.1, 0.2, 0.300001))
    for changed in ((spheres + 1e-9, box, 0.01), (spheres, other, 0.01), (spheres, box, 0.02)):
        with pytest.raises(TypeError, match="not callable"):
            cached_coverage(*changed)


@functools.cache
def box_fit() -> SphereFit:
    return fit_spheres(trimesh.creation.box((0.1, 0.2, 0.3)), max_overshoot=0.08)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"fits": []}', '{"fits": [{"spheres": [[0, 0]], "report": [1]}]}'],
)
def test_what_is_no_fit_is_fitted_again(cache, text, monkeypatch):
    box = trimesh.creation.box((0.1, 0.2, 0.3))
    fit = box_fit()
    monkeypatch.setattr(fit_cache, "fit_spheres", lambda *_, **__: fit)
    cached_fit(box, 0.08, fill=False)
    [file] = cache.iterdir()
    whole = file.read_text()
    file.write_text(text)
    np.testing.assert_array_equal(cached_fit(box, 0.08, fill=False).spheres, fit.spheres)
    assert file.read_text() == whole
    assert json.loads(whole)["fits"][0]["report"][1] <= 0.08 + 1e-6


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WARP_COLLISION_CACHE", str(tmp_path / "file"))
    assert len(cached_fit(trimesh.creation.box((0.1, 0.2, 0.3)), 0.03, fill=False).spheres)


@pytest.mark.slow
def test_readers_see_no_part_of_a_fit(cache):
    """One thread writes a file many times, as other processes would; another one reads it."""
    path, fit = cache / "fit.json", fit_spheres(trimesh.creation.box((0.1, 0.2, 0.3)), count=4)
    content = {"spheres": fit.spheres.tolist() * 50, "report": [50 * fit.report.count, 0, 0, 0]}
    fit_cache._write(path, content)
    writer = threading.Thread(target=lambda: [fit_cache._write(path, content) for _ in range(30)])
    writer.start()
    while writer.is_alive():
        assert len(fit_cache._read(json.loads(path.read_text())).spheres) == 50 * fit.report.count
    writer.join()
    assert os.listdir(cache) == ["fit.json"]


def test_the_cache_is_in_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("WARP_COLLISION_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fit_cache._folder() == tmp_path / "warp-collision"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fit_cache._folder() == tmp_path / ".cache" / "warp-collision"


def test_links_of_equal_meshes_are_fitted_once(cache, tmp_path, monkeypatch):
    """Mirrored ones too; in threads, of which each link's spheres are those of one thread."""
    body = trimesh.creation.cone(0.05, 0.2, sections=12)
    trimesh.util.concatenate([body, trimesh.creation.box((0.2, 0.03, 0.03))]).export(
        tmp_path / "hand.stl"
    )
    link = """<link name="{}"><collision><origin xyz="0 0 {}" rpy="{} 0 0"/><geometry>
      <mesh filename="hand.stl" scale="1 {} 1"/></geometry></collision></link>"""
    joint = """<joint name="{0}" type="revolute"><parent link="left"/><child link="{0}"/>
      <origin xyz="0 2 0"/><axis xyz="0 0 1"/><limit lower="-1" upper="1"/></joint>"""
    links = [("left", 0, 0, 1), ("right", 0, 0, -1), ("third", 0.1, 0.5, 1), ("small", 0, 0, 0.5)]
    joints = [joint.format(name) for name, *_ in links[1:]]
    text = "".join([link.format(*row) for row in links] + joints)
    (tmp_path / "hands.urdf").write_text(f'<robot name="hands">{text}</robot>')
    fit_parts, fits = fit_cache.fit_parts, []
    monkeypatch.setattr(fit_cache, "fit_parts", lambda *given: fits.append(0) or fit_parts(*given))
    robot = RobotSpheres(tmp_path / "hands.urdf")
    assert len(fits) == 2
    left, right = robot.spheres_of("left"), robot.spheres_of("right")
    np.testing.assert_allclose(right, left * (1.0, -1.0, 1.0, 1.0), atol=1e-12)
    assert all(report.uncovered == 0.0 for report in robot.coverage().values())

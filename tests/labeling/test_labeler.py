"""`PathLabeler`: labels against a plain loop, rows apart from each other, worlds packed."""

import json
import os
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import trimesh

from labels import PROBLEMS, assert_same, plain_loop, problem_rows, world_of
from warp_collision import MeshWorld, RobotSpheres, joint_path_in_collision
from warp_collision.examples import load_panda, load_problem
from warp_collision.labeling import PathLabeler, PathRow
from warp_collision.labeling.columns import rows_of
from warp_collision.labeling.labeler import ALL_OUTPUTS, OUTPUTS
from warp_collision.labeling.world_cache import WorldCache

WORLDS = {name: world_of(name) for name in PROBLEMS}


@pytest.fixture(scope="module")
def panda() -> RobotSpheres:
    return load_panda()


@pytest.fixture(scope="module")
def rows() -> list[PathRow]:
    """Paths of different lengths, in 16 worlds."""
    return problem_rows(48, seed=0)


def test_labels_are_those_of_the_plain_loop(panda, rows):
    found = PathLabeler(panda, WORLDS, outputs=ALL_OUTPUTS).label(rows)
    assert_same(found, plain_loop(rows, panda, WORLDS))
    assert not any(found["error"])
    assert 5 < found["free"].sum() < 43
    # What is free is proven with the tolerance, and the certified clearance agrees.
    lower = np.minimum(found["clearance"], found["self_clearance"])
    assert (lower[found["free"]] > 0.0).all()
    assert (lower[~found["free"]] < 1e-3).all()


def test_contacts_are_where_the_robot_touches(panda, rows):
    """At the position of a contact the spheres of the link are as deep as the label says."""
    found = PathLabeler(panda, WORLDS).label(rows)
    for index in np.flatnonzero(found["depth"] > 0.0):
        row, position = rows[index], float(found["position"][index])
        step = min(int(position), max(len(row.path) - 2, 0))
        before, after = row.path[step], row.path[min(step + 1, len(row.path) - 1)]
        joints = torch.tensor(before + (position - step) * (after - before), dtype=torch.float32)
        world = MeshWorld()
        world.load(load_problem(row.world).obstacles)
        report = panda.report(joints[None, None], world)
        contacts = dict(
            zip(zip(report.link, report.obstacle, strict=True), report.depth, strict=True)
        )
        depth = contacts[found["link"][index], found["obstacle"][index]]
        assert depth == pytest.approx(found["depth"][index], abs=2e-5)
        assert found["first_contact"][index] <= position + 1e-4


def test_up_to_the_first_contact_a_path_is_free(panda, rows):
    labeler = PathLabeler(panda, WORLDS)
    found = labeler.label(rows)
    assert np.isnan(found["first_contact"][found["free"]]).all()
    shorter = []
    for index in np.flatnonzero(found["first_contact"] > 0.0):
        path, end = rows[index].path, float(found["first_contact"][index])
        step = int(end)
        last = path[step] + (end - step) * (path[min(step + 1, len(path) - 1)] - path[step])
        # A step of joint values in float32 back: the first part that is not free begins there.
        shorter.append(rows[index]._replace(path=np.stack([*path[: step + 1], last])))
    assert len(shorter) > 5
    assert labeler.label(shorter)["free"].mean() > 0.9


@pytest.mark.parametrize("cache_bytes", [1, 20_000, 1 << 28])
def test_a_row_has_the_same_bits_in_any_batch_and_cache(panda, rows, cache_bytes):
    whole = PathLabeler(panda, WORLDS, outputs=ALL_OUTPUTS).label(rows)
    labeler = PathLabeler(panda, WORLDS, outputs=ALL_OUTPUTS, cache_bytes=cache_bytes + 1)
    order = np.random.default_rng(1).permutation(len(rows))
    parts = [labeler.label([rows[i] for i in part]) for part in np.split(order, [1, 8, 29])]
    mixed = {name: np.concatenate([part[name] for part in parts]) for name in whole}
    assert_same({name: values[np.argsort(order)] for name, values in mixed.items()}, whole)


def test_a_batch_is_a_few_launches(panda, monkeypatch):
    """1,000 rows in 200 worlds: as many launches as rows in one world need."""
    from warp_collision.labeling import robot_paths

    calls = []
    original = robot_paths.joint_path_in_collision

    def counted(joints, *arguments, **options):
        calls.append(len(joints))
        return original(joints, *arguments, **options)

    monkeypatch.setattr(robot_paths, "joint_path_in_collision", counted)
    ball = {"sphere": {"ball": {"radius": 0.1, "position": [0.5, 0.0, 0.5]}}}
    worlds = {}
    for index in range(200):
        ball["sphere"]["ball"]["position"][1] = 0.001 * index
        worlds[f"w{index}"] = json.loads(json.dumps(ball))
    path = np.array([[-0.9, 0, 0, -1.6, 0, 1.6, 0.8], [-0.8, 0, 0, -1.6, 0, 1.6, 0.8]])
    rows = [PathRow(path, f"w{index % 200}") for index in range(1000)]
    found = PathLabeler(panda, worlds, outputs=("free",)).label(rows)
    assert found["free"].all()
    assert calls == [1000]


def test_yes_or_no_alone_leaves_out_what_is_decided(panda, rows, monkeypatch):
    """The same answers; of a path that is not free, only segments up to the first such turn."""
    from warp_collision.labeling import robot_paths

    asked = []
    original = robot_paths.joint_path_in_collision

    def counted(joints, *arguments, **options):
        asked.append(len(joints))
        return original(joints, *arguments, **options)

    expected = PathLabeler(panda, WORLDS).label(rows)["free"]
    monkeypatch.setattr(robot_paths, "joint_path_in_collision", counted)
    found = PathLabeler(panda, WORLDS, outputs=["free"]).label(rows)
    np.testing.assert_array_equal(found["free"], expected)
    assert asked[0] == sum(-(-max(1, len(row.path) - 1) // 4) for row in rows)
    assert sum(asked) < 0.8 * sum(max(1, len(row.path) - 1) for row in rows)


def test_lists_of_tables_are_the_paths_they_hold(panda):
    """Paths of several lengths, in slices of chunks: not those of other rows."""
    pa = pytest.importorskip("pyarrow")
    rows = problem_rows(12, seed=8)
    chunk = pa.array([row.path.tolist() for row in rows], pa.list_(pa.list_(pa.float32())))
    table = pa.table(
        {
            "path": pa.chunked_array([chunk.slice(3, 4), chunk.slice(7, 5)]),
            "world": [row.world for row in rows[3:]],
        }
    )
    for found, row in zip(rows_of(table, {}), rows[3:], strict=True):
        np.testing.assert_array_equal(found.path, row.path)
        assert found.path.dtype == np.float32


def test_bad_rows_are_errors_of_their_own(panda, tmp_path):
    good = problem_rows(1, seed=3)[0]
    nan = good.path.copy()
    nan[-1, 2] = np.nan
    (tmp_path / "bad.yaml").write_text("cuboid: {table: {dims: [1, 1]}}")
    bad = {
        "path must be finite, got nan at waypoint": good._replace(path=nan),
        "path must have shape (horizon, 7), got": good._replace(path=np.zeros((4, 6))),
        "path must have shape (horizon, 7), got (0, 7)": good._replace(path=np.zeros((0, 7))),
        "path must be numbers, the same count": good._replace(path=[[1.0] * 7, [1.0] * 6]),
        "path must be given, got none": good._replace(path=None),
        "none.yaml: no such file": good._replace(world="none.yaml"),
        "bad.yaml: ": good._replace(world="bad.yaml"),
        "world must be one of 'cage_8'": good._replace(world="cage"),
        "world must be given, one of": good._replace(world=None),
        "world must be valid JSON": good._replace(world="{"),
        "must have one of": good._replace(world={"cuboids": {}}),
        "base_pose must be 7 finite numbers": good._replace(base_pose=[0.0] * 6),
        "other than 0": good._replace(base_pose=[0.0] * 7),
        "env must be 0 in a world of one env, got 3": good._replace(env=3),
        "robot must not be given": good._replace(robot="ur5"),
        "what a reader found": good._replace(error="what a reader found"),
    }
    labeler = PathLabeler(panda, WORLDS, folder=tmp_path)
    rows = [good, *bad.values(), good]
    found = labeler.label(rows)
    alone = labeler.label([good])
    assert found["error"][0] is None
    assert found["error"][-1] is None
    for name in OUTPUTS:
        assert found[name][0] == found[name][-1] == alone[name][0] or np.isnan(alone[name][0])
    assert not found["free"][1:-1].any()
    assert np.isnan(found["clearance"][1:-1]).all()
    for index, text in enumerate(bad, 1):
        error = found["error"][index]
        if text == "must have one of":  # a kind that is not known
            assert "cuboids" in error
        else:
            assert text in error, (index, error)


def test_a_world_file_that_changes(panda, tmp_path):
    row = problem_rows(1, seed=4)[0]._replace(world="world.yaml")
    file = tmp_path / "world.yaml"
    file.write_text(json.dumps(world_of("cage_1")))
    labeler = PathLabeler(panda, folder=tmp_path)
    first = labeler.label([row])
    assert first["error"][0] is None
    assert_same(labeler.label([row]), first)
    time.sleep(0.01)
    file.write_text(json.dumps(world_of("cage_2")))
    error = labeler.label([row])["error"][0]
    assert error.endswith("must not change while paths are labelled, but it was written since")
    # In every process alike, if it was written after the start.
    started = os.stat(file).st_mtime
    assert PathLabeler(panda, folder=tmp_path, since=started + 1).label([row])["error"][0] is None
    late = PathLabeler(panda, folder=tmp_path, since=started - 1).label([row])["error"][0]
    assert late == error
    file.unlink()
    assert labeler.label([row])["error"][0].endswith("world.yaml: no such file")


def test_batches_are_dicts_or_tables(panda, rows):
    pa = pytest.importorskip("pyarrow")
    labeler = PathLabeler(panda, WORLDS, keep=["split"], outputs=ALL_OUTPUTS)
    expected = labeler.label(rows)
    values = {
        "id": np.arange(len(rows)),
        "world": np.array([row.world for row in rows]),
        "split": np.array(["train", "test"] * (len(rows) // 2)),
    }
    paths = np.empty(len(rows), dtype=object)
    paths[:] = [row.path for row in rows]
    found = labeler({**values, "path": paths})
    assert [*found] == ["id", "split", *ALL_OUTPUTS, "error"]
    assert_same({k: found[k] for k in expected}, expected)
    assert found["split"] is values["split"]
    lists = {
        "lists": pa.array([path.tolist() for path in paths], pa.list_(pa.list_(pa.float64()))),
        "fixed": pa.array([[*path] for path in paths], pa.large_list(pa.list_(pa.float64(), 7))),
    }
    for column in lists.values():
        table = pa.table({**values, "joints": column})
        labelled = labeler(table)
        assert isinstance(labelled, pa.Table)
        assert labelled["id"].to_pylist() == values["id"].tolist()
        assert labelled["split"].to_pylist() == values["split"].tolist()
        # Lists of float64: the same joint values.
        np.testing.assert_array_equal(labelled["clearance"].to_numpy(), expected["clearance"])
        assert labelled["link"].to_pylist() == expected["link"].tolist()
        assert labelled.schema == labeler(table.slice(0, 1)).schema
        assert (
            labelled["waypoint_clearance"][3].as_py() == expected["waypoint_clearance"][3].tolist()
        )
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((3, 5, 7)))
    table = pa.table({"path": tensors, "world": ["cage_1"] * 3})
    assert labeler_free(panda)(table)["error"].null_count == 3


def labeler_free(panda) -> PathLabeler:
    return PathLabeler(panda, WORLDS, outputs=["free"])


def test_nulls_and_ragged_lists_of_a_table(panda):
    pa = pytest.importorskip("pyarrow")
    good = problem_rows(1, seed=5)[0].path.tolist()
    ragged, hole = [[0.0] * 7, [0.0] * 6], [[0.0] * 6 + [None]]
    table = pa.table({"path": [good, None, ragged, hole, []], "world": ["cage_1"] * 5})
    errors = labeler_free(panda)(table)["error"].to_pylist()
    assert errors[0] is None
    assert errors[1] == "path must be given, got none"
    assert "must have the same number of values at each waypoint" in errors[2]
    assert "must have no nulls" in errors[3]
    assert errors[4] is not None


def test_wrong_options_and_columns(panda):
    with pytest.raises(ValueError, match=r"outputs must be of free, clearance, .*, got 'freedom'"):
        PathLabeler(panda, outputs=["freedom"])
    with pytest.raises(ValueError, match="tolerance must be positive, got 0"):
        PathLabeler(panda, tolerance=0.0)
    labeler = PathLabeler(panda, WORLDS, columns={"path": "traj"})
    with pytest.raises(ValueError, match="the column of paths must be 'traj', got columns"):
        labeler({"path": np.zeros((1, 2, 7))})
    with pytest.raises(TypeError, match="batch must be a dict of NumPy arrays or an Arrow table"):
        labeler([1])
    with pytest.raises(ValueError, match=r"columns must be of id, path, .*, got 'scene'"):
        PathLabeler(panda, columns={"scene": "world"})({"path": np.zeros((1, 2, 7))})


def test_envs_base_poses_and_robots(panda):
    path = problem_rows(1, seed=6)[0].path
    worlds = {"two": [world_of("cage_1"), world_of("cage_2")], "cage_2": world_of("cage_2")}
    turned = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0]  # half a turn about z, any length
    rows = [
        PathRow(path, "two", env=1, robot="panda"),
        PathRow(path, "cage_2", robot="panda"),
        PathRow(path, "two", env=0, robot="panda"),
        PathRow(path, "cage_2", base_pose=turned, robot="panda"),
        PathRow(path, "cage_2", robot="ur5"),
        PathRow(path, "two", robot="panda"),
    ]
    found = PathLabeler({"panda": panda}, worlds).label(rows)
    first, second = ({k: v[i : i + 1] for k, v in found.items()} for i in (0, 1))
    assert_same(first, second)
    assert found["clearance"][2] != found["clearance"][1]
    assert found["clearance"][3] > found["clearance"][1] + 0.1
    assert found["error"][4] == "robot must be one of 'panda', got 'ur5'"
    assert found["error"][5] == "env must be in [0, 2), got None"
    everywhere = PathLabeler(panda, worlds, base_pose=turned).label([PathRow(path, "cage_2")])
    assert everywhere["clearance"][0] == found["clearance"][3]


def test_a_mesh_world_for_all(panda, rows):
    world = MeshWorld(2)
    world.load(load_problem("cage_1").obstacles, 1)
    row = rows[0]._replace(world=None)
    found = PathLabeler(panda, world).label([row._replace(env=1), row, row._replace(env=2)])
    single = PathLabeler(panda, world_of("cage_1")).label([row])
    assert found["clearance"][0] == single["clearance"][0]
    assert np.isposinf(found["clearance"][1])
    assert found["error"][2] == "env must be in [0, 2), got 2"


def test_wanted_contacts_where_a_world_has_them(panda, rows):
    names = {name for world in WORLDS.values() for kind in world.values() for name in kind}
    ignore = [(link, name) for link in panda.link_names for name in names]
    found = PathLabeler(panda, WORLDS, ignore=ignore).label(rows)
    assert np.isposinf(found["clearance"]).all()
    assert not any(found["error"])


def test_it_can_be_pickled(panda, rows):
    labeler = PathLabeler(panda, WORLDS)
    before = labeler.label(rows[:8])
    again = pickle.loads(pickle.dumps(labeler))
    assert len(pickle.dumps(labeler)) < 200_000
    assert_same(again.label(rows[:8]), before)


def test_the_cache_is_bounded(panda, tmp_path):
    """Worlds of meshes: as many are kept as there is room for, those used last."""
    files = []
    for index in range(6):
        file = tmp_path / f"{index}.stl"
        trimesh.creation.icosphere(3, 0.1 + 0.01 * index).export(file)
        files.append(str(file))
    options = {"folder": ".", "since": None, "device": "cpu", "strict": False, "package_dirs": ()}
    options["allow_outside"] = True
    probe = WorldCache(None, max_bytes=1 << 30, **options)
    [*probe.pack([probe.key(files[0])])]
    one = probe.n_bytes
    cache = WorldCache(None, max_bytes=3 * one, **options)
    keys = [cache.key(file) for file in files]
    packs = [({**pack.envs}, cache.n_bytes) for pack, errors in cache.pack(keys) if not errors]
    assert [len(envs) for envs, _ in packs] == [3, 3]
    assert all(n_bytes <= 3 * one for _, n_bytes in packs)
    ((pack, _),) = cache.pack([keys[4], keys[0]])
    assert pack.world.names(pack.envs[keys[0]]) == ["0"]
    assert pack.world.names(pack.envs[keys[4]]) == ["4"]
    # One that is larger than the bound is alone.
    small = WorldCache(None, max_bytes=10, **options)
    assert [[*pack.envs] for pack, _ in small.pack(keys)] == [[key] for key in keys]


_GROWTH = """
import ctypes, gc, json, sys, tempfile
import numpy as np
import trimesh
from warp_collision import HeightField, PointCloud, VoxelGrid
from warp_collision.obstacles.voxel_grid import EsdfGrid
from warp_collision.labeling.world_cache import WorldCache

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def world(index):
    if sys.argv[1] == "spheres":
        balls = {f"s{k}": {"radius": 0.1, "position": [index, 0, k]} for k in range(20)}
        return {"sphere": balls}
    if sys.argv[1] in SENSED:
        file = f"{folder}/{index}.npz"
        np.savez(file, **SENSED[sys.argv[1]](np.random.default_rng(index)).arrays())
        kind = "voxel_grid" if sys.argv[1] == "sparse" else sys.argv[1]
        return {kind: {"s": {"file_path": file, "pose": [0, 0, 0, 1, 0, 0, 0]}}}
    mesh = trimesh.creation.icosphere(int(sys.argv[1]), 0.1 + 0.001 * index)
    values = {"vertices": mesh.vertices.tolist(), "faces": mesh.faces.tolist()}
    return {"mesh": {"m": {**values, "pose": [0, 0, 0, 1, 0, 0, 0]}}}

SENSED = {
    "point_cloud": lambda rng: PointCloud(rng.uniform(-0.5, 0.5, (20_000, 3)), 0.01),
    "voxel_grid": lambda rng: VoxelGrid(rng.random((60, 60, 40)) < 0.1, 0.02),
    "sparse": lambda rng: VoxelGrid(rng.random((30, 40, 90)) < 0.02, 0.02),
    "esdf_grid": lambda rng: EsdfGrid(rng.uniform(0.1, 0.12, (60, 60, 40)), 0.02, error=0.01),
    "height_field": lambda rng: HeightField(rng.uniform(0.0, 0.1, (200, 200)), (2.0, 2.0), 0.1),
}
folder = tempfile.mkdtemp()
cache = WorldCache(None, ".", 1 << 40, None, "cpu", False, False, ())
before = None
for index in range(int(sys.argv[2])):
    for _, errors in cache.pack([cache.key(world(index))]):
        assert not errors, errors
    if index == 3:
        before = cache.n_bytes, resident()
print(json.dumps([cache.n_bytes - before[0], resident() - before[1]]))
"""


_GROWN = [("3", 120), ("4", 60), ("5", 40), ("spheres", 300)]
_GROWN += [
    ("point_cloud", 40),
    ("voxel_grid", 40),
    ("sparse", 60),
    ("esdf_grid", 40),
    ("height_field", 60),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), _GROWN)
def test_the_cache_counts_what_the_process_grows_by(kind, count):
    """From above, and at most 1.6 times as much."""
    command = [sys.executable, "-c", _GROWTH, kind, str(count)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counted, grown = json.loads(told.splitlines()[-1])
    print(kind, counted, grown)
    assert 0.95 * grown < counted < 1.6 * grown


def edge_of(panda: RobotSpheres, pose: np.ndarray, blocked: bool) -> np.ndarray:
    """A path of an arm that folds into itself: it ends where proofs fail, or just before."""
    least, most = 0.0, 1.0
    home = np.array([0.0, -0.8, 0.0, -2.2, 0.0, 1.5, 0.8])

    def path(part: float) -> np.ndarray:
        return np.linspace(home, home + part * (pose - home), 4).astype(np.float32)

    for _ in range(40):
        middle = 0.5 * (least + most)
        hit = joint_path_in_collision(torch.from_numpy(path(middle))[None], panda, MeshWorld())
        least, most = (least, middle) if hit.any() else (middle, most)
    return path(most if blocked else least)


def test_a_path_that_touches_itself_within_the_tolerance_names_its_own_links(panda):
    """Nothing else keeps it from being free, whatever is nearest among obstacles."""
    world = {"cuboid": {"table": {"dims": [1.0, 1.0, 0.1], "pose": [0.0, 0.0, -0.4, 1, 0, 0, 0]}}}
    poses = (
        np.array([0.0, -0.8, 0.0, -3.07, 0.0, -0.0, 0.8]),
        np.array([0, 1.0, 0, -3.0, 0, 3.7, 0]),
    )
    rows = [PathRow(edge_of(panda, pose, blocked=True), "far") for pose in poses]
    found = PathLabeler(panda, {"far": world}).label(rows)
    assert not found["free"].any()
    assert (found["clearance"] > 0.05).all()
    assert (found["self_clearance"] <= 0.0).all()
    assert found["with_itself"].all()
    assert set(found["link"]) | set(found["obstacle"]) <= set(panda.link_names)
    for row, link, other, place in zip(
        rows, found["link"], found["obstacle"], found["position"], strict=True
    ):
        before = int(min(place, len(row.path) - 2))
        near = row.path[before] + (place - before) * (row.path[before + 1] - row.path[before])
        spheres = panda(torch.from_numpy(near)[None, None])[0, 0].double()
        first, second = (
            spheres[[index for index, name in enumerate(panda.sphere_links) if name == own]]
            for own in (link, other)
        )
        apart = torch.cdist(first[:, :3], second[:, :3]) - first[:, 3:] - second[:, 3]
        assert apart.min().item() <= 1e-3


def test_what_is_proven_free_has_no_clearance_below_zero(panda):
    pose = np.array([0.0, -0.8, 0.0, -3.07, 0.0, -0.0, 0.8])
    rows = [PathRow(edge_of(panda, pose, blocked=False), None)]
    found = PathLabeler(panda, MeshWorld()).label(rows)
    assert found["free"].all()
    assert (found["self_clearance"] >= 0.0).all()

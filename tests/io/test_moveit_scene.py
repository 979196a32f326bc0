"""MoveIt planning scenes: real ones, every part of the format, and the errors of wrong ones."""

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import trimesh

from reference import Body
from warp_collision import Cone, Cuboid, Cylinder, MeshWorld, Sphere
from warp_collision.io import LeftOutWarning, load_world_file, load_world_mapping, scene_builder
from world_distances import assert_distances, exact, pose_of, random_frame, solid

PROBLEMS = Path(str(files("warp_collision.assets"))) / "problems"
BOX = {"type": "box", "dimensions": [1.0, 2.0, 3.0]}
HERE = {"position": [0.0, 0.0, 0.0], "orientation": [0.0, 0.0, 0.0, 1.0]}


def scene(*objects: dict, **more: object) -> dict:
    return {"world": {"collision_objects": list(objects)}, **more}


def ros(matrix: np.ndarray, *, named: bool = False) -> dict:
    """A pose as ROS writes it: quaternion x, y, z, w."""
    w, x, y, z = trimesh.transformations.quaternion_from_matrix(matrix)
    values = {"position": matrix[:3, 3].tolist(), "orientation": [float(v) for v in (x, y, z, w)]}
    if named:
        values = {key: dict(zip("xyzw", value, strict=False)) for key, value in values.items()}
    return values


def test_a_real_scene_is_what_was_converted_from_it_by_others():
    found = load_world_file(PROBLEMS / "cage_2.yaml")
    expected = json.loads((PROBLEMS / "cage.json").read_text())["cage_2"]
    known = {**expected["cuboid"], **expected["cylinder"]}
    assert set(found) == set(known)
    for name, (shape, pose, *_) in found.items():
        entry = known[name]
        if "dims" in entry:
            assert isinstance(shape, Cuboid)
            assert shape.dims == pytest.approx(entry["dims"])
        else:
            assert shape == Cylinder(entry["radius"], entry["height"])
        assert pose[:3] == pytest.approx(entry["pose"][:3], abs=1e-6)
        assert abs(np.dot(pose[3:], entry["pose"][3:])) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("named", [False, True])
def test_parts_stand_in_the_frame_of_their_object(named):
    rng = np.random.default_rng(3)
    body, frame, *parts = (random_frame(rng) for _ in range(7))
    cone = trimesh.creation.icosphere(2)
    vertices = [dict(zip("xyz", v, strict=True)) if named else v for v in cone.vertices.tolist()]
    triangles = [{"vertex_indices": f} if named else f for f in cone.faces.tolist()]
    shapes = [
        {"type": "box" if named else 1, "dimensions": [0.3, 0.5, 0.8]},
        {"type": "sphere" if named else 2, "dimensions": [0.2]},
        {"type": "CYLINDER" if named else 3, "dimensions": [0.9, 0.1]},
    ]
    document = scene(
        {
            "id": "thing",
            "header": {"frame_id": "/shelf"},
            "pose": ros(body, named=named),
            "primitives": shapes,
            "primitive_poses": [ros(part, named=named) for part in parts[:3]],
            "meshes": [{"vertices": vertices, "triangles": triangles}],
            "mesh_poses": [ros(parts[3], named=named)],
        },
        {"id": "lone", "primitives": [{"type": "sphere", "dimensions": [0.1]}]},
        fixed_frame_transforms=[
            {
                "child_frame_id": "shelf",
                "transform": {
                    "translation": ros(frame)["position"],
                    "rotation": ros(frame)["orientation"],
                },
            }
        ],
    )
    world = MeshWorld.from_mapping(document, device="cpu")
    assert world.names() == [*(f"thing/{i}" for i in range(4)), "lone"]
    assert world.report("thing/2").shape == Cylinder(radius=0.1, height=0.9)
    bodies = [
        exact("cuboid", 0.3, 0.5, 0.8, at=frame @ body @ parts[0]),
        exact("sphere", 0.2, at=frame @ body @ parts[1]),
        exact("cylinder", 0.1, 0.9, at=frame @ body @ parts[2]),
        solid(cone, frame @ body @ parts[3]),
        exact("sphere", 0.1),
    ]
    assert_distances(world, bodies, rng)


@pytest.mark.parametrize("inside", [False, True])
def test_frames_beside_the_objects_or_beside_the_world(inside):
    ball = {"type": "sphere", "dimensions": [0.1]}
    frames = [{"child_frame_id": "shelf", "transform": {"translation": [5.0, -1.0, 2.0]}}]
    document = scene({"id": "ball", "header": {"frame_id": "shelf"}, "primitives": [ball]})
    (document["world"] if inside else document)["fixed_frame_transforms"] = frames
    assert load_world_mapping(document)["ball"].pose[:3] == (5.0, -1.0, 2.0)


def test_fixed_frames_stand_in_that_of_the_world():
    ball = {"type": "sphere", "dimensions": [0.1]}
    document = scene({"id": "ball", "header": {"frame_id": "board"}, "primitives": [ball]})
    frames = [
        {"header": {"frame_id": parent}, "child_frame_id": name, "transform": {"translation": at}}
        for parent, name, at in (("map", "shelf", [5, 0, 0]), ("map", "board", [0, 0, 1]))
    ]
    document["fixed_frame_transforms"] = frames
    assert load_world_mapping(document)["ball"].pose[:3] == (0.0, 0.0, 1.0)
    frames[1]["header"]["frame_id"] = "/shelf"  # a chain, which MoveIt has not either
    with pytest.raises(
        ValueError, match=r"transforms\[1\]: header.frame_id must be that of the wo"
    ):
        load_world_mapping(document)
    frames[1]["header"]["frame_id"] = "odom"
    with pytest.raises(ValueError, match=r"header.frame_id must be 'map', as before, or have a tr"):
        load_world_mapping(document)


def test_a_cone_is_one():
    at = random_frame(np.random.default_rng(4))
    cone = {"type": "cone", "dimensions": [0.8, 0.3]}
    found = load_world_mapping(
        scene({"id": "cone", "primitives": [cone], "primitive_poses": [ros(at)]})
    )
    assert found["cone"].geometry == Cone(radius=0.3, height=0.8)
    assert found["cone"].pose[:3] == pytest.approx(at[:3, 3])


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_prisms_are_polygons_extruded_to_both_sides(named, backwards):
    rng = np.random.default_rng(11)
    body, part = random_frame(rng), random_frame(rng)
    # Concave, off the center, with a corner that stands twice and one in the middle of an edge.
    angles = np.linspace(0.0, 2.0 * np.pi, 11, endpoint=False)
    radius = rng.uniform(0.2, 0.6, 11)
    corners = np.column_stack((np.cos(angles), np.sin(angles))) * radius[:, None] + (0.1, -0.2)
    corners = np.insert(corners, [4, 7], [corners[4], 0.5 * (corners[6] + corners[7])], axis=0)
    if backwards:
        corners = corners[::-1]
    points = [[float(x), float(y), 7.0] for x, y in corners]  # z means nothing
    values = [dict(zip("xyz", p, strict=True)) for p in points] if named else points
    item = {"type": 5 if named else "PRISM", "dimensions": [0.5], "polygon": {"points": values}}
    document = scene(
        {
            "id": "thing",
            "pose": ros(body, named=named),
            "primitives": [item],
            "primitive_poses": [ros(part, named=named)],
        }
    )
    world = MeshWorld.from_mapping(document, device="cpu", strict=True)

    def distance(points: np.ndarray) -> np.ndarray:
        across = polygon_distance(points[:, :2], corners)
        out = np.stack((across, np.abs(points[:, 2]) - 0.25), axis=1)
        return np.linalg.norm(np.maximum(out, 0.0), axis=1) + np.minimum(out.max(axis=1), 0.0)

    assert_distances(world, [Body(distance, pose_of(body @ part))], rng)


def polygon_distance(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Signed distance (n,) to a polygon in the plane: nearest edge, and crossings of a ray."""
    begin, end = corners[None], np.roll(corners, -1, axis=0)[None]
    edge, to = end - begin, points[:, None] - begin
    squared = np.maximum((edge * edge).sum(axis=2), 1e-300)
    share = np.clip((to * edge).sum(axis=2) / squared, 0.0, 1.0)
    distance = np.linalg.norm(to - share[..., None] * edge, axis=2).min(axis=1)
    x, y = points[:, None, 0], points[:, None, 1]
    rise = np.where(edge[..., 1] == 0.0, 1.0, edge[..., 1])
    crosses = (begin[..., 1] > y) != (end[..., 1] > y)
    crosses &= x < begin[..., 0] + edge[..., 0] * (y - begin[..., 1]) / rise
    return np.where(crosses.sum(axis=1) % 2 == 1, -distance, distance)


def test_a_prism_over_a_rectangle_is_a_cuboid():
    points = [[0, 0, 0], [1, 0, 0], [1, 2, 0], [0, 2, 0], [0, 0, 0]]
    item = {"type": "prism", "dimensions": [3], "polygon": {"points": points}}
    world = MeshWorld.from_mapping(scene({"id": "a", "primitives": [item]}), device="cpu")
    shape = world.report("a").shape
    assert isinstance(shape, Cuboid)
    assert sorted(shape.dims) == pytest.approx([1, 2, 3])


def spiral(n: int) -> list[list[float]]:
    turn = np.linspace(0.0, 6.0 * np.pi, n)
    arms = [np.stack((r * np.cos(turn), r * np.sin(turn), 0 * r), 1) for r in (turn + 1, turn + 2)]
    return np.concatenate((arms[0], arms[1][::-1])).tolist()


@pytest.mark.parametrize(
    ("polygon", "message"),
    [
        (None, "object a: polygon must be a mapping of keys, got None"),
        ({}, r"object a: polygon: a polygon must have an area, got \[\]"),
        ({"points": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]}, "must have an area, got"),
        ({"points": [[0, 0, 0]] * 9}, r"must have an area, got \[\]"),
        ({"points": [[0, 0, 0], [1, 0], [1, 1, 0]]}, r"points\[1\] must be 3 finite numbers"),
        ({"points": [[0, 0, 0], [1e9, 0, 0], [1, 1, 0]]}, "points must be below 1e9"),
        ({"points": [[0, 0, 0], [3, 3, 0], [3, 0, 0], [0, 2, 0]]}, "edges .* must not cross, got"),
        ({"points": spiral(2000)}, "squared corners .* at most 4000000, got 16000000"),
        ({"point": []}, "polygon: keys must be among points, got 'point'"),
    ],
)
def test_wrong_polygons(polygon, message):
    item = {"type": "prism", "dimensions": [1], "polygon": polygon}
    with pytest.raises(ValueError, match=message):
        load_world_mapping(scene({"id": "a", "primitives": [item]}))


def test_the_polygons_of_a_file_share_one_budget(monkeypatch):
    monkeypatch.setattr(scene_builder, "MAX_CONCAVE", 50_000)
    item = {"type": "prism", "dimensions": [1], "polygon": {"points": spiral(50)}}
    objects = [{"id": str(i), "primitives": [item]} for i in range(3)]
    assert set(load_world_mapping(scene(*objects[:2]))) == {"0", "1"}
    with pytest.raises(ValueError, match=r"object 2: polygon: squared corners .* at most 50000"):
        load_world_mapping(scene(*objects))


def test_frames_without_a_transform_must_be_one():
    ball = {"type": "sphere", "dimensions": [0.1]}
    objects = [
        {"id": name, "header": {"frame_id": frame}, "primitives": [ball]}
        for name, frame in (("a", "map"), ("b", "/map"), ("c", ""))
    ]
    assert set(load_world_mapping(scene(*objects))) == {"a", "b", "c"}
    objects[2]["header"] = {"frame_id": "odom"}
    with pytest.raises(
        ValueError, match=r"object c: header\.frame_id must be 'map', .* got 'odom'"
    ):
        load_world_mapping(scene(*objects))


def test_what_a_world_has_not_is_named():
    document = scene(
        {"id": "a", "primitives": [BOX], "planes": [{"coef": [0, 0, 1, 0]}, {}]},
        robot_state={"attached_collision_objects": [{"object": {"id": "tool"}}]},
    )
    document["world"]["octomap"] = {"octomap": {"data": [1, 2]}}
    with pytest.warns(LeftOutWarning) as caught:
        assert list(load_world_mapping(document)) == ["a"]
    entries = [entry for entry, _ in caught[0].message.entries]  # pyright: ignore
    assert entries == ["attached object tool", "octomap", "a: planes[0]", "a: planes[1]"]
    with pytest.raises(ValueError, match="attached object tool"):
        load_world_mapping(document, strict=True)
    document["world"]["octomap"] = {"octomap": {"data": []}, "header": {}}
    with pytest.warns(LeftOutWarning, match="3 of its entries"):
        load_world_mapping(document)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (3, r"collision_objects\[0\] must be a mapping of keys, got 3"),
        ({}, "the key 'id' is required"),
        ({"id": 3}, "id must be text, got 3"),
        ({"id": "a"}, "object a: must have primitives or meshes, got"),
        ({"id": "a", "shape": 3}, "object a: keys must be among header, .* got 'shape'"),
        ({"id": "a", "operation": 1, "primitives": [BOX]}, "operation must be 0, to add, got 1"),
        ({"id": "a", "primitives": 3}, "primitives must be a list of shapes, got 3"),
        ({"id": "a", "primitives": [3]}, r"primitives\[0\] must be a mapping of keys, got 3"),
        (
            {"id": "a", "primitives": [{"type": "torus", "dimensions": [1]}]},
            "type must be one of box, sphere, cylinder, cone, prism, got 'torus'",
        ),
        (
            {"id": "a", "primitives": [{"type": True, "dimensions": [1]}]},
            "type must be one of|dimensions of a box",
        ),
        (
            {"id": "a", "primitives": [{"type": "box", "dimensions": [1, 2]}]},
            r"dimensions of a box must be 3 positive numbers below 1e9, got \[1, 2\]",
        ),
        (
            {"id": "a", "primitives": [{"type": "box", "dimensions": [1, 2, float("nan")]}]},
            "dimensions of a box must be 3 positive",
        ),
        (
            {"id": "a", "primitives": [BOX], "primitive_poses": [HERE, HERE]},
            "primitive_poses must be 1, got 2",
        ),
        (
            {"id": "a", "primitives": [BOX], "pose": {"orientation": [0, 0, 0, 0]}},
            "orientation must be a quaternion that is not zero",
        ),
        (
            {"id": "a", "primitives": [BOX], "pose": {"position": [0, 0]}},
            "pose.position must be 3 finite numbers",
        ),
        (
            {"id": "a", "primitives": [BOX], "pose": {"position": [0, 0, 2e9]}},
            "a pose must be finite and below 1e9",
        ),
        (
            {"id": "a", "meshes": [{"vertices": [[0, 0, 0]], "triangles": [[0, 1, 2]]}]},
            "faces must index vertices 0 to 0",
        ),
        (
            {"id": "a", "meshes": [{"vertices": [{"x": 1}], "triangles": [{}]}]},
            "object a: ",
        ),
    ],
)
def test_errors_name_the_object_the_rule_and_the_value(item, message):
    with pytest.raises(ValueError, match=message) as raised:
        load_world_mapping(scene(item))
    assert str(raised.value).startswith("mapping: ")
    assert str(raised.value).isprintable()


def test_ids_are_unique():
    with pytest.raises(ValueError, match="object a: ids must be unique"):
        load_world_mapping(scene(*[{"id": "a", "primitives": [BOX]}] * 2))


def test_a_scene_without_objects_is_refused():
    with pytest.raises(ValueError, match="holds no obstacle"):
        load_world_mapping(scene())
    assert load_world_mapping(scene({"id": "a", "primitives": [{"type": 2, "dimensions": [1]}]}))[
        "a"
    ].geometry == Sphere(1.0)

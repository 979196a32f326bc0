"""Pictures as users ask for them: what is in them, what is in view, labels, films, errors."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh
from matplotlib.text import Text
from PIL import Image

from cases import mostly_slow
from warp_collision import (
    Capsule,
    Cuboid,
    Cylinder,
    HalfSpace,
    HeightField,
    MeshWorld,
    PointCloud,
    RobotSpheres,
    Sphere,
    VoxelGrid,
)
from warp_collision.examples import load_panda
from warp_collision.io import Obstacle
from warp_collision.robot.checks.robot_scene import RobotScene
from warp_collision.viewer import contact_sheet, render, rendering, sphere_sheet
from warp_collision.viewer.camera import look
from warp_collision.viewer.colors import FREE, HIT, OBSTACLE, THEMES, clearance_colors
from warp_collision.viewer.contact_sheet import uncovered_faces
from warp_collision.viewer.path_facts import path_facts
from warp_collision.viewer.picture import (
    Box,
    Curve,
    Label,
    Picture,
    Scene,
    compose,
    path_labels,
    place_labels,
    world_labels,
)
from warp_collision.viewer.stage import Painter, choose_camera, scenery_of, stage_path, stage_world
from warp_collision.viewer.triangles import (
    Triangles,
    inflated,
    link_meshes,
    of_geometry,
    of_spheres,
    thinned,
    tube,
)

SIZE = (320, 200)
START, GOAL = [-0.9, 0.0, 0.0, -1.6, 0.0, 1.6, 0.8], [0.9, 0.0, 0.0, -1.6, 0.0, 1.6, 0.8]


@pytest.fixture(scope="module")
def panda():
    return load_panda()


def plate(**options) -> MeshWorld:
    world = MeshWorld(device="cpu")
    world.add("plate", Cuboid((0.5, 0.02, 0.5)), (0.5, 0, 0.5, 1, 0, 0, 0), **options)
    return world


def sweep(count: int = 5) -> torch.Tensor:
    shares = torch.linspace(0, 1, count)[:, None]
    return torch.lerp(torch.tensor(START), torch.tensor(GOAL), shares)


def near_color(image: np.ndarray, color, tolerance: float = 30.0) -> int:
    return int((np.abs(image - 255.0 * np.array(color)).max(-1) < tolerance).sum())


def test_every_kind_of_obstacle_is_drawn():
    ball = trimesh.creation.icosphere(radius=0.2)
    cloud, grid = PointCloud(0.3 * np.eye(3), radius=0.1), VoxelGrid(np.ones((3, 3, 3)) > 0, 0.1)
    hill = HeightField(0.2 * np.eye(4), (0.6, 0.6), 0.1)
    for geometry in (Cuboid((0.3, 0.3, 0.3)), Sphere(0.2), Capsule(0.1, 0.2), Cylinder(0.1, 0.3),
                     HalfSpace((0, 0.1, 1)), ball, cloud, grid, hill):  # fmt: skip
        world = MeshWorld(device="cpu")
        world.add("it", geometry)
        image = render(world, size=SIZE, view="front", labels=False, title="").astype(int)
        bluish = image[..., 2] - image[..., 0] > 25
        assert bluish.sum() > 2000, geometry


def test_a_floor_without_end_does_not_shrink_what_stands_on_it():
    box = Obstacle(Cuboid((0.4, 0.4, 0.4)), (1.0, 0.0, 0.2, 1, 0, 0, 0))
    floor = Obstacle(HalfSpace((0, 0, 1)), (0, 0, 0, 1, 0, 0, 0))
    alone = stage_world(scenery_of({"box": box}), THEMES["light"])
    both = stage_world(scenery_of({"floor": floor, "box": box}), THEMES["light"])
    sizes = [np.ptp(stage.framed, axis=0) for stage in (alone, both)]
    assert (sizes[1] >= sizes[0]).all()
    assert (sizes[1] < 1.25 * sizes[0]).all()
    assert both.floor == 0.0


def test_space_that_was_never_seen_is_translucent():
    place = (0.2, (-0.2, -0.2, -0.2))
    full, empty = np.ones((2, 2, 2), bool), np.zeros((2, 2, 2), bool)
    grids = VoxelGrid(full, *place), VoxelGrid(empty, *place, full).unseen
    seen, unseen = (
        scenery_of({"map": Obstacle(grid, (0, 0, 0, 1, 0, 0, 0))}).bodies[0] for grid in grids
    )
    assert unseen.opacity < 0.5 * seen.opacity
    assert unseen.colors != seen.colors


def test_a_kind_that_is_not_known_is_named():
    with pytest.raises(TypeError, match="geometry must be of a kind that is drawn, got int"):
        of_geometry(3)


def test_disabled_obstacles_are_grey_and_paddings_are_hulls():
    images = {}
    for name, options in (("on", {}), ("off", {"enabled": False}), ("wide", {"padding": 0.2})):
        world = MeshWorld(device="cpu")
        world.add("it", Cuboid((0.4, 0.4, 0.4)), **options)
        view = {"view": (30, 20), "look_at": (0, 0, 0)}
        images[name] = render(world, size=SIZE, labels=False, title="", **view).astype(int)
    blue = {name: image[..., 2] - image[..., 0] for name, image in images.items()}
    assert (blue["on"] > 18).sum() > 3000
    assert (blue["off"] > 18).sum() < 500
    hull = inflated(of_geometry(Cuboid((0.4, 0.4, 0.4))), 0.2)
    np.testing.assert_allclose(np.abs(hull.vertices), 0.4, atol=1e-6)
    assert (images["wide"] != images["on"]).any()


def test_a_path_that_collides_and_one_that_is_free(panda):
    hit = render(plate(), panda, sweep(), size=(480, 400))
    assert hit.shape == (400, 480, 3)
    assert near_color(hit[:240], HIT, 50) > 150
    free = render(MeshWorld(device="cpu"), panda, sweep(), size=(480, 400))
    assert near_color(free[:240], HIT, 50) == 0
    assert near_color(free[:240], FREE, 60) > 30


def test_two_paths_stand_side_by_side(panda):
    image = render(plate(), panda, {"a": sweep(), "b": sweep()[:2]}, size=(640, 400), title="t")
    # Between them there is a gap in the colour of the paper.
    gap = image[60:200, 318:322].astype(int)
    paper = np.round(255 * np.array(THEMES["light"].paper))
    assert np.abs(gap - paper).max() <= 2


def test_the_title_says_what_all_paths_are(panda, monkeypatch):
    """Also where the first path is free and the second one collides."""
    drawn = []
    monkeypatch.setattr(rendering, "compose", lambda page: drawn.append(page) or compose(page))
    free, hits = sweep()[:2], sweep()
    render(plate(), panda, {"short": free, "long": hits}, size=SIZE)
    render(plate(), panda, {"short": free, "start": free[:1]}, size=SIZE)
    render(plate(), panda, torch.stack((free[:1], hits[2:3], hits[-1:])), size=SIZE)
    titles = [page.title for page in drawn]
    assert titles[:2] == ["1 of 2 paths proven free", "2 of 2 paths proven free"]
    assert titles[2] == "2 of 3 configurations free"
    assert [scene.heading.split(":")[0] for scene in drawn[0].scenes] == ["short", "long"]


def test_a_large_floor_does_not_shrink_the_robot(panda):
    world = plate()
    world.add("floor", Cuboid((40.0, 40.0, 0.02)), (0, 0, -0.08, 1, 0, 0, 0))
    cameras = []
    for some in (plate(), world):
        facts = path_facts(RobotScene(panda, some), sweep())
        stage = stage_path(facts, link_meshes(panda), scenery_of(some.obstacles()), THEMES["light"])
        camera = choose_camera([stage], SIZE, (0.0, 20.0))
        cameras.append(np.linalg.norm(np.subtract(camera.eye, camera.target)))
        pixels = camera.project(facts.spheres[..., :3].reshape(-1, 3))
        assert np.ptp(pixels, axis=0).max() > 0.3 * 2 * SIZE[1]
    assert cameras[1] < 1.6 * cameras[0]


def test_what_is_told_of_a_path_is_what_the_checks_say(panda):
    world = plate()
    facts = path_facts(RobotScene(panda, world), sweep())
    assert not facts.is_free
    worst = facts.worst()[0]
    assert (worst.other, worst.with_itself, worst.is_blocked) == ("plate", False, True)
    a, b = facts.closest_points(worst)
    assert np.linalg.norm(a - b) == pytest.approx(-worst.clearance, abs=1e-4)
    assert f"{-1000 * worst.clearance:.1f} mm into plate" in facts.verdict()
    still = path_facts(RobotScene(panda, world), sweep()[:1])
    assert still.is_free
    assert still.verdict().startswith("free")
    one = still.worst()[0]
    a, b = still.closest_points(one)
    assert np.linalg.norm(a - b) == pytest.approx(one.clearance, abs=1e-4)


def test_what_does_not_move_makes_no_flat_line(panda):
    """A base over a table is as near on any path; where it collides it is told."""
    world = MeshWorld(device="cpu")
    world.add("far", Cuboid((0.1, 0.1, 0.1)), (1.2, 0.0, 0.9, 1, 0, 0, 0))
    facts = path_facts(RobotScene(panda, world, self_collision=False), sweep())
    world.add("table", Cuboid((0.3, 0.3, 0.02)), (0, 0, -0.06, 1, 0, 0, 0))
    above = path_facts(RobotScene(panda, world, self_collision=False), sweep())
    assert facts.is_free
    assert above.is_free
    assert "panda_link0" not in {contact.link for contact in above.contacts()}
    own = path_facts(RobotScene(panda, world), sweep())
    assert "panda_link7" not in {contact.other for contact in own.worst() if contact.with_itself}
    world.set_pose("table", (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0))
    hit = path_facts(RobotScene(panda, world), sweep())
    assert (hit.is_free, hit.worst()[0].link, hit.worst()[0].other) == (
        False, "panda_link0", "table",
    )  # fmt: skip


def test_title_and_label_name_one_clearance(panda):
    middle = panda(torch.tensor([[0.0, *START[1:]]]))[0]  # the farthest from the root
    far = (middle[:, 0] + middle[:, 3]).max().item()
    world = MeshWorld(device="cpu")
    world.add("wall", Cuboid((0.2, 0.6, 1.5)), (far + 0.1018, 0.01, 0.4, 1, 0, 0, 0))
    facts = path_facts(RobotScene(panda, world), sweep())
    assert facts.is_free
    worst = facts.worst(1)[0]
    assert worst.clearance - worst.lower > 2e-4  # a bound, and what it bounds
    number = f"at least {1000 * worst.lower:.1f} mm"
    assert number in facts.verdict()
    theme = THEMES["light"]
    stage = stage_path(facts, link_meshes(panda), scenery_of(world.obstacles()), theme)
    labels = path_labels(facts, choose_camera([stage], SIZE, (40.0, 20.0)))
    assert number in labels[0].text
    still = path_facts(RobotScene(panda, world), sweep()[:1])
    contact = still.worst(1)[0]
    assert f" {1000 * contact.clearance:.1f} mm from" in still.verdict()
    assert "at least" not in still.verdict()


def test_contacts_that_are_wanted_are_none(panda):
    links = dict.fromkeys(panda.sphere_links)
    scene = RobotScene(panda, plate(), ignore=tuple((link, "plate") for link in links))
    assert path_facts(scene, sweep()).is_free


def test_contacts_with_itself_are_told(panda):
    folded = torch.tensor([[0.0, 0.0, 0.0, -3.05, 0.0, 0.0, 0.0]])
    contact = path_facts(RobotScene(panda, MeshWorld(device="cpu")), folded).worst()[0]
    assert contact.with_itself
    assert {contact.link, contact.other} <= set(panda.sphere_links)


def test_links_that_collide_with_each_other_have_the_colour_of_it(panda):
    folded = torch.tensor([[0.0, 0.0, 0.0, -3.05, 0.0, 0.0, 0.0]])
    scene = RobotScene(panda, MeshWorld(device="cpu"))
    facts = path_facts(scene, folded)
    found = panda.report(folded[None], scene.world, self_collision=True)
    hit = np.isin(panda.sphere_links, [*found.link, *found.obstacle])
    assert 0 < hit.sum() < len(hit)
    assert (facts.clearance[0, hit] < 0.0).all()
    assert (facts.clearance[0, ~hit] == np.inf).all()
    without = path_facts(scene._replace(self_collision=False), folded)
    assert (without.clearance == np.inf).all()


SIZES = ((1600, 1000), (800, 600), (640, 900), (480, 300), (480, 640))


@pytest.mark.parametrize("size", mostly_slow(SIZES, SIZES[::2]))
@pytest.mark.parametrize("background", mostly_slow(("light", "dark"), ("light",)))
def test_texts_do_not_overlap_and_stay_inside(panda, size, background):
    """Of a figure with all kinds of text, by the boxes that the letters fill."""
    theme = THEMES[background]
    world = plate()
    facts = path_facts(RobotScene(panda, world), sweep())
    ends, bounds = np.array([0.0, 0.4, 1.0]), np.array([-0.05, 0.01])
    curve = Curve(ends, bounds, bounds + 0.01, bounds + 0.05, "straight", HIT)
    page = Picture(size, 2, "A title " * 9, "facts " * 20, [curve] * 2, True, theme)
    width, height = page.scene_size
    stage = stage_path(facts, link_meshes(panda), scenery_of(world.obstacles()), theme)
    camera = choose_camera([stage], (width, height), (40.0, 20.0))
    labels = [
        *path_labels(facts, camera),
        *world_labels(scenery_of(world.obstacles()).meshes, camera),
    ]
    labels += [Label(f"contact {i} of two long names", labels[0].anchor, True) for i in range(3)]
    scene = Scene(np.ones((height, width, 3)), "heading " * 12, labels, theme.accent(False))
    figure = compose(replace(page, scenes=[scene] * 2))
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = [t for t in figure.findobj(lambda a: isinstance(a, Text) and a.get_visible())
             if t.get_text().strip()]  # fmt: skip
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in texts]
    assert len(boxes) > 15
    for (a, first), (b, second) in itertools.combinations(boxes, 2):
        apart = (
            first.x1 <= second.x0 + 0.5 or second.x1 <= first.x0 + 0.5
            or first.y1 <= second.y0 + 0.5 or second.y1 <= first.y0 + 0.5
        )  # fmt: skip
        assert apart, (a, b)
    for text, extent in boxes:
        assert extent.x0 >= -1, text
        assert extent.x1 <= size[0] + 1, text


def test_labels_without_room_are_left_out():
    anchors, sizes = [(50.0, 50.0)] * 30, [(60.0, 20.0)] * 30
    places = place_labels(anchors, sizes, Box(0, 0, 200, 100))
    found = [place for place in places if place is not None]
    assert 0 < len(found) < 30
    assert not any(a.overlaps(b) for a, b in itertools.combinations(found, 2))
    assert place_labels([(500.0, 50.0)], [(10.0, 10.0)], Box(0, 0, 200, 100)) == [None]


def seen_by(kind: str, color) -> np.ndarray:
    """Linear colour as a dichromat sees it: Viénot, Brettel and Mollon, 1999."""
    to_lms = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714],
                       [0.0299566, 0.184309, 1.46709]])  # fmt: skip
    lost = {
        "protan": np.array([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]]),
        "deutan": np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]]),
    }[kind]
    linear = np.asarray(color, float) ** 2.2
    return np.clip(np.linalg.inv(to_lms) @ lost @ to_lms @ linear, 0, 1) ** (1 / 2.2)


@pytest.mark.parametrize("kind", ["protan", "deutan"])
def test_the_colour_blind_tell_results_apart(kind):
    pairs = [(FREE, HIT), (OBSTACLE, HIT),
             *((theme.proven, theme.plain) for theme in THEMES.values()),
             *itertools.pairwise(clearance_colors([-0.1, -0.03, 0.005, 0.05]))]  # fmt: skip
    for a, b in pairs:
        assert np.linalg.norm(seen_by(kind, a) - seen_by(kind, b)) > 0.2


def test_colours_of_clearances_grow_lighter_and_nan_is_the_deepest():
    values = np.linspace(-0.2, 0.2, 81)
    lightness = clearance_colors(values) @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > -1e-9).all()
    np.testing.assert_array_equal(clearance_colors(np.nan), clearance_colors(-1.0))


def test_thin_meshes_keep_their_shape():
    ball = trimesh.creation.icosphere(subdivisions=6)
    mesh = thinned(Triangles(np.asarray(ball.vertices), np.asarray(ball.faces)), 3000)
    assert 800 < len(mesh.faces) <= 3000
    assert np.abs(np.linalg.norm(mesh.vertices, axis=1) - 1).max() < 0.03
    volume = trimesh.Trimesh(*mesh, process=False).volume
    assert volume == pytest.approx(4 / 3 * np.pi, rel=0.03)


def test_tubes_have_their_radius_and_points_at_rest_make_none():
    line = np.stack([np.linspace(0, 1, 5), np.zeros(5), np.zeros(5)], axis=1)
    np.testing.assert_allclose(np.linalg.norm(tube(line, 0.1).vertices[:, 1:], axis=1), 0.1)
    assert len(tube(np.zeros((4, 3)), 0.1).faces) == 0


@pytest.mark.parametrize("ending", [".gif", ".mp4"])
def test_films_have_frames(panda, tmp_path, ending):
    if ending == ".mp4":
        av = pytest.importorskip("av")
    path = tmp_path / f"film{ending}"
    last = render(plate(), panda, sweep(3), output=path, seconds=0.2, size=(256, 192))
    assert last.shape == (192, 256, 3)
    if ending == ".gif":
        with Image.open(path) as film:
            assert film.size == (256, 192)
            assert film.n_frames >= 3
    else:
        with av.open(str(path)) as film:
            frames = [*film.decode(video=0)]
        assert (frames[0].width, frames[0].height, len(frames)) == (256, 192, 11)


def test_frames_of_films_are_as_pictures(panda):
    """Rays are cast where something moves alone; the rest is drawn once."""
    scenery, theme = scenery_of(plate().obstacles()), THEMES["light"]
    scene, meshes = RobotScene(panda, plate()), link_meshes(panda)
    whole = stage_path(path_facts(scene, sweep()), meshes, scenery, theme)
    camera = choose_camera([whole], SIZE, (40.0, 20.0))
    painter = Painter(whole, camera, theme)
    for joints in sweep(3):
        facts = path_facts(scene, joints[None])
        stage = stage_path(facts, meshes, scenery, theme, film=whole)
        frame, picture = painter.draw(stage, in_film=True), painter.draw(stage)
        assert np.abs(frame - picture).max() < 0.5
        assert (np.abs(frame - picture) > 2e-3).mean() < 1e-3


@pytest.mark.slow
def test_contact_sheets_show_what_is_left_out(panda, tmp_path):
    box = of_geometry(Cuboid((0.2, 0.2, 0.2)))
    assert uncovered_faces(box, np.array([[0.5, 0, 0, 0.1]])).all()
    assert uncovered_faces(box, np.array([[0, 0, 0, -1.0]])).all()
    path = tmp_path / "spheres.png"
    image = sphere_sheet(panda, path).astype(int)
    with Image.open(path) as written:
        assert written.size == (image.shape[1], image.shape[0])
    orange = (image[..., 0] - image[..., 2] > 90).sum()
    assert orange > 20_000  # the usual spheres of the Panda leave out half of its surface


def test_contact_sheets_have_the_figures_of_the_command(tmp_path):
    """A small link that is covered looks bare at the resolution of larger ones."""
    shape = '<collision><geometry><box size="0.01 0.01 0.01"/></geometry></collision>'
    path = tmp_path / "small.urdf"
    path.write_text(f'<robot name="small"><link name="tip">{shape}</link></robot>')
    robot = RobotSpheres(path)
    assert robot.coverage(resolution=contact_sheet._RESOLUTION)["tip"].uncovered > 0.05
    assert contact_sheet._figures(robot, "tip")[1] == "all of the surface is covered"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"joints": [0.0]}, ValueError, "joints must be given with a robot"),
        ({"view": "side"}, ValueError, "view must be auto"),
        ({"size": (3, 3)}, ValueError, "size must be a width and a height from 64 to 8192"),
        ({"background": "pink"}, ValueError, "background must be one of light, dark"),
        ({"look_at": "plat"}, ValueError, "look_at must be a point or one of 'plate'"),
        ({"look_at": (0, 1)}, ValueError, "look_at must be three numbers"),
        ({"output": "x.jpg"}, ValueError, "output must end in .png, .gif or .mp4"),
        ({"output": "none/x.png"}, FileNotFoundError, "output must be in an existing folder"),
        ({"output": "x.gif"}, ValueError, "joints must be one path"),
        ({"env": 3}, IndexError, "env must be in"),
    ],
)
def test_wrong_arguments(arguments, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        render(plate(), **arguments)


def test_wrong_paths(panda):
    for joints, message in (
        (torch.zeros(3, 6), "joints must have shape"),
        (torch.full((3, 7), torch.nan), "joints must be finite"),
        (torch.zeros(5, 3, 7), "joints must be one to 4 paths, got 5"),
    ):
        with pytest.raises(ValueError, match=message):
            render(plate(), panda, joints)
    with pytest.raises(TypeError, match="robot comes before world"):
        render(panda, plate())  # type: ignore[arg-type]


def test_each_motion_of_the_trail_has_its_own_colour(panda):
    """Blue where it is proven free, though others of the path collide."""
    theme = THEMES["light"]
    scene = RobotScene(panda, plate(), None, (), True)
    facts = path_facts(scene, torch.lerp(*map(torch.tensor, (START, GOAL)),
                                         torch.linspace(0, 1, 16)[:, None]))  # fmt: skip
    blocked = facts.blocked
    assert 2 <= blocked.sum() <= 12
    stage = stage_path(facts, link_meshes(panda), scenery_of(scene.world.obstacles()), theme)
    begin = 0
    for points, color in stage.trail:
        first = scene.spheres(facts.at(begin))[0, -1, :3].numpy()
        np.testing.assert_allclose(points[0], first, atol=1e-5)
        end = begin + (len(points) - 1) // 20
        assert (blocked[begin:end] == (color == theme.plain)).all()
        begin = end
    assert begin == len(blocked)
    # In the picture, too: hues of both colours along the trail.
    camera = choose_camera([stage], (400, 300), (90.0, 20.0))
    image = Painter(stage, camera, theme).draw(stage)
    seen = {}
    for points, color in stage.trail:
        middle = points[len(points) // 2]
        x, y = (camera.project(middle[None])[0] / 2).astype(int)
        around = image[y - 3 : y + 4, x - 3 : x + 4].reshape(-1, 3)
        seen[color] = min(np.abs(around - np.array(color)).max(-1).min(), seen.get(color, 1.0))
    assert {*seen} == {theme.proven, theme.plain}
    assert max(seen.values()) < 0.25


@pytest.mark.parametrize("with_itself", [False, True])
def test_the_curve_that_collides_is_the_bold_one(with_itself):
    theme, ends = THEMES["light"], np.linspace(0.0, 1.0, 6)
    far = np.full(5, 0.05)
    hits = np.array([0.04, 0.01, -0.02, 0.01, 0.03])
    lower, own = (far, hits) if with_itself else (hits, far)
    curve = Curve(ends, lower, lower + 0.005, own, "to obstacles", theme.plain)
    picture = Picture((800, 600), 1, "title", "", [curve], True, theme)
    panel = compose(picture).axes[0]
    widths = {patch.get_label(): patch.get_linewidth() for patch in panel.patches}
    bold, thin = ("to itself", "to obstacles")[:: 1 if with_itself else -1]
    assert widths[bold] > 2 * widths[thin]


def test_the_clearance_of_a_robot_to_itself_is_in_view_without_obstacles():
    theme, none = THEMES["light"], np.full(5, np.inf)
    own = np.array([0.04, 0.03, 0.031, 0.035, 0.04])
    curve = Curve(np.linspace(0.0, 1.0, 6), none, none, own, "to obstacles", theme.plain)
    panel = compose(Picture((800, 600), 1, "title", "", [curve], True, theme)).axes[0]
    assert 30.0 < panel.get_ylim()[1] < 60.0


def test_curves_stay_in_view_and_names_are_of_what_is_seen():
    """What is far away is a line along the top; what is there alone has no name."""
    theme, ends = THEMES["light"], np.linspace(0.0, 1.0, 6)
    lower = np.array([0.4, 0.09, 0.006, 0.07, np.inf])
    for own, is_seen in ((np.linspace(0.061, 0.067, 5), True), (np.full(5, 0.3), False)):
        curve = Curve(ends, lower, lower + 1e-3, own, "to obstacles", theme.plain)
        panel = compose(Picture((900, 600), 1, "title", "", [curve], True, theme)).axes[0]
        low, top = panel.get_ylim()
        lines = {patch.get_label(): patch.get_data().values for patch in panel.patches}
        assert ("to itself" in lines) == is_seen
        assert ("to itself" in [text.get_text() for text in panel.get_legend().get_texts()]) == (
            is_seen
        )
        drawn = [patch.get_data().values for patch in panel.patches if not patch.get_fill()]
        assert len(drawn) == 1 + is_seen
        assert all(((values > low) & (values <= top)).all() for values in drawn)
        expected = np.minimum(1000 * lower + 1, top)
        np.testing.assert_allclose(lines["to obstacles"], expected)
        assert lines["to obstacles"][1] < top


def test_a_picture_has_the_rays_that_its_edges_need():
    """One ray for a pixel without edges gives what four rays give."""
    from warp_collision.viewer import ray_tracer

    rng = np.random.default_rng(4)
    balls = np.concatenate([rng.uniform(-0.5, 0.5, (40, 3)), rng.uniform(0.05, 0.2, (40, 1))], 1)
    world = MeshWorld(device="cpu")
    world.add("box", Cuboid((0.8, 0.9, 0.7)), (0.1, 0.2, 0.0, 0.9, 0.1, 0.4, 0.0))
    bodies = [
        *scenery_of(world.obstacles()).bodies,
        ray_tracer.Body([of_spheres(row) for row in balls], rng.uniform(0, 1, (40, 3))),
    ]
    camera = look(1.3 * balls[:, :3], 30.0, 20.0, (480, 360))
    tracer = ray_tracer.RayTracer(bodies)
    image = tracer.image(camera, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)).numpy()
    rays = tracer.cast(camera).color.view(180, 2, 240, 2, 4).mean(dim=(1, 3)).numpy()
    off = np.abs(image - rays).max(-1)
    assert (off[image[..., 3] > 0.0] > 0.0).mean() > 0.2  # many have one ray
    assert np.quantile(off, 0.999) < 0.02
    assert off.max() < 0.2

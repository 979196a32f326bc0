"""Each exact shape is everywhere where shapes are told apart; a test that fails says where not.

A branch that is left out is no error by itself: the last `else` takes the shape for a capsule.
"""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from warp_collision.io.yaml_world import ENTRIES
from warp_collision.kernels.mesh_record import Shape as Kind
from warp_collision.obstacles.shapes import SHAPES, Shape

ROOT = Path(__file__).resolve().parents[2]
KINDS = [kind.name for kind in Kind if Kind.MESH < kind < Kind.POINT_CLOUD]
NAMES = [shape.__name__ for shape in get_args(Shape)]
# A sphere is a capsule without length, and a capsule is what is left when all others are not.
ROUND = {"SPHERE", "CAPSULE"}
# Tests of what is in reach: a half space would be everywhere.
WITHOUT_ENDLESS = {
    *("tests/support/exact_scenes.py", "tests/support/lane_scenes.py"),
    *("tests/support/random_changes.py", "tests/obstacles/test_shapes.py"),
}


def text_of(path: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / path).read_text()


def branches_of(path: str, function: str) -> set[str]:
    """The kinds that a function of device code tells apart."""
    tree = ast.parse(text_of(path))
    (found,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function]
    return set(re.findall(r"Shape\.([A-Z_]+)", ast.unparse(found)))


@pytest.mark.parametrize("function", ["height_over_shape", "height_over_support", "shape_distance"])
def test_functions_of_shapes(function: str) -> None:
    left_out = {*KINDS} - branches_of("kernels/shape_distance.py", function) - ROUND
    assert not left_out, f"{function} in kernels/shape_distance.py takes for capsules: {left_out}"


def test_supports_of_shapes() -> None:
    path = "kernels/pieces_over_obstacles.py"
    told_apart = branches_of(path, "support_of_core") | branches_of(path, "separation_from_shape")
    left_out = {*KINDS} - told_apart - ROUND
    assert not left_out, f"{path} takes for capsules: {left_out}"


@pytest.mark.parametrize("name", ["bodies", "sphere_blocks"])
def test_shapes_in_lanes(name: str) -> None:
    path = f"kernels/lanes/{name}.py"
    told_apart = {*re.findall(r"kind == ([A-Z_]+)\)", text_of(path))}
    left_out = {*KINDS} - told_apart - ROUND
    assert not left_out, f"{path} takes for capsules: {left_out}"


def test_each_kind_has_a_class() -> None:
    assert [kind.lower() for kind in KINDS] == [*SHAPES]
    assert {shape.__name__ for shape in SHAPES.values()} == {*NAMES}


def test_files() -> None:
    left_out = {*SHAPES} - {*ENTRIES}
    assert not left_out, f"io/yaml_world.py neither reads nor writes: {left_out}"


@pytest.mark.parametrize(
    ("path", "is_named_in"),
    [
        ("docs/api/index.md", "`{}`"),
        ("docs/worlds.md", "| `{}"),
        ("src/warp_collision/__init__.py", '    "{}",\n'),
        ("src/warp_collision/world/mesh_world.py", "`{}`"),
        ("tests/launching/test_budgets.py", '"{}"'),
        ("tests/support/exact_scenes.py", "{}"),
        ("tests/support/lane_scenes.py", " {}("),
        ("tests/obstacles/test_shapes.py", "    ({}("),
    ],
)
def test_pages_and_tests(path: str, is_named_in: str) -> None:
    text = text_of(path)
    if path == "docs/api/index.md":  # all of them in one row of the table
        text = next(row for row in text.splitlines() if "whose distance is a formula" in row)
    names = [*NAMES]
    if path in WITHOUT_ENDLESS:
        names.remove("HalfSpace")
    left_out = [name for name in names if is_named_in.format(name) not in text]
    assert not left_out, f"{path} leaves out: {left_out}"


@pytest.mark.parametrize(
    "path",
    [
        *("tests/kernels/test_shape_distance.py", "tests/robot/test_shapes_of_links.py"),
        *("tests/support/exact_scenes.py", "tests/support/random_changes.py"),
    ],
)
def test_random_scenes(path: str) -> None:
    made = {*re.findall(r"\b(\w+)\(", text_of(path))}
    left_out = {*SHAPES} - made - ({"half_space"} if path in WITHOUT_ENDLESS else set())
    assert not left_out, f"{path} makes no {left_out}"


def test_the_table_of_files() -> None:
    row = next(row for row in text_of("docs/worlds.md").splitlines() if "| cuRobo world" in row)
    left_out = [name for name in SHAPES if name not in row]
    assert not left_out, f"docs/worlds.md: what YAML files hold lacks {left_out}"


def test_reference_in_float64() -> None:
    text = text_of("tests/support/exact_shapes.py")
    left_out = [name for name in SHAPES if f"def {name}(" not in text]
    assert not left_out, f"tests/support/exact_shapes.py has no distance of: {left_out}"

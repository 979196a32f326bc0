"""The names of the package: imported when they are first used, and all there."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import warp_collision
from warp_collision import robot


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, warp_collision\n"
        "heavy = {'torch', 'warp', 'trimesh', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_neither_the_compiler_nor_trimesh_is_imported_in_vain() -> None:
    """To keep the compiler out nobody loads it, and exact shapes need no trimesh."""
    code = (
        "import gc, sys\n"
        "gc.disable()\n"
        "import torch\n"
        "from warp_collision import torch_private\n"
        "assert torch_private.keep_compiler_out(len, 'none') is None\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "from warp_collision import Capsule, Cuboid, Cylinder, MeshWorld, Sphere, sphere_cost\n"
        "world = MeshWorld(device='cpu')\n"
        "shapes = Cuboid((1, 1, 1)), Sphere(0.1), Capsule(0.1, 0.2), Cylinder(0.1, 0.2)\n"
        "for index, shape in enumerate(shapes):\n"
        "    world.add(str(index), shape, (index, 0, 0, 1, 0, 0, 0))\n"
        "world.load({'box': (Cuboid((1, 1, 1)), (0, 0, 0, 1, 0, 0, 0))})\n"
        "spheres = torch.full((1, 1, 1, 4), 0.4, requires_grad=True)\n"
        "sphere_cost(spheres, world).sum().backward()\n"
        "assert spheres.grad.any()\n"
        "heavy = {'trimesh', 'scipy', 'networkx'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", warp_collision.__all__)
def test_public_names_are_there(name: str) -> None:
    thing = getattr(warp_collision, name)
    assert name in dir(warp_collision)
    assert getattr(warp_collision, name) is thing


def test_every_lazy_name_is_public() -> None:
    assert {*warp_collision._MODULE_OF, "sampling"} == set(warp_collision.__all__)


def test_unknown_names_raise() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        warp_collision.nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_version() -> None:
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert warp_collision.__version__ == project["version"]


def test_names_of_robots_have_one_path() -> None:
    """What `warp_collision.robot` offers is imported from there, or from the package."""
    source = Path(warp_collision.__file__).parent
    for folder in (source, *(Path(__file__).parents[2] / name for name in ("tests", "benchmarks"))):
        for path in folder.rglob("*.py"):
            text = path.read_text()
            if path.is_relative_to(source / "robot") or "warp_collision.robot." not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom):
                    inner = (node.module or "").startswith("warp_collision.robot.")
                    names = {alias.name for alias in node.names} & set(robot.__all__)
                    assert not (inner and names), f"{path}: {names}"

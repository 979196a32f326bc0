"""The wheel and the sdist: what they hold, and that an installed wheel stands on its own."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import warp_collision

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src", "kernels", "assets")
# Where the packages of the wheel come from in the repository.
PACKAGES = {
    "warp_collision": ROOT / "src" / "warp_collision",
    "warp_collision/kernels": ROOT / "kernels",
    "warp_collision/assets": ROOT / "assets",
}

USE_INSTALLED_WHEEL = """
import json
import torch, trimesh
import warp_collision, warp_collision.kernels
from importlib.resources import files

world = warp_collision.MeshWorld(device="cpu")
world.add("box", trimesh.creation.box((2.0, 2.0, 2.0)))
spheres = torch.tensor([[[[1.25, 0.0, 0.0, 0.5], [0.0, 0.0, 3.0, 0.5]]]])
cost = warp_collision.sphere_cost(spheres, world, activation_distance=0.1)
print(json.dumps({
    "package": warp_collision.__file__,
    "kernels": warp_collision.kernels.__file__,
    "cost": cost.flatten().tolist(),
    "urdf": files("warp_collision.assets").joinpath("panda/panda.urdf").is_file(),
}))
"""


def run(*command, **options) -> str:
    """Runs a command and returns what it printed; its errors are part of a failure."""
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300, **options
    )
    assert result.returncode == 0, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


def source_files() -> set[str]:
    """What the wheel must hold, by the names in the wheel."""
    names = set()
    for package, folder in PACKAGES.items():
        files = (file for file in folder.rglob("*") if file.is_file())
        # Assets are data of any kind; the other packages are modules, and a marker of types.
        names |= {
            f"{package}/{file.relative_to(folder).as_posix()}"
            for file in files
            if "__pycache__" not in file.parts
            and (package.endswith("assets") or file.suffix == ".py" or file.name == "py.typed")
        }
    return names


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    """A folder with the sdist, and the wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("build")
    for name in SOURCES:  # a copy, as builds write into their tree
        if (ROOT / name).is_dir():
            unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, folder)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder)
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(distributions) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


def runtime_distributions() -> list[importlib.metadata.Distribution]:
    """The installed distributions that the package requires at run time, directly or not."""
    found: dict[str, importlib.metadata.Distribution] = {}
    todo = ["warp-collision"]
    while todo:
        distribution = importlib.metadata.distribution(todo.pop())
        name = canonicalize_name(distribution.metadata["Name"])
        if name in found:
            continue
        found[name] = distribution
        requirements = map(Requirement, distribution.requires or [])
        todo += [r.name for r in requirements if not r.marker or r.marker.evaluate({"extra": ""})]
    del found["warp-collision"]
    return list(found.values())


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The Python of a virtual environment with the wheel and what it requires, nothing else.

    What it requires is linked from this environment, as PyTorch is large. The editable install of
    this environment is not visible there, nor are tools of the extras.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for distribution in runtime_distributions():
        for top in {Path(str(file)).parts[0] for file in distribution.files or []}:
            target = Path(str(distribution.locate_file(top))).resolve()
            # The rest are scripts outside site-packages, and caches.
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(target)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    run(*pip, "check")
    return python


def test_wheel_holds_every_module_kernel_and_asset(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == source_files()
    for expected in (
        "py.typed",
        "kernels/__init__.py",
        "assets/panda/panda.urdf",
        "cli/__main__.py",
    ):
        assert f"warp_collision/{expected}" in names


def test_wheel_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(f"{info}/METADATA").decode()
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"\nVersion: {project['version']}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    required = {
        Requirement(line.removeprefix("Requires-Dist: ")).name
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    }
    assert required == {"numpy", "scipy", "torch", "trimesh", "warp-lang"}
    assert "warp-collision = warp_collision.cli.__main__:main" in scripts


def test_sdist_holds_what_a_build_needs_and_nothing_else(distributions):
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        files = (member.name for member in archive.getmembers() if not member.isdir())
        names = {name.partition("/")[2] for name in files}
    sources = {f"src/{name}" for name in source_files()}
    for folder in ("kernels", "assets"):  # which lie beside src/
        sources = {name.replace(f"src/warp_collision/{folder}/", f"{folder}/") for name in sources}
    assert {name for name in names if ".egg-info/" not in name} == {
        *sources,
        *("pyproject.toml", "README.md", "LICENSE", "PKG-INFO", "setup.cfg"),
    }


def test_the_repository_has_few_top_level_names():
    """What commands write into the folder they run in is not committed by accident."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    names = {name.partition("/")[0] for name in run("git", "ls-files", cwd=ROOT).splitlines()}
    assert {name for name in names if not name.startswith(".")} == {
        *("pyproject.toml", "src", "kernels", "tests", "assets", "benchmarks", "docs"),
        *("README.md", "Makefile", "LICENSE", "constraints.txt"),
    }


@pytest.mark.slow
def test_installed_wheel_runs_from_anywhere(installed):
    printed = json.loads(run(installed, "-c", USE_INSTALLED_WHEEL, cwd="/").splitlines()[-1])
    environment = installed.parents[1].resolve()
    assert Path(printed["package"]).resolve().is_relative_to(environment)
    assert Path(printed["kernels"]).resolve().is_relative_to(environment)
    # d = radius + activation distance - distance = 0.35, beyond the activation distance.
    assert printed["cost"] == pytest.approx([0.35 - 0.1 / 2, 0.0], abs=1e-6)
    assert printed["urdf"]


@pytest.mark.slow
def test_installed_command_line(installed):
    command = installed.parent / "warp-collision"
    assert "check spheres in a file" in run(command, "--help", cwd="/")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert run(command, "--version", cwd="/") == f"warp-collision {project['version']}\n"


def test_this_environment_runs_the_repository():
    """An editable install maps both folders, so that an edit is what the next test runs."""
    from warp_collision import assets, kernels

    for module, folder in zip((warp_collision, kernels, assets), PACKAGES.values(), strict=True):
        assert Path(module.__file__).resolve().parent == folder.resolve()

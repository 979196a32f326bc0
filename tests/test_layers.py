"""The layers of the code: imports go down only, and files and kernels stay small."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "warp_collision"
KERNELS = ROOT / "kernels"
PACKAGE = "warp_collision"

# From the bottom up. A module may import from its own layer, without going in a circle, and from
# the layers below. The package itself stands where its name is: it imports what it offers.
LAYERS = (
    ("kernels",),
    ("lifetime", "runtime", "validate", "poses", "refusals", "topology"),
    ("geometry", "io_scene"),
    ("commands", "launch"),
    ("candidates", "distance_grid"),
    ("obstacle", "broad_phase", "tables"),
    ("operators", "pose_operators"),
    ("autograd", "in_graph", "routes", "straight_through"),
    ("placement",),
    ("world",),
    ("costs", "warp_primitives"),
    ("collision_cost", "least_squares", "sampling"),
    (PACKAGE,),
    ("io", "io_yaml", "robot"),
    ("picture", "picture_data", "picture_render", "raster", "table"),
    ("demo",),
    ("cli",),
)
HEIGHT = {module: height for height, layer in enumerate(LAYERS) for module in layer}

MODULES = {path.stem: path for path in sorted(SOURCE.glob("*.py")) if path.stem != "__init__"}
KERNEL_FILES = {path.stem: path for path in sorted(KERNELS.glob("*.py"))}

MAX_FILE, MAX_KERNEL, MAX_ARGUMENTS = 400, 60, 14


def imported(path: Path) -> Iterator[str]:
    """Dotted names of all that a file imports, at its top, in functions and for type checkers."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively at line {node.lineno}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> set[str]:
    """Modules of the package that a file imports; the package itself for what it offers."""
    found = set()
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == PACKAGE:
            known = len(parts) > 1 and parts[1] in {*MODULES, "kernels"}
            found.add(parts[1] if known else PACKAGE)
    return found


def test_every_module_has_a_layer() -> None:
    assert {*MODULES, "kernels", PACKAGE} == set(HEIGHT)


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module: str) -> None:
    height = HEIGHT[module]
    upward = [name for name in own_imports(MODULES[module]) if HEIGHT[name] > height]
    assert not upward, f"{module} imports from layers above it"


def test_the_package_offers_only_what_is_below_it() -> None:
    offered = own_imports(SOURCE / "__init__.py")
    assert offered
    assert all(HEIGHT[name] < HEIGHT[PACKAGE] for name in offered)


def test_no_circles() -> None:
    graph = {module: own_imports(path) for module, path in MODULES.items()}
    order = list(TopologicalSorter(graph).static_order())
    assert order.index("launch") < order.index("operators") < order.index("costs")
    kernels = {
        stem: {n.split(".")[2] for n in imported(path) if n.startswith(f"{PACKAGE}.kernels.")}
        for stem, path in KERNEL_FILES.items()
    }
    order = list(TopologicalSorter(kernels).static_order())
    assert order.index("transforms") < order.index("scene") < order.index("swept_cost")


@pytest.mark.parametrize("module", KERNEL_FILES)
def test_kernels_import_warp_alone(module: str) -> None:
    """Device code knows neither torch nor what launches it."""
    names = list(imported(KERNEL_FILES[module]))
    assert names or module in ("__init__", "compiling")
    foreign = [n for n in names if n != "warp" and not n.startswith(f"{PACKAGE}.kernels.")]
    assert not foreign


@pytest.mark.parametrize("module", KERNEL_FILES)
def test_kernels_are_compiled_alike(module: str) -> None:
    """One that forgets the options compiles a backward pass that nobody calls."""
    text = KERNEL_FILES[module].read_text()
    has_kernels = "\n@wp.kernel" in text
    has_options = "\nwp.set_module_options(OPTIONS)" in text or "({**OPTIONS," in text
    assert has_kernels == has_options


def test_the_kernels_are_one_folder() -> None:
    """What `src` has under this name is a link for type checkers and editors, if anything."""
    link = SOURCE / "kernels"
    assert not link.exists() or link.resolve() == KERNELS


def python_files() -> list[Path]:
    """All that is written by hand here."""
    folders = (SOURCE, KERNELS, ROOT / "tests", ROOT / "benchmarks")
    return [path for folder in folders for path in sorted(folder.glob("*.py"))]


@pytest.mark.parametrize("path", python_files(), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE


def device_functions() -> list[tuple[str, ast.FunctionDef]]:
    """Kernels and the functions that they call."""
    return [
        (path.stem, node)
        for path in KERNEL_FILES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(decorator).startswith("wp.") for decorator in node.decorator_list)
    ]


@pytest.mark.parametrize(
    ("module", "function"),
    device_functions(),
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_kernels_are_short(module: str, function: ast.FunctionDef) -> None:
    assert function.end_lineno is not None
    begin = min(decorator.lineno for decorator in function.decorator_list)
    assert function.end_lineno - begin + 1 <= MAX_KERNEL
    assert len(function.args.args) <= MAX_ARGUMENTS
    assert ast.get_docstring(function), f"{module}.{function.name} has no docstring"

"""The layers of the code: imports go down only, and files and kernels stay small."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "warp_collision"
KERNELS = ROOT / "kernels"
PACKAGE = "warp_collision"

# From the bottom up. A module may import from its own layer and from the layers below; within a
# layer nothing goes in a circle. The package itself stands where its name is; a package in parts
# stands above them, and offers their names.
LAYERS = (
    ("kernels",),
    (
        "devices",
        "extras",
        "lazy_names",
        "messages",
        "notebooks",
        "poses",
        "summaries",
        "torch_private",
        "validate",
    ),
    ("formats",),
    ("launching",),
    ("obstacles",),
    ("io",),
    ("world",),
    ("queries",),
    ("collisions", "costs", "least_squares", "sampling", "warp_primitives"),
    ("robot.fitting",),
    ("robot.model",),
    ("robot.checks",),
    ("robot",),
    ("collision_cost", "examples"),
    (PACKAGE,),
    ("planning",),
    ("labeling",),
    ("viewer",),
    ("cli",),
)
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}

MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts): path
    for path in sorted(SOURCE.rglob("*.py"))
    if "kernels" not in path.relative_to(SOURCE).parts and path != SOURCE / "__init__.py"
}
KERNEL_FILES = {
    ".".join(path.relative_to(KERNELS).with_suffix("").parts): path
    for path in sorted(KERNELS.rglob("*.py"))
}

MAX_FILE, MAX_KERNEL, MAX_ARGUMENTS = 700, 60, 14


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def imported(path: Path) -> Iterator[str]:
    """Dotted names of all that a file imports: at its top, in functions, for types, and by name.

    Of a name that is put together, what stands before its first variable.
    """
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and called(node) == "import_module":
            name = node.args[0]
            parts = name.values if isinstance(name, ast.JoinedStr) else [name]
            if isinstance(parts[0], ast.Constant):
                yield str(parts[0].value)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively at line {node.lineno}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def own_imports(path: Path) -> set[str]:
    """Modules of the package that a file imports, `PACKAGE` for what the package itself offers."""
    found = set()
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != PACKAGE:
            continue
        # The longest name that is a module or a package; a name behind it is what it has.
        known = (".".join(parts[1:end]) for end in range(len(parts), 1, -1))
        found.add(next((k for k in known if k in MODULES or k in HEIGHT), PACKAGE))
    return found


def package_of(module: str) -> str:
    """The package, its part, or the top-level module that decides where a module stands."""
    package, *inner = module.split(".")
    part = ".".join((package, *inner[:1]))
    return part if part in HEIGHT else package


def kernel_file(name: str) -> str:
    """The file of what is imported from the kernels, by its name there."""
    module = name.rpartition(".")[0]
    return module if module in KERNEL_FILES else module.rpartition(".")[0]


def test_every_package_has_a_layer() -> None:
    assert {*map(package_of, MODULES), "kernels", PACKAGE} == set(HEIGHT)
    in_parts = {name.split(".")[0] for name in HEIGHT if "." in name}
    above = {module for module in MODULES if package_of(module) in in_parts}
    assert above == {f"{package}.__init__" for package in in_parts}


def test_imports_go_down() -> None:
    upward = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        for name in own_imports(path)
        if HEIGHT[package_of(name)] > HEIGHT[package_of(module)]
    ]
    assert not upward, upward


def test_the_package_offers_only_what_is_below_it() -> None:
    offered = own_imports(SOURCE / "__init__.py") - {PACKAGE}
    assert offered
    above = {name for name in offered if HEIGHT[package_of(name)] >= HEIGHT[PACKAGE]}
    assert above == {"viewer.notebook"}  # what notebooks show, imported when one asks


def test_imports_by_name_are_read(tmp_path: Path) -> None:
    path = tmp_path / "lazy.py"
    path.write_text(
        "def f(x):\n"
        "    from warp_collision.viewer import stage\n"
        "    importlib.import_module('warp_collision.planning.search')\n"
        "    import_module(f'warp_collision.robot.{x}'), import_module(x)\n"
    )
    assert own_imports(path) == {"viewer.stage", "planning.search", "robot"}


def test_no_circles() -> None:
    graph = {module: own_imports(path) - {module} for module, path in MODULES.items()}
    order = list(TopologicalSorter(graph).static_order())
    places = [order.index(name) for name in ("launching.launch", "queries.evaluate", "costs")]
    assert places == sorted(places)
    prefix = f"{PACKAGE}.kernels."
    kernels = {
        stem: {kernel_file(n[len(prefix) :]) for n in imported(path) if n.startswith(prefix)}
        for stem, path in KERNEL_FILES.items()
    }
    order = list(TopologicalSorter(kernels).static_order())
    assert order.index("transforms") < order.index("scene_walk") < order.index("swept_cost")


def test_a_kernel_file_has_a_name_of_its_own() -> None:
    """It is named for what it computes, so that no stem stands in host code too."""
    stems = [path.stem for path in (*MODULES.values(), *KERNEL_FILES.values())]
    of_kernels = {path.stem for path in KERNEL_FILES.values()} - {"__init__"}
    twice = {stem for stem in of_kernels if stems.count(stem) > 1}
    assert of_kernels
    assert not twice, twice


def test_private_parts_of_torch_are_in_one_file() -> None:
    pattern = r"\b(?:torch|forward_ad|autograd|_C)\._[a-zA-Z]\w*"
    private = {module: re.findall(pattern, path.read_text()) for module, path in MODULES.items()}
    assert private.pop("torch_private")
    assert not any(private.values()), {module: names for module, names in private.items() if names}


def test_types_of_devices_are_named_in_one_file() -> None:
    """Streams and captures too: a simulated GPU has a place where there is one for CUDA."""
    pattern = r"torch\.cuda\b|\.is_cuda\b|[\"']cuda\b"
    named = {module: re.findall(pattern, path.read_text()) for module, path in MODULES.items()}
    assert named.pop("devices")
    assert not any(named.values()), {module: names for module, names in named.items() if names}


def test_every_package_says_what_is_in_it() -> None:
    packages = {package_of(module) for module in MODULES if "." in module}
    folders = {package: SOURCE / package.replace(".", "/") for package in packages}
    texts = {package: (folder / "__init__.py").read_text() for package, folder in folders.items()}
    silent = [package for package, text in texts.items() if not ast.get_docstring(ast.parse(text))]
    assert not silent, silent


def test_kernels_import_warp_alone() -> None:
    """Device code knows neither torch nor what launches it."""
    names = {module: list(imported(path)) for module, path in KERNEL_FILES.items()}
    assert {module for module, found in names.items() if not found} <= {
        "__init__",
        "lanes.__init__",
        "compiling",
    }
    others = [
        f"{module} imports {name}"
        for module, found in names.items()
        for name in found
        # Generic functions of Warp take arguments of type Any.
        if name not in ("warp", "enum.IntEnum", "typing.Any")
        and not name.startswith(f"{PACKAGE}.kernels.")
        # What compiles kernels is host code.
        and not (module == "compiling" and name.partition(".")[0] in sys.stdlib_module_names)
    ]
    assert not others, others


def test_kernels_are_compiled_alike() -> None:
    """One that forgets the options compiles a backward pass that nobody calls."""
    different = []
    for module, path in KERNEL_FILES.items():
        text = path.read_text()
        options = (
            "\nwp.set_module_options(OPTIONS)",
            "\nwp.set_module_options(FEW_THREADS)",
            "({**OPTIONS,",
        )
        has_options = any(option in text for option in options)
        has_kernels = re.search(r"^@wp\.kernel|^\w+ = make_\w+_kernel\(", text, re.MULTILINE)
        if bool(has_kernels) != has_options:
            different.append(module)
    assert not different, different


def test_the_kernels_are_one_folder() -> None:
    """What `src` has under this name is a link for type checkers and editors, if anything."""
    link = SOURCE / "kernels"
    assert not link.exists() or link.resolve() == KERNELS


def python_files() -> list[Path]:
    """All that is written by hand here."""
    folders = (KERNELS, ROOT / "tests", ROOT / "benchmarks")
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [SOURCE / "__init__.py", *MODULES.values(), *files]


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in python_files()}
    long = {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > MAX_FILE}
    assert not long, f"longer than {MAX_FILE} lines: {long}"


def device_functions() -> list[tuple[str, ast.FunctionDef]]:
    """Kernels and the functions that they call, also those that are nested in factories."""
    functions = []
    for stem, path in KERNEL_FILES.items():
        for node in tree_of(path).body:
            if isinstance(node, ast.FunctionDef):
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                found = [child for child in node.body if isinstance(child, ast.FunctionDef)]
                if "wp." in decorators or "compiled_once" in decorators:
                    found.append(node)
                functions += [(stem, function) for function in found]
    return functions


def test_kernels_are_short() -> None:
    functions = device_functions()
    assert {"sphere_cost", "walk", "refine", "place"} <= {f.name for _, f in functions}
    flaws = []
    for module, function in functions:
        name = f"{module}.{function.name}"
        begin = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        lines, arguments = (function.end_lineno or 0) - begin + 1, len(function.args.args)
        if lines > MAX_KERNEL:
            flaws.append(f"{name} has {lines} lines")
        if arguments > MAX_ARGUMENTS:
            flaws.append(f"{name} has {arguments} arguments")
        if not ast.get_docstring(function):
            flaws.append(f"{name} has no docstring")
    assert not flaws, flaws

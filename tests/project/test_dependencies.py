"""What pip installs is enough: the imports of the package against what pyproject.toml promises."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from test_layers import (
    KERNEL_FILES,
    MODULES,
    PACKAGE,
    ROOT,
    SOURCE,
    called,
    own_imports,
    tree_of,
)

from warp_collision import extras
from warp_collision.extras import EXTRAS, require_extra

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = {**MODULES, PACKAGE: SOURCE / "__init__.py"}
# Modules that come with the library of an extra, and what only decorates a terminal.
COMES_WITH = {"PIL": {"matplotlib"}, "pyarrow": {"pyarrow", "ray"}, "websockets": {"viser"}}
MAY_BE_MISSING = {"rich"}


def installs(requirements: list[str]) -> set[str]:
    """Names of the distributions that a list of requirements installs, our own extras expanded."""
    found = set()
    for requirement in map(Requirement, requirements):
        if requirement.name == PROJECT["name"]:
            for extra in requirement.extras:
                found |= installs(PROJECT["optional-dependencies"][extra])
        else:
            found.add(requirement.name.lower())
    return found


@cache
def installed() -> Mapping[str, list[str]]:
    """Distributions of each top-level module."""
    return importlib.metadata.packages_distributions()


def modules_of(distributions: set[str]) -> set[str]:
    """Top-level modules of distributions."""
    return {
        module
        for module, names in installed().items()
        if distributions & {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    }


@cache
def core() -> set[str]:
    """Top-level modules that are always there."""
    return modules_of(installs(PROJECT["dependencies"])) | {*sys.stdlib_module_names, PACKAGE}


def is_for_type_checkers(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def imports(node: ast.AST, *, lazily: bool = False) -> Iterator[tuple[str, bool]]:
    """Yields the modules that code imports, and whether only a function that is called does.

    Calls of `import_module` with a literal count; what is for type checkers alone does not.
    """
    for child in ast.iter_child_nodes(node):
        if is_for_type_checkers(child):
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, lazily) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield str(child.module), lazily
        elif isinstance(child, ast.Call) and called(child) == "import_module":
            name = child.args[0]
            if isinstance(name, ast.Constant):
                yield str(name.value), lazily
            elif isinstance(name, ast.JoinedStr) and isinstance(name.values[0], ast.Constant):
                yield str(name.values[0].value), lazily
        is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from imports(child, lazily=lazily or is_function)


@cache
def imports_of(path: Path) -> frozenset[tuple[str, bool]]:
    return frozenset(imports(tree_of(path)))


def root(module: str) -> str:
    return module.partition(".")[0]


@cache
def foreign(path: Path) -> dict[str, bool]:
    """Top-level modules of a file that no dependency of the core installs, and if all are lazy."""
    found: dict[str, bool] = {}
    for name, lazily in imports_of(path):
        if root(name) not in core() and root(name):
            found[root(name)] = found.get(root(name), True) and lazily
    return found


def test_the_core_imports_its_dependencies_alone() -> None:
    at_import = {
        f"{file} imports {module}"
        for file, path in {**FILES, **KERNEL_FILES}.items()
        for module, lazily in foreign(path).items()
        if not lazily
    }
    assert not at_import, at_import


def test_all_dependencies_are_imported() -> None:
    """A dependency that nothing imports is no dependency."""
    used = {root(n) for p in FILES.values() for n, _ in imports_of(p)}
    for requirement in PROJECT["dependencies"]:
        assert modules_of({Requirement(requirement).name}) & (used | {"warp"}), requirement


@cache
def guards(path: Path) -> set[str]:
    """Top-level modules for which a file calls `require_extra` or `is_installed`."""
    return {
        root(ast.literal_eval(node.args[0]))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and called(node) in ("require_extra", "is_installed")
        and isinstance(node.args[0], ast.Constant)
    }


@cache
def importers() -> dict[str, list[str]]:
    """Files that import each file."""
    own = {name: own_imports(path) for name, path in FILES.items()}
    return {file: [name for name in FILES if file in own[name]] for file in FILES}


def unguarded(file: str, module: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """Files by which a module is reached without a word about the extra that installs it."""
    if COMES_WITH.get(module, {module}) & guards(FILES[file]) or file in seen:
        return set()
    if not importers()[file]:
        return {file}
    return set().union(*(unguarded(name, module, seen | {file}) for name in importers()[file]))


def test_what_an_extra_installs_is_asked_for_by_its_name() -> None:
    silent = {
        f"{file} imports {module}, reached from {', '.join(sorted(ways))}"
        for file, path in FILES.items()
        for module in set(foreign(path)) - MAY_BE_MISSING
        if (ways := unguarded(file, module))
    }
    assert not silent, silent


@pytest.mark.parametrize("module", EXTRAS)
def test_extras_install_what_they_promise(module, monkeypatch) -> None:
    package, extra = EXTRAS[module]
    assert root(module) in modules_of(installs(PROJECT["optional-dependencies"][extra]))
    require_extra(module, "this test")
    monkeypatch.setattr(extras, "is_installed", lambda _: False)
    expected = f"this test needs {package}: pip install 'warp-collision[{extra}]'"
    with pytest.raises(ModuleNotFoundError, match=re.escape(expected)):
        require_extra(module, "this test")

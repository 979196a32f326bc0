"""Examples in docstrings and in the README run and are right."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import warp_collision
from warp_collision import planning

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PUBLIC_MODULES = ("io", "planning", "poses", "robot", "warp_primitives")

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(warp_collision.__path__, "warp_collision.")
)


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    """Docstrings of a module that have examples."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(module, module.__name__) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name: str) -> None:
    """Every module has a docstring, and what its docstrings show is what happens."""
    module = importlib.import_module(name)
    if name != "warp_collision.assets":
        assert module.__doc__, f"{name} has no docstring"
    runner = doctest.DocTestRunner(verbose=False)
    report: list[str] = []
    for test in examples_of(module):
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


def public_objects() -> dict[str, Any]:
    """Functions and classes that users call, by name."""
    found = {name: getattr(warp_collision, name) for name in warp_collision.__all__}
    for stem in PUBLIC_MODULES:
        module = importlib.import_module(f"warp_collision.{stem}")
        for name in getattr(module, "__all__", None) or vars(module):
            thing = getattr(module, name)
            own = getattr(thing, "__module__", "").startswith(module.__name__)
            if own and name[0] != "_" and (inspect.isfunction(thing) or inspect.isclass(thing)):
                found[name] = thing
    return found


def documented() -> str:
    """All docstrings of the package that have an example."""
    tests = [test for name in MODULES for test in examples_of(importlib.import_module(name))]
    return "\n".join(test.docstring for test in tests)


PUBLIC = public_objects()


def test_what_is_public() -> None:
    assert {"MeshWorld", "sphere_cost", "checking", "SdfMeshWarpPy", "RobotSpheres"} <= set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_things_have_an_example(name: str) -> None:
    """Their own, or that of another docstring which speaks of them."""
    thing = PUBLIC[name]
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    assert ">>>" in text or re.search(rf"\b{name}\b", documented()), f"{name} has no example"


@pytest.mark.parametrize("name", [n for n in PUBLIC if inspect.isclass(PUBLIC[n])])
def test_public_methods_have_docstrings(name: str) -> None:
    thing = PUBLIC[name]
    # What torch calls in an autograd Function is described by the class.
    hidden = {"forward", "backward"} if issubclass(thing, torch.autograd.Function) else set()
    methods = {
        key: member
        for key, member in vars(thing).items()
        if key[0] != "_" and (inspect.isroutine(member) or isinstance(member, property))
    }
    assert not [key for key, member in methods.items() if key not in hidden and not member.__doc__]


def blocks_of(text: str, language: str) -> list[tuple[int, str]]:
    """Line and content of the fenced blocks of a language."""
    pattern = rf"^```{language}[^\n]*\n(.*?)^```\s*$"
    return [
        (text.count("\n", 0, match.start(1)) + 1, match.group(1))
        for match in re.finditer(pattern, text, flags=re.MULTILINE | re.DOTALL)
    ]


def test_examples_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python blocks, one after the other, as someone would paste them into a file."""
    blocks = blocks_of(README.read_text(), "python")
    assert blocks
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__readme__"}
    for line, source in blocks:
        # Blank lines before it make a traceback point at the line of the README.
        exec(compile("\n" * (line - 1) + source, str(README), "exec"), namespace)


def _code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_the_table_of_arguments() -> None:
    """Which function takes what is what the signatures say."""
    text = README.read_text().partition("### Which function takes what")[2]
    head, _, *rows = [line for line in text.partition("\n## ")[0].splitlines() if line[:1] == "|"]
    columns = _code(head)
    seen = []
    for row in rows:
        first, *cells, others = row.split("|")[1:-1]
        for name in _code(first.partition(":")[0]):
            thing = warp_collision if hasattr(warp_collision, name.split(".")[0]) else planning
            for part in name.split("."):
                thing = getattr(thing, part)
            found = set(inspect.signature(thing).parameters)
            if thing is warp_collision.CollisionCost:
                found |= set(inspect.signature(thing.forward).parameters)
            assert [column in found for column in columns] == ["✓" in cell for cell in cells], name
            assert set(_code(others)) <= found, name
            seen.append(name)
    assert {"sphere_cost", "joint_path_in_collision", "optimize_paths"} <= set(seen)


def test_the_parameters_of_the_planner() -> None:
    """All are in the README, with their defaults."""
    text = README.read_text().partition("| parameter | |")[2].partition("\n\n")[0]
    words = [word for word in _code(text) if re.match(r"\w+(=|$)", word)]
    listed = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    parameters = inspect.signature(planning.optimize_paths).parameters
    assert set(parameters) - {"robot", "world"} <= set(listed)
    for name, value in listed.items():
        if value:
            assert eval(value) == parameters[name].default, name


def test_moving_obstacles_run_alone() -> None:
    """The block of the README about them needs no other one."""
    text = README.read_text().partition("## Obstacles that move")[2].partition("\n## ")[0]
    ((_, source),) = blocks_of(text, "python")
    exec(compile(source, str(README), "exec"), {"__name__": "__readme__"})


def test_links_of_the_readme() -> None:
    """Files and pictures that it points at are there."""
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", README.read_text())
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    missing = [link for link in local if not (ROOT / link).exists()]
    assert not missing

"""Examples in docstrings, in the README and in the guides run; what the pages name is there."""

import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
import shlex
import tomllib
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import warp_collision
from pages import NOTEBOOK, PICTURES, blocks_of, code_of, notebook_of, run_blocks
from warp_collision import planning
from warp_collision.cli.__main__ import _COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = {
    str(page.relative_to(ROOT)): page.read_text()
    for page in (
        README,
        *sorted(DOCS.glob("*.md")),
        DOCS / "api" / "index.md",
        *sorted((ROOT / ".github").glob("*.md")),
    )
}
# Blocks of the tutorial are the cells of its notebook, and those of the FAQ raise errors.
OTHERWISE = {"docs/tutorial.md", "docs/faq.md"}
RUNNING = {page for page, text in PAGES.items() if "```python" in text} - OTHERWISE
SLOW = {"docs/gallery.md", "docs/seeing.md"}
PUBLIC_MODULES = ("io", "labeling", "planning", "poses", "robot", "viewer", "warp_primitives")

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


@cache
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
        for own in thing.__mro__
        if own.__module__.startswith("warp_collision.")
        for key, member in vars(own).items()
        if key[0] != "_" and (inspect.isroutine(member) or isinstance(member, property))
    }
    assert not [key for key, member in methods.items() if key not in hidden and not member.__doc__]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in sorted(RUNNING)],
)
def test_examples_of_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Python blocks, one after the other, as someone would paste them into a file."""
    monkeypatch.chdir(tmp_path)
    missing = run_blocks(page, PAGES[page], optional={"osqp", "pink"})
    if missing:
        pytest.skip(f"not installed, so that one block of {page} did not run: {missing}")


def test_pictures_of_the_gallery() -> None:
    """Each one is drawn by a block of the page, or shows the viewer, and none is left over."""
    text = PAGES["docs/gallery.md"]
    drawn = re.findall(r'"(\w+\.png)"', "".join(source for _, source in blocks_of(text, "python")))
    shown = re.findall(r"\]\(gallery/(\w+\.png)\)", text)
    assert shown == drawn
    assert {path.name for path in PICTURES.iterdir()} == set(drawn)
    assert all(path.stat().st_size < 200_000 for path in PICTURES.iterdir())


def test_the_notebook_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what `python tests/support/pages.py` makes of the page, and its cells run."""
    monkeypatch.chdir(tmp_path)
    notebook = NOTEBOOK.read_text()
    assert notebook == notebook_of(PAGES["docs/tutorial.md"])
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(code_of(notebook)):
        exec(compile(source, f"cell {number}", "exec"), namespace)
    assert namespace["planned"].free.all()
    assert not namespace["joint_path_in_collision"](
        namespace["planned"].joints, namespace["robot"], namespace["world"]
    ).any()


def test_every_block_has_a_language() -> None:
    """So that none is left out of these tests."""
    for page, text in PAGES.items():
        opened = re.findall(r"^```(\S*)", text, flags=re.MULTILINE)[::2]
        assert {*opened} <= {"python", "sh", "text", "{include}", "{toctree}", "{eval-rst}"}, page


def _code(text: str) -> list[str]:
    """What stands between backticks, on one line or two."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]


def _commands(text: str) -> list[list[str]]:
    """Words of the shell commands of a page, in blocks and in sentences."""
    lines = [block for _, block in blocks_of(text, "sh")]
    lines = [line for block in lines for line in block.replace("\\\n", " ").splitlines()]
    lines += [code for code in _code(text) if re.match(r"(make|python -m|pytest|pip) ", code)]
    lines += [code for code in _code(text) if re.match(r"warp-collision [a-z]", code)]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def _options(command: str) -> set[str]:
    """The options of a command of `warp-collision`, from its help."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    return set(re.findall(r"--[a-z-]+", printed.getvalue()))


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_option_is_on_a_page(command: str) -> None:
    pages = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", pages))
    silent = sorted(_options(command) - named - {"--help"})
    assert not silent, f"no page of docs/ names these options of {command}: {silent}"


def _require_command(words: list[str]) -> None:
    """Fails for a command, a target, a module, an extra or an option that is not there."""
    program, *rest = words
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in rest if "=" not in word} <= targets
    elif program == "warp-collision":
        assert {word for word in rest if word.startswith("--")} <= _options(rest[0])
    elif program == "python":
        path = ROOT.joinpath(*rest[1].split("."))
        assert rest[0] == "-m"
        assert path.with_suffix(".py").exists() or path.is_dir()
    elif program == "pytest":
        assert (ROOT / rest[0]).exists()
    elif program == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = re.findall(r"\[(.*)\]", " ".join(rest))
        assert {*",".join(extras).split(",")} <= {"", *project["optional-dependencies"]}
    else:
        pytest.fail(f"{program} is not a command that these pages speak of")


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page(page: str) -> None:
    for words in _commands(PAGES[page]):
        try:
            _require_command(words)
        except AssertionError as error:
            raise AssertionError(f"{page}: {shlex.join(words)}") from error


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 150
    (spheres, robot, *_) = (block for _, block in blocks_of(PAGES["README.md"], "python"))
    assert len([line for line in spheres.splitlines() if line]) <= 6
    assert len([line for line in robot.splitlines() if line]) <= 10


def test_what_is_asked_before_an_installation() -> None:
    """The newest changes are those of this version, and the assumptions of a proof are named."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (newest, *_) = re.findall(r"^## (\S+)", PAGES["docs/changelog.md"], re.MULTILINE)
    assert newest == project["version"]
    assert {".github/CONTRIBUTING.md", ".github/SECURITY.md"} <= {*PAGES}
    for minor in ("3.12", "3.13"):
        assert f"Programming Language :: Python :: {minor}" in project["classifiers"]
        assert f"{minor}." in PAGES["docs/guarantees.md"]  # which one ran
    certified = PAGES["docs/certified.md"]
    for said in (
        *("not a safety function", "ISO 10218", "ISO/TS 15066", "spheres", "convex pieces"),
        *("Tracking error", "float32", "As given", "Sensors", "Open meshes"),
    ):
        assert said in certified, said


def test_the_reference_has_every_public_module() -> None:
    listed = re.findall(r"^   warp_collision\.(\w+)$", PAGES["docs/api/index.md"], re.MULTILINE)
    assert {*PUBLIC_MODULES, "sampling", "examples"} == set(listed)


@pytest.mark.parametrize("page", ["docs/design.md", ".github/CONTRIBUTING.md"])
def test_paths_of_the_design_page(page: str) -> None:
    """Every file and folder that it names is there, in the repository or in the package."""
    text = PAGES[page]
    paths = [code for code in _code(text) if re.fullmatch(r"\S*(/|\.py)\S*", code)]
    for _, layers in blocks_of(text, "text"):
        paths += [line.split()[0] for line in layers.splitlines()]
    assert "kernels/" in paths
    folders = ROOT, ROOT / "src" / "warp_collision"
    assert not [path for path in paths if not any((f / path).exists() for f in folders)]


@pytest.mark.parametrize("page", PAGES)
def test_paths_of_a_page(page: str) -> None:
    """Files and folders of the repository that a sentence names are there; builds are not."""
    folders = r"(assets|benchmarks|docs|kernels|src|tests)/(?!_build)"
    paths = [code for code in _code(PAGES[page]) if re.match(folders, code)]
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_the_table_of_arguments() -> None:
    """Which function takes what is what the signatures say; each one with envs is there."""
    text = PAGES["docs/api/index.md"].partition("## Which function takes what")[2]
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
    public = ((m, name) for m in (warp_collision, planning) for name in m.__all__)
    functions = {name: thing for m, name in public if inspect.isfunction(thing := getattr(m, name))}
    with_envs = {n for n, f in functions.items() if "env_index" in inspect.signature(f).parameters}
    assert not with_envs - set(seen), f"docs/api/index.md leaves out {with_envs - set(seen)}"
    names = PAGES["docs/api/index.md"].partition("## Names by task")[2].partition("\n## ")[0]
    assert not [name for name in with_envs if f"{name}`" not in names]


def test_the_parameters_of_the_planner() -> None:
    """All are in its guide, with their defaults."""
    text = PAGES["docs/planning.md"].partition("| parameter | |")[2].partition("\n\n")[0]
    words = [word for word in _code(text) if re.match(r"\w+(=|$)", word)]
    listed = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    parameters = inspect.signature(planning.optimize_paths).parameters
    assert set(parameters) - {"robot", "world"} <= set(listed)
    for name, value in listed.items():
        if value:
            assert eval(value) == parameters[name].default, name


def test_each_claim_names_its_test() -> None:
    """A line of the guarantees is a claim, a figure, and a test file that is there."""
    text = PAGES["docs/guarantees.md"].partition("\n## Limits")[0]
    tables = re.findall(
        r"^\| claim \| measured \| test \|\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE
    )
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 20
    for row in rows:
        claim, measured, tests = (cell.strip() for cell in row.split("|")[1:-1])
        assert claim
        assert measured
        files = _code(tests)
        assert files, row
        assert not [file for file in files if not (ROOT / "tests" / file).exists()], row


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page(page: str) -> None:
    """Files and pictures that it points at are there, also where it is read without Sphinx."""
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", PAGES[page])
    included = re.findall(r"^```\{include\} (\S+)$", PAGES[page], flags=re.MULTILINE)
    local = [link for link in [*links, *included] if "://" not in link]
    folder = (ROOT / page).parent
    assert not [link for link in local if not (folder / link).exists()]


def test_errors_of_the_faq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks raise, or warn of, what is printed below them."""
    monkeypatch.chdir(tmp_path)
    (_, preamble), *causes = blocks_of(PAGES["docs/faq.md"], "python")
    messages = blocks_of(PAGES["docs/faq.md"], "text")
    assert len(messages) >= 20
    namespace: dict[str, Any] = {"__name__": "__page__"}
    exec(preamble, namespace)
    for (line, source), (below, printed) in zip(causes, messages, strict=True):
        assert below == line + source.count("\n") + 3, f"docs/faq.md:{line}: not above its message"
        code = compile("\n" * (line - 1) + source, "docs/faq.md", "exec")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                exec(code, namespace)
                (error,) = [warning.message for warning in warned]
            except Exception as raised:
                error = raised
        said = f"{type(error).__name__}: {error}"
        wanted = ".*".join(map(re.escape, " ".join(printed.split()).split("...")))
        assert re.fullmatch(wanted, " ".join(said.split())), f"docs/faq.md:{line}: {said}"

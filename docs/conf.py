"""How Sphinx builds these pages: `make docs`."""

import importlib
import inspect
from importlib.metadata import version as version_of
from typing import Any

import warp_collision

project = "warp-collision"
author = "the authors of warp-collision"
project_copyright = "the authors of warp-collision; Apache-2.0"
version = release = version_of("warp-collision")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "templates"]
templates_path = ["templates"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_title = f"warp-collision {version}"
html_copy_source = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# Names in docstrings stand in single backticks, whether they are of this package or not.
default_role = "py:obj"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autosummary_generate = True
autosummary_ignore_module_all = False  # a module's names are those of its __all__
autosummary_imported_members = True
autosummary_context = {"top": frozenset(warp_collision.__all__)}
toc_object_entries_show_parents = "hide"

MODULES = (
    "robot",
    "planning",
    "labeling",
    "viewer",
    "io",
    "sampling",
    "warp_primitives",
    "poses",
    "examples",
)


def _documented() -> dict[str, str]:
    """The one path under which each public name is documented, by its last part."""
    paths = {}
    for module in (f"warp_collision.{name}" for name in reversed(MODULES)):
        names = getattr(importlib.import_module(module), "__all__", ())
        paths.update({name: f"{module}.{name}" for name in names})
    return paths | {name: f"warp_collision.{name}" for name in warp_collision.__all__}


def _file_names() -> dict[str, str]:
    """Files of classes whose names differ from a function by case alone: some disks ignore case."""
    names = {name.lower() for name in PATHS if name[0].islower()}
    return {path: f"{path}_class" for name, path in PATHS.items() if name != name.lower() in names}


def _link_names(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Links a name in backticks to where it is documented, wherever it is written."""
    if node.get("refdomain") != "py":
        return None
    parts = [part for part in node["reftarget"].split(".") if part not in PACKAGES]
    if not parts or parts[0] not in PATHS:
        return None
    target = ".".join([PATHS[parts[0]], *parts[1:]])
    domain = env.get_domain("py")
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)


def _skip(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leaves out what torch and NamedTuple bring along, and what autograd calls with its ctx."""
    if type(member).__name__ == "_tuplegetter":
        return True
    if not inspect.isroutine(member):
        return None
    module = getattr(member, "__module__", None) or ""
    own = module.startswith("warp_collision")
    return None if own and "ctx" not in inspect.signature(member).parameters else True


def _plain_defaults(app: Any, what: str, name: str, *rest: Any) -> tuple[str, str] | None:
    """Writes the default of a dataclass's factory as Sphinx can read it."""
    signature, returns = rest[-2:]
    return signature and (signature.replace("<factory>", "..."), returns)


PATHS = _documented()
autosummary_filename_map = _file_names()
PACKAGES = {"warp_collision", *MODULES}


def setup(app: Any) -> None:
    """Connects the functions above."""
    app.connect("missing-reference", _link_names)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _plain_defaults)

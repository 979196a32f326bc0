"""Prints the lower bounds of pyproject.toml as exact versions, for pip's constraints."""

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
# Tools are the newest there are: what they do is no part of the library.
TOOLS = (
    "build",
    "coal",
    "flask",
    "flask-cors",
    "hypothesis",
    "moto",
    "pin",
    "pre-commit",
    "pyright",
    "ruff",
)


def oldest(pyproject: Path = PYPROJECT) -> list[str]:
    """Lines ``name==version`` of all that the library and its extras for the tests require."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = list(project["dependencies"])
    for extra in ("clients", "io", "label", "mujoco", "ray", "usd", "viz", "dev"):
        requirements += extras[extra]
    bounds = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\w.]+)", r) for r in requirements]
    found = {b[1]: b[2] for b in bounds if b is not None and b[1] not in TOOLS}
    return [f"{name}=={version}" for name, version in sorted(found.items())]


if __name__ == "__main__":
    print("\n".join(oldest()))

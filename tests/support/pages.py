"""What is made from the pages: the notebook of the tutorial, and the pictures of the gallery.

`python tests/support/pages.py` writes docs/tutorial.ipynb. With the argument `gallery` it draws
docs/gallery/*.png, by the blocks of the page.
"""

import json
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from PIL import Image

DOCS = Path(__file__).resolve().parents[2] / "docs"
TUTORIAL, NOTEBOOK = DOCS / "tutorial.md", DOCS / "tutorial.ipynb"
GALLERY, PICTURES = DOCS / "gallery.md", DOCS / "gallery"


def blocks_of(text: str, language: str) -> list[tuple[int, str]]:
    """Line and content of the fenced blocks of a language."""
    pattern = rf"^```{language}[^\n]*\n(.*?)^```\s*$"
    return [
        (text.count("\n", 0, match.start(1)) + 1, match.group(1))
        for match in re.finditer(pattern, text, flags=re.MULTILINE | re.DOTALL)
    ]


def run_blocks(page: str, text: str, optional: Collection[str] = ()) -> set[str]:
    """Runs the Python blocks of a page one after the other.

    Blocks that import a module of `optional` do not run where it is not installed. Returns the
    modules that are missing.
    """
    missing: set[str] = set()
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for line, source in blocks_of(text, "python"):
        try:
            # Blank lines before it make a traceback point at the line of the page.
            exec(compile("\n" * (line - 1) + source, page, "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name not in optional:
                raise
            missing.add(error.name)
    return missing


def notebook_of(text: str) -> str:
    """A page as a Jupyter notebook: its Python blocks are the code cells."""
    cells: list[dict[str, Any]] = []
    # Every second part is the content of a block.
    for number, part in enumerate(re.split(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)):
        source = part.strip("\n").splitlines(keepends=True)
        if not source:
            continue
        cell: dict[str, Any] = {"id": f"cell-{len(cells)}", "metadata": {}, "source": source}
        if number % 2:
            cells.append({"cell_type": "code", "execution_count": None, "outputs": []} | cell)
        else:
            cells.append({"cell_type": "markdown"} | cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def code_of(notebook: str) -> list[str]:
    """The code cells of a notebook."""
    cells = json.loads(notebook)["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def main(arguments: list[str]) -> None:
    """Writes the notebook, or draws the pictures."""
    if arguments == ["gallery"]:
        PICTURES.mkdir(exist_ok=True)
        os.chdir(PICTURES)
        run_blocks(str(GALLERY), GALLERY.read_text())
        for picture in PICTURES.glob("*.png"):  # smaller, and the same to the eye
            Image.open(picture).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE).save(
                picture, optimize=True
            )
    else:
        NOTEBOOK.write_text(notebook_of(TUTORIAL.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])

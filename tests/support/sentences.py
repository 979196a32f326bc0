"""Sentences of pages and docstrings, to count their words."""

import ast
import inspect
import re
from pathlib import Path

# A sentence ends where a capital, a digit, code or emphasis follows.
_END = re.compile(r"(?<=[.!?:])[\"')\]*]*\s+(?=[\"'(\[*]*[A-Z`*\d\[])")
_SHORT = re.compile(r"\b(e\.g|i\.e|vs|etc|cf|Dr|St|approx)\.")


def sentences_of(page: str) -> list[str]:
    """The sentences of a Markdown page; an item of a list and a cell of a table end one."""
    text = re.sub(r"<!--.*?-->", "", page, flags=re.S)
    text = re.sub(r"^ *(```|:::).*?^ *\1\s*$", "\n", text, flags=re.M | re.S)  # code
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)  # links
    text = re.sub(r"^#.*$", "\n", text, flags=re.M)
    text = re.sub(r"^\|[-:| ]+\|$", "", text, flags=re.M)
    text = re.sub(r"^ *\|(.*)\|\s*$", lambda row: _cells(row[1]), text, flags=re.M)
    return _split(text)


def sentences_of_docstring(docstring: str) -> list[str]:
    """The sentences of a docstring; an argument, an item and an example end one."""
    text = re.sub(r"^=+ +=[= ]*$.*^=+ +=[= ]*$", "", inspect.cleandoc(docstring), flags=re.M | re.S)
    lines = []
    for line in text.splitlines():
        if line.lstrip().startswith((">>>", "...")):
            lines.append("")
            continue
        # Headings and names of arguments stand alone.
        lines.append(re.sub(r"^\s*([\w*, ]+( \([^)]*\))?):(\s|$)", r"\n\n", line))
    text = re.sub(r"^(?: {4,}\S.*\n?)+", _unless_prose, "\n".join(lines), flags=re.M)
    return _split(text)


def docstrings_of(path: Path) -> list[tuple[int, str]]:
    """Line and docstring of the module, and of all public classes and functions of a file."""
    tree = ast.parse(path.read_text())
    found: list[tuple[int, str]] = []

    def visit(node: ast.AST, *, public: bool) -> None:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            name = getattr(node, "name", "module")
            public = public and (not name.startswith("_") or name == "__init__")
            text = ast.get_docstring(node, clean=False)
            if public and text:
                found.append((getattr(node, "lineno", 1), text))
            for child in node.body:
                visit(child, public=public)

    visit(tree, public=True)
    return found


def word_count(sentence: str) -> int:
    """The words of a sentence; code is one word, and signs are none."""
    sentence = re.sub(r"``?[^`]+``?", "code", sentence)
    return len(re.findall(r"[^\W_][\w'.,/%+-]*", sentence))


def _cells(row: str) -> str:
    return "\n\n" + "\n\n".join(row.split("|")) + "\n\n"


def _unless_prose(block: re.Match[str]) -> str:
    """Indented lines: descriptions of arguments are prose, formulas and outputs are not."""
    text = block[0]
    return text if len(re.findall(r"\b[a-z]{2,}\b", text)) > 4 else "\n\n"


def _split(text: str) -> list[str]:
    found = []
    for part in re.split(r"\n\s*\n|^ *(?:[-*]|\d+\.) +", text, flags=re.M):
        prose = _SHORT.sub(r"\1", " ".join(part.split()))
        found += [one for one in _END.split(prose) if word_count(one) > 3]
    return found

"""Sentences of the pages and of public docstrings are short."""

import re
from functools import cache
from pathlib import Path

import pytest

from sentences import docstrings_of, sentences_of, sentences_of_docstring, word_count

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "docs/api/index.md"]
PAGES += sorted((ROOT / ".github").glob("*.md"))
SOURCES = sorted((ROOT / "src" / "warp_collision").rglob("*.py"))
# What describes around the term, and the term.
PHRASES = {
    r"has to be said": "is required",
    r"as for the others": "the argument's own meaning",
    r"\bis told once\b": "is listed once",
    r"\btells? of\b": "reports",
}


@cache
def sentences() -> dict[str, list[str]]:
    """All sentences, by where they are."""
    pages = {str(page.relative_to(ROOT)): sentences_of(page.read_text()) for page in PAGES}
    docstrings = {
        f"{path.relative_to(ROOT)}:{line}": sentences_of_docstring(text)
        for path in SOURCES
        for line, text in docstrings_of(path)
    }
    return pages | docstrings


def test_no_sentence_has_more_than_35_words() -> None:
    counted = [(word_count(one), where, one) for where, all in sentences().items() for one in all]
    assert len(counted) > 5_000
    too_long = [found for found in counted if found[0] > 35]
    text = "\n".join(f"{where}: {n} words: {one}" for n, where, one in too_long)
    assert not too_long, text


@pytest.mark.parametrize(("ending", "most"), [(".md", 13), (".py", 13)])
def test_the_mean_sentence_is_short(ending: str, most: int) -> None:
    counts = [
        word_count(one)
        for where, all in sentences().items()
        for one in all
        if where.partition(":")[0].endswith(ending)
    ]
    assert sum(counts) / len(counts) < most


@pytest.mark.parametrize("phrase", PHRASES)
def test_the_idiom_of_the_field(phrase: str) -> None:
    found = [
        f"{where}: {one}"
        for where, all in sentences().items()
        for one in all
        if re.search(phrase, one, re.IGNORECASE)
    ]
    assert not found, f"write {PHRASES[phrase]!r}: {found}"


def test_sentences_are_found() -> None:
    """In paragraphs, lists and tables, and beside code, formulas and examples."""
    page = (
        "# Title\nOne `a b c` two three four. Five six seven eight\nnine.\n\n- a list has items\n\n"
    )
    page += (
        "```python\nno = 'sentence of a block of code is counted'\n```\n| this cell has words | a |"
    )
    expected = ["One `a b c` two three four.", "Five six seven eight nine."]
    assert sentences_of(page) == [*expected, "a list has items", "this cell has words"]
    docstring = """Does it with the thing.

    Args:
        name: the name of the thing, which
            goes on here. Then it ends here.

    Example:
        >>> what_stands_here_is(no, sentence, at, all)
    """
    expected = ["Does it with the thing.", "the name of the thing, which goes on here."]
    assert sentences_of_docstring(docstring) == [*expected, "Then it ends here."]
    assert word_count("A `b c d` e, 1.5 mm (f) — g.") == 7

"""Formats values, names and errors for messages: short, on one line, printable."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

MAX_REPR = 200  # characters of a value
MAX_ERROR = 400  # characters of another library's message
_MAX_BITS = 1024  # of an integer that is written out; Python refuses to from 4,300 digits on


def short_repr(value: object) -> str:
    """The `repr` of a value, cut to 200 characters.

    Containers are traversed only as far as they are shown, whatever their size and nesting.

    Example:
        >>> from warp_collision.messages import short_repr
        >>> short_repr([1, "a"])
        "[1, 'a']"
        >>> deep = ["lol"]
        >>> for _ in range(100):
        ...     deep = [deep, deep]
        >>> len(short_repr(deep))
        200
    """
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > MAX_REPR:
            break
    return escaped(text, MAX_REPR)


def escaped(text: str, length: int | None = None) -> str:
    r"""The text with its unprintable characters escaped, and cut, safe to print to a terminal.

    Line breaks, terminal control sequences, characters that change the writing direction and lone
    surrogates are escaped as in `repr`.

    Example:
        >>> from warp_collision.messages import escaped
        >>> print(escaped("shelf\x1b[31m"))
        shelf\x1b[31m
    """
    if length is not None:
        text = text[: length + 1]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if length is None or len(text) <= length else f"{text[: length - 3]}..."


def known_names(name: object, known: Sequence[str]) -> str:
    """Known names, the most similar to a wrong one first, cut to 200 characters.

    Example:
        >>> from warp_collision.messages import known_names
        >>> known_names("panda_hnd", ["panda_link0", "panda_hand", "can"])
        "'panda_hand', 'panda_link0', 'can'"
        >>> known_names("table", [])
        'nothing'
    """
    like = get_close_matches(name, known, n=5, cutoff=0.6) if isinstance(name, str) else []
    names = [*like, *(other for other in known if other not in like)]
    return escaped(", ".join(map(repr, names)), MAX_REPR) or "nothing"


def shell_words(*names: str) -> str:
    """Names as arguments of a command, each cut to 40 characters.

    Example:
        >>> from warp_collision.messages import shell_words
        >>> shell_words("panda_hand", "never seen")
        "panda_hand 'never seen'"
    """
    return shlex.join(escaped(name, 40) for name in names)


def one_line(error: BaseException) -> str:
    """The message of an error as one printable line of at most 400 characters."""
    try:
        text = str(error)[: 4 * MAX_ERROR]
    except Exception:  # its text may not be decodable
        text = ""
    if isinstance(error, LookupError | TypeError | AttributeError | AssertionError):
        text = f"{type(error).__name__}: {text}"  # their text is often only a name
    return escaped(" ".join(text.split()), MAX_ERROR) or type(error).__name__


@contextlib.contextmanager
def errors_at(
    where: str, kinds: type[Exception] | tuple[type[Exception], ...] = ValueError
) -> Iterator[None]:
    """Makes errors of some kinds ValueErrors that begin with a place.

    Example:
        >>> from warp_collision.messages import errors_at
        >>> with errors_at("arm.urdf"):
        ...     raise ValueError("the links must form one tree")
        Traceback (most recent call last):
        ValueError: arm.urdf: the links must form one tree
    """
    try:
        yield
    except kinds as error:
        raise ValueError(f"{where}: {error}") from error


@contextlib.contextmanager
def any_error_at(where: str) -> Iterator[None]:
    """Makes any error a ValueError that begins with a place: libraries raise many kinds."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{where}: {one_line(error)}") from error


def depth_of_caller() -> int:
    """How many frames above the function that warns the library was called: its `stacklevel`."""
    depth, frame = 1, sys._getframe(1)
    ours = "warp_collision", "torch."  # which wraps what needs no gradient, and what it compiles
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(ours):
        depth, frame = depth + 1, frame.f_back
    return depth


def _pieces(value: object) -> Iterator[str]:
    """Pieces of the `repr` of a value; none is empty, most are short."""
    if isinstance(value, str | bytes):
        yield repr(value[: MAX_REPR + 1])
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        yield f"an integer of {value.bit_length()} bits"
    elif type(value) is dict:
        yield "{"
        for index, (key, item) in enumerate(value.items()):
            yield ", " if index else ""
            yield from _pieces(key)
            yield ": "
            yield from _pieces(item)
        yield "}"
    elif type(value) is list or type(value) is tuple:
        yield "(" if type(value) is tuple else "["
        for index, item in enumerate(value):
            yield ", " if index else ""
            yield from _pieces(item)
        yield ("," if len(value) == 1 else "") + ")" if type(value) is tuple else "]"
    else:
        yield " ".join(repr(value).split())

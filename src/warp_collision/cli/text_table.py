"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def align(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """Pads cells so that columns line up.

    Args:
        rows: the cells, the same number in each row; the first row may be the head.
        right: the columns that are aligned to the right, as numbers are.

    Returns:
        A line for each row, without spaces at its end.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]

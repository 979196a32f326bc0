"""Which links of a robot are checked against each other, why others are not, and how often."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np

from warp_collision.messages import escaped
from warp_collision.robot.model.link_pairs import SelfCollisionPairs

_LONGEST = 40  # characters of a name


class MatrixEntry(NamedTuple):
    """Two links.

    Attributes:
        first: one link.
        second: the other.
        checked: whether they are checked against each other.
        reason: why not; or how often they are in contact.
        share: of random configurations, in which their spheres touch; NaN if they are not checked.

    Example:
        >>> from warp_collision.examples import load_panda
        >>> entry = load_panda().self_collision_matrix().entries[-1]
        >>> entry.checked, len({entry.first, entry.second})
        (False, 2)
    """

    first: str
    second: str
    checked: bool
    reason: str
    share: float


class SelfCollisionMatrix(NamedTuple):
    """See `RobotSpheres.self_collision_matrix`; its `str` is a table.

    Attributes:
        entries: all pairs of links with spheres: those that are checked, those most often in
            contact first, then those that are left out.
        n_samples: number of random configurations.
    """

    entries: tuple[MatrixEntry, ...]
    n_samples: int

    def __str__(self) -> str:
        names = [
            f"{escaped(entry.first, _LONGEST)} and {escaped(entry.second, _LONGEST)}"
            for entry in self.entries
        ]
        width = max(map(len, names), default=0)
        lines = [
            f"{name.ljust(width)}  {'checked' if entry.checked else 'not checked'}: {entry.reason}"
            for name, entry in zip(names, self.entries, strict=True)
        ]
        checked = sum(entry.checked for entry in self.entries)
        lines.append(
            f"{checked} of {len(self.entries)} pairs of links are checked; contacts are those at "
            f"{self.n_samples} random configurations"
        )
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the pairs that are not checked as an SRDF, which `srdf=` reads.

        Example:
            >>> import tempfile, pathlib
            >>> from warp_collision.examples import load_panda
            >>> matrix = load_panda().self_collision_matrix(n_samples=100)
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "panda.srdf"
            >>> matrix.save(path)
            >>> path.read_text().count("disable_collisions")
            13
        """
        lines = ['<?xml version="1.0"?>', '<robot name="robot">']
        for entry in self.entries:
            if not entry.checked:
                names = f"link1={quoteattr(entry.first)} link2={quoteattr(entry.second)}"
                lines.append(f"  <disable_collisions {names} reason={quoteattr(entry.reason)}/>")
        Path(path).write_text("\n".join([*lines, "</robot>", ""]), encoding="utf-8")


def matrix_of(pairs: SelfCollisionPairs, counts: np.ndarray, n_samples: int) -> SelfCollisionMatrix:
    """The matrix of pairs of links that touch in so many (n_pairs,) of some samples."""
    checked = [
        MatrixEntry(*pair, True, _frequency(count, n_samples), count / n_samples)
        for pair, count in zip(pairs.link_pairs, counts.tolist(), strict=True)
    ]
    checked.sort(key=lambda entry: -entry.share)
    left_out = [
        MatrixEntry(pair.first, pair.second, False, pair.reason, float("nan"))
        for pair in pairs.left_out
    ]
    return SelfCollisionMatrix((*checked, *left_out), n_samples)


def _frequency(count: int, n_samples: int) -> str:
    if count == 0:
        return "never in contact"
    if count == n_samples:
        return "always in contact"
    return f"in contact in {100.0 * count / n_samples:.1f} %"


def pairs_in_words(pairs: Sequence[tuple[str, str]]) -> str:
    """Some pairs of links, for a line of text."""
    return ", ".join(f"{escaped(a, _LONGEST)} and {escaped(b, _LONGEST)}" for a, b in pairs)

"""Cases that ask one question: `make test` runs some of them, and `make test-all` all."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], kept: Container[Any]) -> list[Any]:
    """Parameters of a test, of which those that are not kept are in the slow part."""
    return [case if case in kept else pytest.param(case, marks=pytest.mark.slow) for case in cases]

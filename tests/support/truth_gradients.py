"""How gradients are compared with finite differences of a float64 model."""

import numpy as np

from reference import Array

RELATIVE = 1e-3
# Slopes of the quadratic part are overlaps over eta: 0.3 um of rounding over 2 cm.
ABSOLUTE = 3e-5
FINE = 1e-6  # [m] tolerance of the sweep
KINK = 1e-3


def assert_relative(
    actual: Array,
    expected: Array,
    kink: Array,
    share: float,
    what: str,
    absolute: float = ABSOLUTE,
) -> None:
    """Rows (..., k) equal to 1e-3 of their length where the model is smooth.

    Args:
        actual: (..., k).
        expected: (..., k).
        kink: (...), by how much one-sided differences disagree, relative to the weight.
        share: of the rows that must be smooth.
        what: for the print.
        absolute: error that is allowed beside the relative one.
    """
    assert np.isfinite(actual).all()
    smooth = kink < KINK
    assert smooth.mean() > share
    error = np.linalg.norm(actual - expected, axis=-1)[smooth]
    size = np.linalg.norm(expected, axis=-1)[smooth]
    assert (size > 0.1).mean() > 0.2
    steep = size > 0.1
    print(
        f"gradient: {what}, {smooth.sum()} configurations, {steep.sum()} with a slope, largest "
        f"relative error {(error[steep] / size[steep]).max():.1e}"
    )
    assert (error <= RELATIVE * size + absolute).all()

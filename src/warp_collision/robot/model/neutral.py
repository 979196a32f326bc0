"""The neutral configuration of a robot."""

from __future__ import annotations

import numpy as np


def neutral_joints(limits: np.ndarray) -> np.ndarray:
    """(n_joints,) 0 where limits (n_joints, 2) allow it, else their middle [rad or m]."""
    low, high = limits.T
    middle = 0.5 * (np.nan_to_num(low, neginf=0.0) + np.nan_to_num(high, posinf=0.0))
    return np.where((low <= 0.0) & (high >= 0.0), 0.0, middle)

"""Fixtures of the whole suite."""

import pytest
import torch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device that tests run on: the CPU, and a GPU where there is one."""
    return torch.device(request.param)

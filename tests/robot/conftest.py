"""The arm of boxes, a cylinder, a ball and a bracket, which no test may change."""

import pytest

from arms import arm_in
from warp_collision import RobotSpheres


@pytest.fixture(scope="session")
def arm(tmp_path_factory: pytest.TempPathFactory) -> RobotSpheres:
    """The arm, read once."""
    return arm_in(tmp_path_factory.mktemp("arm"))

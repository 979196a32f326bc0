"""Which links are checked against each other, allowed contacts, planning groups and states."""

import numpy as np
import pytest
import torch

from robots import PANDA, checked_links
from urdf_reference import GRIPPER
from warp_collision import MeshWorld, configuration_in_collision
from warp_collision.examples import load_panda
from warp_collision.robot import RobotSpheres
from warp_collision.robot.model.kinematic_tree import neutral_joints

FOLDED = torch.tensor([[[0.0, 0.0, 0.0, -1.57, 0.0, 0.0, 0.0]]])

SRDF = """<robot name="panda">
  <group name="wrist"><joint name="panda_joint7"/><joint name="panda_joint6"/></group>
  <group name="arm"><chain base_link="panda_link0" tip_link="panda_link7"/></group>
  <group name="forearm"><link name="panda_link4"/><group name="wrist"/></group>
  <group name="empty"/>
  <group_state name="ready" group="arm">
    <joint name="panda_joint1" value="0.3"/><joint name="panda_joint4" value="-2.1"/>
  </group_state>
</robot>"""


@pytest.fixture
def srdf(tmp_path):
    path = tmp_path / "panda.srdf"
    path.write_text(SRDF)
    return path


def test_a_contact_that_is_seldom_is_checked_though_it_is_there_at_the_neutral_configuration():
    """At 0, a limit of joint 6, the hand of the Panda lies on its forearm."""
    panda = load_panda()
    assert ("panda_link5", "panda_hand") in panda.default_pairs.link_pairs
    assert configuration_in_collision(FOLDED, panda, MeshWorld(device="cpu")).all()
    text = " ".join(str(panda).split())
    assert "in contact at the neutral configuration, and checked" in text
    assert "panda_link5 and panda_hand" in text


def test_the_matrix_says_all_pairs(tmp_path):
    panda = load_panda()
    panda.allow("panda_link7", "panda_link5", reason="they cannot")
    matrix = panda.self_collision_matrix(n_samples=300)
    links = {*panda.sphere_links}
    assert len(matrix.entries) == len(links) * (len(links) - 1) // 2
    entries = {frozenset(entry[:2]): entry for entry in matrix.entries}
    assert entries[frozenset(("panda_link5", "panda_link7"))].reason == "allowed: they cannot"
    assert entries[frozenset(("panda_link0", "panda_link1"))].reason == "adjacent"
    hand = entries[frozenset(("panda_link5", "panda_hand"))]
    assert hand.checked
    assert 0.0 < hand.share < 0.2
    assert entries[frozenset(("panda_link0", "panda_link2"))].reason == "never in contact"
    checked = {pair for pair, entry in entries.items() if entry.checked}
    assert checked == checked_links(panda.default_pairs)
    assert "allowed: they cannot" in str(panda)
    matrix.save(tmp_path / "out.srdf")
    again = RobotSpheres(PANDA, srdf=tmp_path / "out.srdf")
    assert checked_links(again.default_pairs) == checked
    told = {frozenset(pair[:2]): pair.reason for pair in again.default_pairs.left_out}
    assert told[frozenset(("panda_link5", "panda_link7"))] == (
        "disabled by the SRDF (allowed: they cannot)"
    )


def test_allowed_contacts(tmp_path):
    path = tmp_path / "gripper.urdf"
    path.write_text(GRIPPER)
    robot = RobotSpheres(path)
    before = checked_links(robot.default_pairs)
    one, other = robot.default_pairs.link_pairs[0]
    robot.allow(other, one)
    assert before - checked_links(robot.default_pairs) == {frozenset((one, other))}
    with pytest.raises(ValueError, match=r"allowed contacts must be pairs of links .* there is"):
        robot.allow(one, "nobody")


def test_groups_move_their_joints_and_hold_the_others(srdf):
    panda = load_panda()
    wrist = RobotSpheres(PANDA, srdf=srdf, group="wrist", state="ready")
    assert wrist.joint_names == ("panda_joint6", "panda_joint7")
    assert wrist.locked_joints["panda_joint1"] == 0.3
    assert wrist.locked_joints["panda_joint2"] == 0.0
    assert wrist.locked_joints["panda_joint4"] == -2.1
    whole = torch.tensor([[0.3, 0.0, 0.0, -2.1, 0.0, 1.2, 0.4]])
    order = [wrist.sphere_links.index(link) for link in dict.fromkeys(wrist.sphere_links)]
    own = [panda.sphere_links.index(link) for link in dict.fromkeys(wrist.sphere_links)]
    found, expected = wrist(whole[:, 5:])[:, order], panda(whole)[:, own]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert RobotSpheres(PANDA, srdf=srdf, group="arm").n_joints == 7
    forearm = RobotSpheres(PANDA, srdf=srdf, group="forearm", lock_joints={"panda_joint7": 0.1})
    assert forearm.joint_names == ("panda_joint4", "panda_joint6")
    assert wrist.named_states == {"ready": {"panda_joint1": 0.3, "panda_joint4": -2.1}}
    assert RobotSpheres(PANDA, srdf=srdf, group="wrist").locked_joints["panda_joint4"] == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": "hand"}, "group must be one of the SRDF, got 'hand'; there is"),
        ({"group": "empty"}, "group must have joints that move, got 'empty'"),
        ({"group": "wrist", "state": "home"}, "state must be one of the SRDF, got 'home'"),
        ({"state": "ready"}, "state must be given with a group"),
    ],
)
def test_unknown_groups_and_states(srdf, options, message):
    with pytest.raises(ValueError, match=message):
        RobotSpheres(PANDA, srdf=srdf, **options)
    with pytest.raises(ValueError, match="group must be one of an SRDF, got 'arm' alone; srdf"):
        RobotSpheres(PANDA, group="arm")


def test_the_neutral_configuration():
    limits = np.array([[-1.0, 2.0], [0.5, 1.5], [-np.inf, np.inf], [-3.0, -1.0], [0.0, 2.0]])
    np.testing.assert_array_equal(neutral_joints(limits), [0.0, 1.0, 0.0, -2.0, 0.0])

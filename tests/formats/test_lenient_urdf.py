"""URDF files that break a rule, and that other readers take: what is left out is named."""

import numpy as np
import pytest

from warp_collision.robot.model.urdf_model import read_urdf_model

ROBOT = """{head}<robot name="r">
  <link name="base" {attribute}>
    <collision><geometry><box size="0.1 0.2 0.3"/>{in_geometry}</geometry></collision>{shape}
  </link>
  <link name="tip"><collision><geometry><sphere radius="0.1"/></geometry></collision></link>
  <joint name="j" type="revolute"><parent link="base"/><child link="tip"/>
    <axis xyz="0 0 1"/>{axis}<limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
</robot>"""
PARTS = dict.fromkeys(("head", "attribute", "in_geometry", "shape", "axis"), "")
PLANE = '<collision><geometry><plane normal="0 0 1"/></geometry></collision>'


def read(folder, **parts):
    path = folder / "robot.urdf"
    path.write_text(ROBOT.format(**PARTS | parts))
    return read_urdf_model(path)


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"attribute": 'drake:rigid="1"'}, "drake:rigid"),
        ({"in_geometry": '<material name="red"/>'}, "link 'base': <material> in <geometry>"),
        ({"axis": '<axis xyz="1 0 0"/>'}, "joint 'j': a second <axis>"),
        ({"shape": PLANE}, "link 'base': a <collision> that is a <plane>"),
        ({"shape": 2 * PLANE}, "link 'base': a <collision> that is a <plane>"),
    ],
)
def test_what_is_left_out_is_named(tmp_path, parts, named):
    with pytest.warns(UserWarning, match="is read without") as caught:
        found = read(tmp_path, **parts)
    assert named in str(caught[0].message)
    plain = read(tmp_path)
    assert found.link_names == plain.link_names
    assert [shape.link for shape in found.collisions] == ["base", "tip"]
    np.testing.assert_array_equal(found.joints[0].axis, [0.0, 0.0, 1.0])
    assert found.joints[0].limits == plain.joints[0].limits == (-1.0, 1.0)


def test_declared_prefixes_are_not_named(tmp_path):
    with pytest.warns(UserWarning, match="is read without") as caught:
        read(tmp_path, attribute='xmlns:d="http://d" d:known="1" other:a="2"')
    assert "known" not in str(caught[0].message)
    assert "other:a" in str(caught[0].message)


@pytest.mark.parametrize("before", ["\n  ", "<!-- made by hand -->\n", "<!-- é -->"])
def test_a_late_declaration(tmp_path, before):
    found = read(tmp_path, head=before + '<?xml version="1.0" encoding="utf-8"?>\n')
    assert found.link_names == ("base", "tip")


def test_other_mistakes_are_errors(tmp_path):
    for parts, message in (
        ({"in_geometry": '<box size="1 1 1"/>'}, "must hold one shape"),
        ({"axis": "<limit/>"}, "must have one <limit>"),
        ({"attribute": 'a:b="1" a:b="2"'}, "must be well-formed XML"),
        ({"shape": "<xacro:insert/>"}, "run xacro"),
        ({"head": '<?xml version="1.0"?><?xml version="1.0"?>'}, "must be well-formed XML"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tmp_path, **parts)

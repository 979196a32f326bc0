"""Shapes of URDF files: sizes, origins, mesh files and packages, and the errors of wrong ones."""

import os
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import trimesh

from warp_collision.formats.urdf_shapes import UrdfShape, find_mesh, read_shape


def read(shape: str, origin: str = "", folder: Path = Path()) -> UrdfShape:
    text = f"<collision>{origin}<geometry>{shape}</geometry></collision>"
    element = ElementTree.fromstring(text)
    return read_shape(element, where="link 'a'", folder=folder)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ('<box size="1 2e0 .5"/>', (1.0, 2.0, 0.5)),
        ('<sphere radius="0.1"/>', (0.1,)),
        ('<cylinder length="3" radius="0.2"/>', (0.2, 3.0)),
        ('<capsule length="3" radius="0.2"/>', (0.2, 3.0)),
        ('<capsule length="0" radius="0.2"/>', (0.2, 0.0)),
    ],
)
def test_sizes(shape, sizes):
    found = read(shape)
    assert found.sizes == sizes
    assert found.path is None
    assert (found.link_from_shape == np.eye(4)).all()


def test_origins_turn_about_fixed_axes():
    rpy, xyz = (0.3, -1.1, 2.0), (1.0, -2.0, 0.5)
    expected = trimesh.transformations.euler_matrix(*rpy, axes="sxyz")
    expected[:3, 3] = xyz
    origin = f'<origin xyz="{xyz[0]} {xyz[1]} {xyz[2]}" rpy="{rpy[0]} {rpy[1]} {rpy[2]}"/>'
    found = read('<sphere radius="1"/>', origin)
    np.testing.assert_allclose(found.link_from_shape, expected, atol=1e-15)

    w, x, y, z = 2.0 * trimesh.transformations.quaternion_from_matrix(expected)
    origin = f'<origin xyz="1 -2 0.5" quat_xyzw="{x} {y} {z} {w}"/>'
    found = read('<sphere radius="1"/>', origin)
    np.testing.assert_allclose(found.link_from_shape, expected, atol=1e-15)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("", "must have a <geometry> with one shape"),
        ('<cone radius="1"/>', "must be one of box, sphere, cylinder, capsule, mesh, got <cone>"),
        ('<sphere radius="0"/>', "radius of <sphere> must be positive and below 1e9, got '0'"),
        ('<sphere radius="2e9"/>', "must be positive and below 1e9, got '2e9'"),
        ('<box size="1 2"/>', "size of <box> must be 3 finite numbers, got '1 2'"),
        ('<box size="1 2 -3"/>', "size of <box> must be positive"),
        ('<cylinder radius="1"/>', "<cylinder> must have the attribute 'length'"),
        ('<cylinder radius="1" length="0"/>', "length of <cylinder> must be positive"),
        ('<sphere radius="${r}"/>', r"got '\$\{r\}', an expression: run xacro on the file"),
        ('<mesh filename="$(arg dir)/a.stl"/>', "expression: run xacro on the file first"),
        ('<mesh filename="none.stl"/>', "a mesh must be an existing file, got 'none.stl'"),
        ('<mesh filename="http://a/b.stl"/>', "must be a path, file:// or package://, got 'http"),
        ('<mesh filename="none.stl" scale="1 0 1"/>', "scale must not be 0, got '1 0 1'"),
        ('<mesh filename="a&#0000010;b"/>', r"existing file, got 'a\\nb'"),
    ],
)
def test_errors_name_the_link_the_rule_and_the_value(shape, message):
    with pytest.raises(ValueError, match=message) as raised:
        read(shape)
    assert str(raised.value).startswith("link 'a': ")


@pytest.mark.parametrize(
    "origin", ['quat_xyzw="0 0 0 0"', 'quat_xyzw="0 0 0 1" rpy="0 0 0"', 'rpy="0 0"']
)
def test_wrong_origins(origin):
    with pytest.raises(ValueError, match="link 'a': "):
        read('<sphere radius="1"/>', f"<origin {origin}/>")


def test_meshes_are_found_where_their_package_is(tmp_path):
    for place in ("inside/parts", "elsewhere/parts", "parts"):
        (tmp_path / place / "meshes").mkdir(parents=True)
        (tmp_path / place / "meshes" / f"{Path(place).parent.name or 'top'}.stl").touch()
    (tmp_path / "parts" / "urdf").mkdir()
    folder = tmp_path / "parts" / "urdf"

    def found(name: str, *package_dirs: Path) -> Path:
        return find_mesh(f"package://parts/meshes/{name}", "here", folder, package_dirs)

    assert found("inside.stl", tmp_path / "inside").is_file()
    assert found("inside.stl", tmp_path / "elsewhere", tmp_path / "inside" / "parts").is_file()
    assert found("top.stl").is_file()  # the file's own package, without search folders
    with pytest.raises(ValueError, match="must be found, got 'package://parts/meshes/in") as error:
        found("inside.stl", tmp_path / "elsewhere")
    for root in ("elsewhere/parts", "parts"):
        assert repr(str(tmp_path / root / "meshes" / "inside.stl")) in str(error.value)
    assert "must name a DIR with 'meshes/inside.stl' in DIR/parts" in str(error.value)
    with pytest.raises(ValueError, match=r"no folder around the URDF is named '\.\.'"):
        find_mesh("package://../parts/meshes/top.stl", "here", folder, [tmp_path])

    relative = folder / "../meshes/top.stl"
    assert find_mesh("../meshes/top.stl", "here", folder) == relative
    assert find_mesh(relative.resolve().as_uri(), "here", folder) == relative.resolve()


@pytest.mark.parametrize(
    ("at", "variable"),
    [
        ("share/parts", ""),  # in the share folder of a package folder
        ("robots/parts", ""),  # beside a folder that the URDF is in
        ("robots/arm/parts", ""),  # beside the URDF
        ("work/parts", "ROS_PACKAGE_PATH"),
        ("work/share/parts", "AMENT_PREFIX_PATH"),
    ],
)
@pytest.mark.parametrize("slashes", ["//", "///"])
def test_packages_are_found_in_the_layouts_of_ros(tmp_path, monkeypatch, at, variable, slashes):
    for name in ("ROS_PACKAGE_PATH", "AMENT_PREFIX_PATH"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "robots" / "arm"
    folder.mkdir(parents=True)
    mesh = tmp_path / at / "meshes" / "tip.stl"
    mesh.parent.mkdir(parents=True)
    mesh.touch()
    uri = f"package:{slashes}parts/meshes/tip.stl"
    if variable:
        with pytest.raises(ValueError, match="no folder around the URDF is named 'parts'"):
            find_mesh(uri, "here", folder)
        monkeypatch.setenv(variable, os.pathsep.join(("/none", str(tmp_path / "work"))))
    package_dirs = [tmp_path] if at.startswith("share") else []
    assert find_mesh(uri, "here", folder, package_dirs).samefile(mesh)


@pytest.mark.parametrize("name", ["Meshes/TIP.stl", "package://arm/Meshes/TIP.stl"])
def test_files_that_differ_in_case_are_named(tmp_path, name):
    folder = tmp_path / "arm"
    (folder / "meshes").mkdir(parents=True)
    (folder / "meshes" / "tip.stl").touch()
    if (folder / "MESHES").exists():
        pytest.skip("the file system knows no case")
    with pytest.raises(ValueError, match=r"there is '.*arm/meshes/tip\.stl', in another case"):
        find_mesh(name, "here", folder)
    with pytest.raises(ValueError, match="here: ") as error:
        find_mesh(name.replace("TIP", "TOP"), "here", folder)
    assert "in another case" not in str(error.value)

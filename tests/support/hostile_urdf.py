"""URDF files that are damaged, hostile or odd."""

from hostile_files import LAUGHS

SPHERE = '<geometry><sphere radius="0.1"/></geometry>'
LINK = f'<link name="a"><collision>{SPHERE}</collision></link>'
URDF = f'<robot name="r">{LINK}</robot>'


def robot(content: str, head: str = "") -> bytes:
    return f'{head}<robot name="r">{content}</robot>'.encode()


def joint(name: str, parent: str, child: str, more: str = "") -> str:
    return (
        f'<joint name="{name}" type="fixed"><parent link="{parent}"/><child link="{child}"/>'
        f"{more}</joint>"
    )


URDFS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "well-formed XML: no element found"),
    "noise": (bytes(range(256)), "well-formed XML"),
    "cut": (URDF.encode()[:-5], "well-formed XML"),
    "an unknown encoding": (
        b'<?xml version="1.0" encoding="klingon"?>' + URDF.encode(),
        "well-formed XML: .*klingon",
    ),
    "an encoding of many bytes": (
        b'<?xml version="1.0" encoding="utf-7"?>' + URDF.encode(),
        "well-formed XML: .*encoding",
    ),
    "a codec that is no encoding": (
        b'<?xml version="1.0" encoding="zip"?>' + URDF.encode(),
        "well-formed XML: ",
    ),
    "bytes of another encoding": (
        URDF.replace("a", "\xe4").encode("latin-1"),
        "well-formed XML: not well-formed",
    ),
    "laughs": (
        robot("&l11;", f"<!DOCTYPE lolz [{LAUGHS}]>"),
        "well-formed XML: limit on input amplification factor",
    ),
    "an entity of a file": (
        robot("&x;", '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
        "well-formed XML: undefined entity",
    ),
    "a foreign document type": (
        robot(LINK + "&x;", '<!DOCTYPE r SYSTEM "http://localhost/x.dtd">'),
        "well-formed XML: undefined entity",
    ),
    "an unknown entity": (robot("&nbsp;"), "well-formed XML: undefined entity"),
    "deep": (
        robot("<link>" * 50_000 + "</link>" * 50_000),
        "<link> must stand in <robot>, got <link>",
    ),
    "another root": (b'<sdf><link name="a"/></sdf>', "root element <robot>, got <sdf>"),
    "another namespace": (
        b'<robot xmlns="http://x" name="r"/>',
        "root element <robot>, got <{http://x}robot>",
    ),
    "an attribute twice": (b'<robot name="a" name="b"/>', "well-formed XML: duplicate attribute"),
    "two shapes": (
        robot(LINK.replace("</geometry>", '<box size="1 1 1"/></geometry>')),
        r"link 'a': <geometry> must hold one shape, got \['sphere', 'box'\]",
    ),
    "two spheres": (
        robot(LINK.replace("</geometry>", '<sphere radius="9"/></geometry>')),
        r"link 'a': <geometry> must hold one shape, got \['sphere', 'sphere'\]",
    ),
    "two geometries": (
        robot(LINK.replace("</collision>", f"{SPHERE}</collision>")),
        "link 'a': <collision> must have one <geometry>, got more",
    ),
    "no shape": (
        robot('<link name="a"><collision><geometry/></collision></link>'),
        r"link 'a': <geometry> must hold one shape, got \[\]",
    ),
    "no geometry": (
        robot('<link name="a"><collision/></link>'),
        "link 'a': <collision> must have a <geometry> with one shape",
    ),
    "two origins": (
        robot(LINK.replace("<geometry>", "<origin/><origin/><geometry>")),
        "link 'a': <collision> must have one <origin>",
    ),
    "a link in a group": (
        robot(f"{LINK}<group><link name='b'/></group>"),
        "link 'b': <link> must stand in <robot>, got <group>",
    ),
    "a joint in a group": (
        robot(f"{LINK}<group>{joint('j', 'a', 'b')}</group>"),
        "joint 'j': <joint> must stand in <robot>, got <group>",
    ),
    "a link in a link": (
        robot(f'<link name="b">{LINK}</link>'),
        "link 'a': <link> must stand in <robot>, got <link>",
    ),
    "a wrapped shape": (
        robot(f'{LINK}<link name="b"><group><collision>{SPHERE}</collision></group></link>'),
        "link 'b': <collision> must stand in <link>, got <group>",
    ),
    "a shape without a link": (
        robot(f"{LINK}<collision>{SPHERE}</collision>"),
        "the robot: <collision> must stand in <link>, got <robot>",
    ),
    "macros": (
        b'<robot name="r" xmlns:xacro="http://www.ros.org/wiki/xacro">'
        + LINK.encode()
        + b"<xacro:arm/></robot>",
        "must have its macros expanded, got <{http://www.ros.org/wiki/xacro}arm>",
    ),
    "two parents": (
        robot(LINK + joint("j", "a", "b", '<parent link="b"/>')),
        "joint 'j': <joint> must have one <parent>",
    ),
    "a radius of NaN": (robot(LINK.replace("0.1", "nan")), "must be 1 finite numbers, got 'nan'"),
    "a huge radius": (robot(LINK.replace("0.1", "1e300")), "must be 1 finite numbers, got '1e300'"),
    "an odd radius": (robot(LINK.replace("0.1", "1_0")), "must be 1 finite numbers, got '1_0'"),
    "a long radius": (
        robot(LINK.replace("0.1", "1 " * 100_000)),
        r"must be 1 finite numbers, got '1 1 .*\.\.\.$",
    ),
    "a name of controls": (
        robot(LINK + joint("j", "a", "&#x202e;&#x85;")),
        r"must join links that exist, got '\\u202e\\x85'",
    ),
    "many names twice": (
        robot("".join(f'<link name="{i % 30_000}"/>' for i in range(60_000))),
        r"names must be unique, got \['0', '1', .*\.\.\. twice",
    ),
    "many roots": (
        robot("".join(f'<link name="{i}"/>' for i in range(60_000)) + LINK),
        r"must form one tree, got the roots \['0', '1', .*\.\.\.$",
    ),
}

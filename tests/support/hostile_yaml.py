"""YAML files that are damaged, hostile or odd."""

from hostile_files import REST, Case


def doubling(kind: str, levels: int = 40) -> str:
    """Anchors of which each holds the last one ten times."""
    lines = ["a0: &a0 [lol]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    return "\n".join([*lines, f"{kind}: *a{levels - 1}"])


def merging(levels: int = 40) -> str:
    """Mappings of which each merges the last one ten times."""
    lines = ["a0: &a0 {k0: 1}"]
    for level in range(1, levels):
        merges = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {{<<: [{merges}], k{level}: 1}}")
    return "\n".join(lines)


def long_merges(keys: int = 2000, merges: int = 2000) -> str:
    """One mapping merged very often: as much work as keys times merges."""
    base = ", ".join(f"k{i}: 1" for i in range(keys))
    rows = "\n".join(f"m{i}: {{<<: *a}}" for i in range(merges))
    return f"a: &a {{{base}}}\n{rows}"


CUBOID = f"dims: [1, 1, 1], pose: {REST}"

YAML_TEXTS: dict[str, tuple[str, str]] = {
    "aliases explode": (doubling("cuboid"), "at most 500000 values .* got more in line 7"),
    "aliases explode in a value": (
        "cuboid: {a: {pose: 1, dims: &a [&b [&c [&d [1, 1, 1, 1, 1, 1, 1, 1, 1], *d, *d, *d], *c, "
        "*c, *c], *b, *b, *b]}}",
        r"cuboid\.a\.dims must be 3 positive numbers, got \[\[\[\[1, 1, .*\.\.\.$",
    ),
    "merges explode": (merging(), "at most 500000 values .* in line"),
    "merges of many keys": (long_merges(), "at most 500000 values .* in line"),
    "an alias of itself": ("a: &a [*a]", r"an alias must follow its anchor, got \*a in line 1"),
    "a merge of itself": ("a: &a {<<: *a}", r"must follow its anchor, got \*a in line 1"),
    "an unknown alias": ("cuboid: *nothing", r"must follow its anchor, got \*nothing in line 1"),
    "a merge of a number": ("a: {<<: 3}", r"a merge \(<<\) must be of mappings, got 3 in line 1"),
    "two merges": (
        "x: &x {a: 1}\ny: {<<: *x, <<: *x}",
        "the key '<<' stands again in line 2",
    ),
    "a key twice": (
        f"cuboid:\n  a: {{{CUBOID}}}\n  'a': {{{CUBOID}}}",
        "'a' stands again in line 3",
    ),
    "a number key twice": ("1: 2\n0x1: 3", "the key 1 stands again in line 2"),
    "deep brackets": ("[" * 100_000, "nesting must be at most 32 deep, got more in line 1"),
    "deep mappings": ("{a: " * 100_000, "nesting must be at most 32 deep"),
    "deep dashes": ("- " * 20_000, "nesting must be at most 32 deep"),
    "a list as a key": ("? [1, 2]\n: 3", "a key must be a plain scalar in line 1"),
    "an alias as a key": ("a: &a x\n*a : 3", "a key must be a plain scalar in line 2"),
    "a Python object": (
        "!!python/object/apply:os.system ['true']",
        "a tag must be !!seq, got 'tag:yaml.org,2002:python/object/apply:os.system' in line 1",
    ),
    "a tag of its own": ("cuboid: !cube 1", "a tag must be !!null, .*, got '!cube' in line 1"),
    "a tagged word": ("cuboid: !!int many", "type int must be one, got 'many' in line 1"),
    "a binary": ("cuboid: !!binary aGVsbG8=", "a tag must be .* got 'tag:yaml.org,2002:binary'"),
    "a set": ("cuboid: !!set {a, b}", "a tag must be !!map, got"),
    "a huge number": (
        f"sphere: {{a: {{radius: {'9' * 5000}, pose: {REST}}}}}",
        "a value of type int must be one, got '999.* in line 1",
    ),
    "a number of base 60": ("cuboid: 1" + ":59" * 5000, "got an integer of 29536 bits"),
    "a long number": (
        f"sphere: {{a: {{radius: 0x{'f' * 990}, pose: {REST}}}}}",
        "radius must be a positive number, got an integer of 3960 bits",
    ),
    "a huge text": (
        f"sphere: {{a: {{radius: '{'x' * 3_000_000}', pose: {REST}}}}}",
        r"radius must be a positive number, got 'xxx[^ ]{190,200}\.\.\.$",
    ),
    "a huge name": (
        f"sphere: {{{'x' * 1000}: {{radius: 0, pose: {REST}}}}}",
        r"sphere\.x{197}\.\.\.\.radius must be",
    ),
    "a huge key": ("? " + "x" * 100_000 + "\n: 1", r"keys must be among .*, got 'x{196}\.\.\.$"),
    "a long list": (
        f"sphere: {{a: {{radius: {[0.5] * 100_000}, pose: {REST}}}}}",
        r"radius must be a positive number, got \[0\.5, .*\.\.\.$",
    ),
    "a list of half a million": (
        "a: [" + "1," * 500_001 + "]",
        "at most 500000 values .* got more in line 1",
    ),
    "numbers as names": (f"cuboid: {{1.5: {{{CUBOID}}}}}", "names must be text, got 1.5; quote it"),
    "nothing as a name": (f"cuboid: {{~: {{{CUBOID}}}}}", "names must be text, got None"),
    "a name of controls": (
        f'cuboid: {{"\\e[31m\\u202e": {{{CUBOID}, mass: 1}}}}',
        r"cuboid\.\\x1b\[31m\\u202e: keys must be among",
    ),
    "two documents": ("cuboid: {}\n---\nsphere: {}", "must be one document, got another in line 2"),
    "only a start": ("---", "must be a mapping of kinds of obstacles, got ''|got None"),
    "a tab": ("cuboid:\n\ta: 1", "no valid YAML"),
    "a directive": (
        "%YAML 9.9\n---\na: 1",
        "no valid YAML: found incompatible YAML|no valid YAML: .*version",
    ),
    "an escape beyond Unicode": ('"\\UFFFFFFFF": 1', "no valid YAML"),
    "a nul": ("cuboid: \x00", "no valid YAML"),
    "an infinite quaternion": (
        "cuboid: {a: {dims: [1, 1, 1], pose: [0, 0, 0, 1.7e+308, 1.7e+308, 1.7e+308, 1.7e+308]}}",
        r"cuboid\.a\.pose must be 7 finite numbers",
    ),
    "a huge cylinder": (
        f"cylinder: {{a: {{radius: 1e99, height: 1, pose: {REST}}}}}",
        r"cylinder\.a\.radius must be below 1e9, got 1e\+99",
    ),
    "a far sphere": (
        "sphere: {a: {radius: 1, pose: [0, -1e+30, 0, 1, 0, 0, 0]}}",
        r"sphere\.a\.pose must have a position below 1e9, got \[0.0, -1e\+30, ",
    ),
    "a mesh that is this file": (
        f"mesh: {{a: {{file_path: world.yaml, pose: {REST}}}}}",
        "the name must end in one of .*; got 'yaml'",
    ),
}
YAML: dict[str, Case] = {
    name: ("world.yaml", text.encode(), message) for name, (text, message) in YAML_TEXTS.items()
} | {
    "bytes": ("world.yaml", bytes(range(256)), "no valid YAML: 'utf-8' codec can't decode"),
    "UTF-16": ("world.yaml", "cuboid: {}".encode("utf-16"), "no valid YAML"),
    "a huge file": ("world.yaml", b"#" * ((8 << 20) + 1), "at most 8388608 bytes, got 8388609"),
}

"""Names on a terminal: they cannot control it, and its encoding changes nothing but their looks."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import trimesh

from hostile_files import REST
from hostile_meshes import MESHES, STL
from hostile_yaml import YAML
from warp_collision.cli import terminal
from warp_collision.cli.__main__ import main
from warp_collision.cli.terminal import Progress, print_text
from warp_collision.messages import MAX_REPR, escaped, one_line, short_repr

# An erased screen, a title, the other direction of writing, a line break, letters beyond ASCII.
NAME = "\x1b[2J\x1b]0;owned\x07\u202e\u2066\n\rgrüße-机"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\u202e\u2066\n\rgrüße-机"


@pytest.fixture
def check(monkeypatch):
    """Runs the command on a terminal of some encoding; returns status, stdout and stderr."""

    def run(*arguments: object, encoding: str) -> tuple[int, bytes, bytes]:
        out, err = io.BytesIO(), io.BytesIO()
        errors = {"stdout": "strict", "stderr": "backslashreplace"}  # as Python has them
        for (name, how), raw in zip(errors.items(), (out, err), strict=True):
            stream = io.TextIOWrapper(raw, encoding, how, write_through=True)
            monkeypatch.setattr(sys, name, stream)
        status = main(["check", *map(str, arguments)])
        return status, out.getvalue(), err.getvalue()

    return run


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A world with a mesh of a hostile name, and a sphere in collision with it."""
    text = json.dumps({"cuboid": {NAME: {"dims": [1, 1, 1], "pose": REST}}})
    (tmp_path / "world.yaml").write_text(text)
    np.save(tmp_path / "spheres.npy", np.array([[0.0, 0.0, 0.5, 0.1]]))
    return tmp_path / "world.yaml", tmp_path / "spheres.npy"


def test_names_in_tables_and_in_json(files, capsys):
    assert main(["check", *map(str, files)]) == 1
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.count(SHOWN) == 2  # in the row and in the conclusion
    assert all(line.isprintable() for line in printed.out.splitlines())

    assert main(["check", *map(str, files), "--json"]) == 1
    text = capsys.readouterr().out
    assert json.loads(text)["worst"]["obstacle"] == NAME
    assert text.isascii()


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_terminals_that_cannot_encode_a_name(check, files, encoding):
    status, out, err = check(*files, encoding=encoding)
    assert (status, err) == (1, b"")
    letters = SHOWN.encode(encoding, "backslashreplace")
    assert out.count(letters) == 2
    assert b"\x1b" not in out


@pytest.mark.slow
def test_a_locale_of_ascii_and_a_file_of_another_name(tmp_path, files):
    """In a process of its own, which decodes its arguments and chooses the encoding."""
    _, spheres = files
    path = tmp_path / NAME.replace("/", "")
    path = path.with_name(path.name + ".stl")
    path.write_bytes(STL[:-3])
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    result = subprocess.run(
        [sys.executable, "-m", "warp_collision.cli", "check", path, spheres],
        env={**os.environ, **ascii_only},
        capture_output=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stdout == b""
    assert result.stderr.startswith(b"warp-collision: error: ")
    assert result.stderr.count(b"\n") == 1
    assert result.stderr.rstrip().isascii()
    assert b"\x1b" not in result.stderr
    assert rb"\x1b[2J" in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such a name")
def test_a_file_name_that_is_no_text(check, tmp_path, files):
    _, spheres = files
    path = os.fsencode(tmp_path) + b"/w\xff\xfe.yaml"
    Path(os.fsdecode(path)).write_bytes(b"[")
    status, out, err = check(os.fsdecode(path), spheres, encoding="utf-8")
    assert (status, out) == (2, b"")
    assert rb"w\udcff\udcfe.yaml: no valid YAML" in err
    assert err.count(b"\n") == 1


def test_wrong_usage_repeats_arguments_without_control(capsys):
    for arguments in (
        ["check", "a", "b", "--\x1b[31m"],
        ["\x1b[31m"],
        ["check", "\x1b", "--json=\x07"],
    ):
        with pytest.raises(SystemExit) as raised:
            main(arguments)
        assert raised.value.code == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert error.rstrip("\n").isprintable()
    assert main(["demo", "--problem", NAME, "--no-picture"]) == 2
    assert capsys.readouterr().err.rstrip("\n").isprintable()


def test_hostile_worlds_are_one_line_and_status_2(files, tmp_path, capsys):
    _, spheres = files
    for name, (file, content, _) in [*list(YAML.items())[::14], *list(MESHES.items())[::14]]:
        (tmp_path / file).write_bytes(content)
        assert main(["check", str(tmp_path / file), str(spheres)]) == 2, name
        printed = capsys.readouterr()
        assert printed.out == "", name
        assert printed.err.count("\n") == 1, name
        assert str(tmp_path / file) in printed.err, name


def test_what_only_the_world_refuses_names_its_file(files, tmp_path, capsys):
    _, spheres = files
    flat = trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [[0, 1, 2]], process=False)
    flat.export(tmp_path / "flat.obj")
    assert main(["check", str(tmp_path / "flat.obj"), str(spheres)]) == 2
    message = capsys.readouterr().err
    assert f"{tmp_path / 'flat.obj'}: mesh 'flat'" in message
    assert message.count("\n") == 1


def test_text_goes_to_any_stream():
    for encoding, expected in (("ascii", "a\\u673a\\x1b\nb "), ("utf-8", "a机\\x1b\nb ")):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding)
        print_text("a机\x1b\nb", stream, end=" ")
        assert raw.getvalue().decode(encoding) == expected
    plain = io.StringIO()
    print_text("\udcff", plain)
    assert plain.getvalue() == "\\udcff\n"


def test_no_stream_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    print_text("a")


# -- values in messages ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        1,
        -2.5,
        True,
        None,
        "it's",
        b"\x00",
        [],
        [1, "a"],
        (),
        (1,),
        (1, (2,)),
        {},
        {"a": [1]},
        {1, 2},
    ],
)
def test_short_values_are_shown_as_they_are(value):
    assert short_repr(value) == repr(value)


def test_long_values_are_cut():
    endless: list = [1]
    endless.append(endless)
    shared: object = {"a": "b"}
    for _ in range(60):
        shared = [shared, (shared, shared), {"k": shared}]
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    values = [endless, shared, deep, "x" * 10**7, [0.1] * 10**6, 10**10**5, np.zeros((9, 9, 9))]
    for value in values:
        text = short_repr(value)
        assert len(text) <= MAX_REPR
        assert text.isprintable()
    assert short_repr("x" * 1000) == "'" + "x" * 196 + "..."
    assert short_repr(10**10**4) == "an integer of 33220 bits"
    assert short_repr(["\x1b", "\u202e"]) == r"['\x1b', '\u202e']"


def test_errors_are_one_line():
    assert one_line(ValueError("a\n  b\tc\x1b")) == "a b c\\x1b"
    assert one_line(KeyError("nodes")) == "KeyError: 'nodes'"
    assert one_line(MemoryError()) == "MemoryError"
    assert len(one_line(ValueError("x" * 10**6))) == 400
    assert escaped("plain ü 机") == "plain ü 机"
    assert escaped("x" * 50, 10) == "xxxxxxx..."


def test_progress_off_a_terminal_is_a_line_a_minute(monkeypatch, capsys):
    """In the log of a job; what was done by an earlier run does not shorten the estimate."""
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    with Progress(1000, "paths", done=400) as progress:
        for second in range(0, 200, 10):
            clock[0] = float(second)
            progress.show(400 + second, "3 with errors")
    assert capsys.readouterr().err.splitlines() == [
        "460 of 1,000 paths, 3 with errors, 9 min left",
        "520 of 1,000 paths, 3 with errors, 8 min left",
        "580 of 1,000 paths, 3 with errors, 7 min left",
    ]
    with Progress(1000, "paths", shown=False) as progress:
        clock[0] += 100.0
        progress.show(10)
    assert capsys.readouterr().err == ""

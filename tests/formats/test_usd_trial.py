"""Files that may crash OpenUSD are read by a process that may crash."""

import os
import time

import pytest

from warp_collision.formats import usd_trial

pytest.importorskip("pxr", reason="usd-core reads USD: pip install '.[usd]'")
from pxr import Usd, UsdGeom  # after the check

MODULE = os.path.abspath(usd_trial.__file__)
LIMITED = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("usd_trial", {MODULE!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module._set_limits(0, 1 << 30)
"""


def crate(folder, *references: str):
    path = folder / "scene.usdc"
    stage = Usd.Stage.CreateNew(str(path))
    for index, name in enumerate(references):
        stage.DefinePrim(f"/copy{index}").GetReferences().AddReference(name)
    UsdGeom.Cube.Define(stage, "/cube")
    stage.GetRootLayer().Save()
    return path


def test_what_refers_to_others_is_read_as_a_stage_only_if_asked(tmp_path):
    path = crate(tmp_path)
    size = path.stat().st_size
    assert usd_trial.read_elsewhere([path], size)
    (tmp_path / "other").mkdir()
    other = crate(tmp_path / "other")
    (tmp_path / "far").mkdir()
    path = crate(tmp_path / "far", "../other/scene.usdc")
    assert not usd_trial.read_elsewhere([path], size)
    assert usd_trial.read_elsewhere([path, other], 2 * size, as_stages=True)


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        (LIMITED + "while True: pass", "SIGXCPU"),
        (LIMITED + "bytearray(2 << 30)", "status 1"),
    ],
)
def test_a_process_that_is_ended_is_an_error(script, ending, tmp_path, monkeypatch):
    path = crate(tmp_path)
    (tmp_path / "script.py").write_text(script)
    monkeypatch.setattr(usd_trial, "__file__", str(tmp_path / "script.py"))
    begin = time.monotonic()
    for _ in range(2):  # a failure is not remembered as a success
        with pytest.raises(ValueError, match=rf"in 3 s and 1024 MiB, got {ending} in scene\.usdc"):
            usd_trial.read_elsewhere([path], path.stat().st_size)
    assert time.monotonic() - begin < 60.0


def test_files_that_passed_are_read_again_when_they_change(tmp_path, monkeypatch):
    path = crate(tmp_path)
    assert usd_trial.read_elsewhere([path], 1)
    (tmp_path / "script.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(usd_trial, "__file__", str(tmp_path / "script.py"))
    assert usd_trial.read_elsewhere([path], 1)
    os.utime(path, ns=(1, 1))
    with pytest.raises(ValueError, match="got status 3 in scene"):
        usd_trial.read_elsewhere([path], 1)


def test_layers_that_do_not_open_are_not_tried_again(tmp_path):
    path = crate(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    with pytest.raises(ValueError, match="OpenUSD must be able to open it, got ") as raised:
        usd_trial.read_elsewhere([path], len(data))
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("data", "binary"), [(b"PXR-USDC\0\1", True), (b"PK\3\4", True), (b"#usda 1.0", False)]
)
def test_what_is_binary(data, binary, tmp_path):
    (tmp_path / "file.usd").write_bytes(data)
    assert usd_trial.is_binary(tmp_path / "file.usd") is binary

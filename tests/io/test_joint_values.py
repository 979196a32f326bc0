"""Joint values in files that name their joints: columns are ordered by name, others refused."""

import numpy as np
import pytest
import torch

from warp_collision.io import load_joints

NAMES = ("turn", "slide", "roll")
VALUES = np.random.default_rng(5).uniform(-2.0, 2.0, (6, 3))


def csv_of(path, names, values=VALUES):
    lines = [",".join(names), *(", ".join(repr(float(v)) for v in row) for row in values)]
    path.write_text("\n".join(lines))
    return path


def npz_of(path, names):
    np.savez(path, joints=VALUES, joint_names=np.array(names), times=np.zeros(6))
    return path


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
@pytest.mark.parametrize(("write", "name"), [(csv_of, "a.csv"), (npz_of, "a.npz")])
def test_columns_are_in_the_order_of_the_robot(tmp_path, order, write, name):
    path = write(tmp_path / name, [NAMES[i] for i in order])
    expected = np.empty_like(VALUES)
    expected[:, list(order)] = VALUES
    found = load_joints(path, 3, joint_names=NAMES)
    assert torch.equal(found, torch.from_numpy(expected.astype(np.float32))[None])
    assert torch.equal(load_joints(path, 3), torch.from_numpy(VALUES.astype(np.float32))[None])


@pytest.mark.parametrize("write", [csv_of, npz_of])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("turn", "slide", "pitch"), "unknown is 'pitch'; missing is 'roll'"),
        (("turn", "slide", "slide"), "missing is 'roll'"),
    ],
)
def test_other_names_are_refused(tmp_path, write, names, message):
    path = write(tmp_path / ("a.csv" if write is csv_of else "a.npz"), names)
    with pytest.raises(ValueError, match=f"must be turn, slide, roll, each once, .*{message}"):
        load_joints(path, 3, joint_names=NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line must be the names of the joints, separated by commas, got ''"),
        ("1,2,3\n1,2,3", "the first line must be the names"),
        ("turn,slide,roll", "holds no joints"),
        ("turn,slide,roll\n1,2,3\n1,2", r"row 1 must be 3 numbers, got \['1', '2'\]"),
        ("turn,slide,roll\n1,2,x", "row 0 must be 3 numbers"),
        ("turn,slide,roll\n1,2,1_0", "row 0 must be 3 numbers"),
        ('turn,slide,roll\n1,2,"3\n4"', "row 0 must be 3 numbers"),
        ('turn,slide,roll\n1,2,"3', "no valid CSV"),
        ("turn,slide,roll\n1,2,nan", "joints must be finite, got"),
        ("turn,slide,roll,wave\n1,2,3,4", "unknown is 'wave'"),
    ],
)
def test_wrong_tables(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_joints(path, 3, joint_names=NAMES)


def test_wrong_arrays(tmp_path):
    np.save(tmp_path / "a.npy", VALUES[:, :2])
    told = r"got \(6, 2\); one for each of turn, slide, roll, mimic joints have none"
    with pytest.raises(ValueError, match=told):
        load_joints(tmp_path / "a.npy", 3, joint_names=NAMES)
    np.savez(tmp_path / "a.npz", joints=VALUES, joint_names=np.zeros(3))
    with pytest.raises(ValueError, match="joint_names must be text, got dtype float64"):
        load_joints(tmp_path / "a.npz", 3, joint_names=NAMES)
    csv_of(tmp_path / "a.csv", NAMES)
    with pytest.raises(ValueError, match="joints must be 2 columns, got 3"):
        load_joints(tmp_path / "a.csv", 2)
    with pytest.raises(ValueError, match=r"joint_names must be n_joints = 2 names, got \('turn'"):
        load_joints(tmp_path / "a.csv", 2, joint_names=NAMES)

"""The referee: queries with rational truth, and paths of others that touch."""

import sys
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("pinocchio", reason="the judge needs pin and coal, of the extra 'dev'")
pytest.importorskip("coal", reason="the judge needs pin and coal, of the extra 'dev'")

from benchmarks import face_queries, motors_report, problems, referee_report
from benchmarks.__main__ import main
from benchmarks.harness import RESULTS, Failed
from benchmarks.planners import vamp_rrt_connect
from benchmarks.problems import list_problems

from panda_problem import write_problem

ASSETS = Path(str(files("warp_collision.assets")))
FACE = [(0, 0, 0), (4, 0, 0), (0, 3, 0)]


def query(begin, end, hits: bool, moves=(0, 0, 0), uneven=(0, 0, 0)) -> str:
    """Eight lines of a file; coordinates in thirds, which float64 does not have."""
    moved = [[a + b for a, b in zip(corner, moves, strict=True)] for corner in FACE]
    moved[2] = [a + b for a, b in zip(moved[2], uneven, strict=True)]
    end = [a + b for a, b in zip(end, moves, strict=True)]
    rows = [begin, *FACE, end, *moved]
    thirds = [[(Fraction(x) / 3).as_integer_ratio() for x in row] for row in rows]
    return "".join(",".join(f"{n},{d}" for n, d in row) + f",{int(hits)}\n" for row in thirds)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "scene" / "vertex-face"
    folder.mkdir(parents=True)
    shift = (7, -2, 5)
    text = query((1, 1, 1), (1, 1, -1), True) + query((1, 1, 2), (1, 1, -1), True, shift)
    text += query((5, 5, 1), (5, 5, -1), False, shift)
    text += query((1, 1, 2), (1, 1, Fraction(1, 10**6)), False)
    text += query((1, 1, 1), (1, 1, -1), True, uneven=(0, 0, 1))
    (folder / "data_0_0.csv").write_text(text)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    (folder / "data_0_1.csv").write_text(pointer)
    return tmp_path


def test_queries_are_read_in_the_frame_of_the_face(checkout: Path) -> None:
    """Those whose face turns are left out; a translation is part of the vertex's way."""
    found = face_queries.read(checkout)
    assert [one.hits for one in found] == [True, True, False, False]
    middle = np.array(FACE).mean(axis=0)
    for one, begin, end in zip(found, [(1, 1, 1), (1, 1, 2)], [(1, 1, -1)] * 2, strict=False):
        np.testing.assert_allclose(5.0 * one.face + middle, FACE, atol=1e-14)
        np.testing.assert_allclose(5.0 * one.begin + middle, begin, atol=1e-14)
        np.testing.assert_allclose(5.0 * one.end + middle, end, atol=1e-14)
    away = [5.0 * face_queries.distance(one) for one in found]
    # The third one passes the longest side's line, 3 x + 4 y = 12, at (5, 5, 0).
    np.testing.assert_allclose(away, [0.0, 0.0, 23.0 / 5.0, 1e-6], atol=1e-14)


def test_distances_of_segments_and_faces() -> None:
    """Against the nearest of many points."""
    rng, s = np.random.default_rng(3), np.linspace(0.0, 1.0, 60)
    u, v = (x.ravel() for x in np.meshgrid(s, s))
    inside = u + v <= 1.0
    shares = np.stack((1.0 - u - v, u, v), axis=1)[inside]
    for _ in range(20):
        one = face_queries.Query(rng.normal(size=(3, 3)), *rng.normal(size=(2, 3)), False)
        points = one.begin + s[:, None] * (one.end - one.begin)
        away = np.linalg.norm(points[:, None] - shares @ one.face, axis=2).min()
        assert -1e-12 <= away - face_queries.distance(one) <= 0.1


def test_missed_hits_are_counted(checkout: Path) -> None:
    queries = face_queries.read(checkout)
    text, n_missed = face_queries.report(queries)
    assert n_missed == 0
    assert "| 0.001 | 0 of 2 | 1 of 2 | 1 | 0 |" in text
    assert "| 1e-07 | 0 of 2 | 0 of 2 | 0 | 0 |" in text
    wrong = [one._replace(hits=True) for one in queries]
    assert face_queries.report(wrong)[1] == len(face_queries.TOLERANCES) + 1
    with pytest.raises(Failed, match="has no files"):
        face_queries.read(checkout / "scene")


def test_command_asks_queries(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = checkout / "out"
    asked = ["referee", "--robots", "--queries", str(checkout), "--write", str(out)]
    assert main(asked) == 0
    assert "4 vertex-face queries" in capsys.readouterr().out
    assert main(["referee", "--report", "--write", str(out)]) == 0
    assert "| 0.001 | 0 of 2 |" in (out / "referee.md").read_text()
    file = checkout / "scene" / "vertex-face" / "data_0_0.csv"
    file.write_text(query((5, 5, 1), (5, 5, -1), True))
    assert main(asked) == 1


def rows() -> list[dict]:
    """Of two problems."""
    first = {"path, converged": 1e-3, "corner spline, first": -0.012, "theirs": -2e-3}
    second = {"path, converged": -5e-5, "corner spline, first": 0.004, "theirs": -4e-3}
    return [{"type": "cage", "index": i, "ways": ways} for i, ways in enumerate((first, second))]


def test_reports_of_the_referee(tmp_path: Path) -> None:
    results = motors_report.replaced({}, "panda", rows(), 27, ("pin",))
    text = referee_report.markdown(results)
    assert "| `optimize_paths` | 1 of 2 | 0.05 | 0.1 |" in text
    assert '| spline through corners after `until="first"` | 1 of 2 | 12.00 | 12.0 |' in text
    assert text.index("| theirs | 2 of 2 | 3.00 | 4.0 |") > text.index("through corners")
    assert "panda: every 27th, 2 problems; CPU" in text
    assert referee_report.n_wrong(results, 1e-4) == 0
    assert referee_report.n_wrong(results, 1e-5) == 1
    assert referee_report.said(rows()[0]).endswith('after `until="first"`, theirs')
    motors_report.write(results, tmp_path / "referee.json")
    assert motors_report.read(tmp_path / "referee.json") == results


def test_kept_results_make_the_kept_tables() -> None:
    kept = motors_report.read(RESULTS / "referee.json")
    assert referee_report.markdown(kept).rstrip("\n") + "\n" == (RESULTS / "referee.md").read_text()


def test_vamp_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for VAMP: what it gets, and what becomes of its path."""
    path = np.array([[0.0, 1.0], [2.0, 3.0]])

    class Path:
        def numpy(self) -> np.ndarray:
            return path

        def validate(self, environment: list) -> bool:
            return len(environment) > 5

    module = SimpleNamespace(
        halton=lambda: "sampler", simplify=lambda *given: SimpleNamespace(path=given[0])
    )
    asked = []

    def plan(*given):
        asked.append(given)
        return SimpleNamespace(solved=len(asked) == 1, path=Path())

    class Environment(list):
        add_cuboid = add_capsule = list.append

    vamp = SimpleNamespace(
        configure_robot_and_planner_with_kwargs=lambda *names: (module, plan, *names),
        Environment=Environment,
        Cuboid=lambda *given: given,
        Cylinder=lambda *given: given,
    )
    monkeypatch.setitem(sys.modules, "vamp", vamp)
    problem = problems.Problem(ASSETS / "problems" / "cage_2.yaml", path[0], path[1])
    found = vamp_rrt_connect("panda", problem)
    assert found.free
    np.testing.assert_array_equal(found.path, path)
    assert asked[0][0] is problem.start
    assert asked[0][3:] == ("panda", "sampler")
    assert vamp_rrt_connect("panda", problem).path is None


@pytest.mark.slow
def test_paths_of_others_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The straight motion through a cage, which somebody calls free; what the library does is."""
    folder = tmp_path / "panda"
    write_problem(folder)
    monkeypatch.setattr(problems, "robot_folder", lambda *_: folder)
    ((scene_type, index),) = list_problems(folder, "panda")
    names = [f"panda_joint{i}" for i in range(1, 8)]
    problem = problems.read_problem(folder, "panda", scene_type, index, names)
    theirs = tmp_path / "theirs" / "panda" / scene_type
    theirs.mkdir(parents=True)
    np.save(theirs / f"{index:04d}.npy", np.stack([problem.start, problem.goal]))
    asked = ["referee", "--robots", "panda", "--paths", f"theirs={tmp_path / 'theirs'}"]
    with torch.random.fork_rng():
        assert main(asked) == 0
    text = capsys.readouterr().out
    assert "| theirs | 1 of 1 |" in text
    assert "| `optimize_paths` | 0 of 1 |  |  |" in text
    assert "| `timed` | 0 of 1 |  |  |" in text
    with pytest.raises(SystemExit):
        main(["referee", "--paths", "theirs=nowhere"])

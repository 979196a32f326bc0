"""The judge of robots by their shapes."""

import numpy as np
import trimesh

from mesh_judge import MeshJudge, of_balls, of_mesh


def test_the_judge_leaves_out_only_what_is_far():
    """What is asked for within a length is what all of it says, up to that length."""
    rng, turn = np.random.default_rng(3), trimesh.transformations.random_rotation_matrix
    ring = trimesh.creation.torus(0.3, 0.05, major_sections=12, minor_sections=8)
    links = {"ring": [ring], "rod": [trimesh.creation.cylinder(0.03, 0.7, sections=9)]}
    fixed = [of_mesh(trimesh.creation.box(rng.uniform(0.1, 0.6, 3)), turn(rng.random(3)))]
    fixed += of_balls(rng.normal(scale=0.4, size=(20, 3)), 0.03, turn(rng.random(3)))
    judge, found = MeshJudge(links, fixed), []
    for _ in range(60):
        frames = {name: turn(rng.random(3)) for name in links}
        for frame in frames.values():
            frame[:3, 3] = rng.normal(scale=0.4, size=3)
        found.append((judge.clearance(frames), judge.clearance(frames, 0.05)))
    whole, near = np.array(found).T
    np.testing.assert_allclose(near, np.minimum(whole, 0.05), rtol=0.0, atol=1e-12)
    assert 5 < (whole == 0.0).sum() < 55
    assert ((whole > 0.0) & (whole < 0.05)).any()


def test_faces_that_are_lines_touch_no_ball():
    box = trimesh.creation.box((0.2, 0.2, 0.2))
    faces = np.concatenate((box.faces, *(box.faces[:, [i, i, (i + 1) % 3]] for i in range(3))))
    mesh = trimesh.Trimesh(box.vertices, faces, process=False)
    judge = MeshJudge({"box": [mesh]}, of_balls(np.array([[0.13, 0.02, 0.11]]), 0.025, np.eye(4)))
    expected = np.hypot(0.03, 0.01) - 0.025
    np.testing.assert_allclose(judge.clearance({"box": np.eye(4)}), expected, rtol=1e-6)

"""A folder of planning problems with one of the Panda in it."""

import json
import xml.etree.ElementTree as ET
from importlib.resources import files
from pathlib import Path

ASSETS = Path(str(files("warp_collision.assets")))
PANDA = ASSETS / "panda" / "panda.urdf"


def write_problem(folder: Path) -> None:
    """A folder as `robot_folder` unpacks it, with one problem of the Panda in it."""
    entry = json.loads((ASSETS / "problems" / "cage.json").read_text())["cage_2"]
    of_set = folder / "problems" / "cage_panda"
    of_set.mkdir(parents=True)
    (of_set / "scene0002.yaml").write_text((ASSETS / "problems" / "cage_2.yaml").read_text())
    names = [*entry["joint_names"], "finger"]
    goal = zip(entry["joint_names"], entry["goal"], strict=True)
    request = {
        "start_state": {"joint_state": {"name": names, "position": [*entry["start"], 0.05]}},
        "goal_constraints": [
            {"joint_constraints": [{"joint_name": n, "position": v} for n, v in goal]}
        ],
    }
    (of_set / "request0002.yaml").write_text(json.dumps(request))
    (folder / "panda_spherized.urdf").write_text(PANDA.read_text())
    ends = [(j.find("parent"), j.find("child")) for j in ET.parse(PANDA).iter("joint")]
    pairs = [(a.get("link"), b.get("link")) for a, b in ends]
    pairs += [("panda_link5", "panda_link7"), ("panda_link5", "panda_camera")]
    disabled = "".join(f'<disable_collisions link1="{a}" link2="{b}"/>' for a, b in pairs)
    (folder / "panda.srdf").write_text(f'<robot name="panda">{disabled}</robot>')

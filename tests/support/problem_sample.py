"""Real planning problems: the first eight of each of seven sets, with their worlds and ends."""

import json
from importlib.resources import files
from pathlib import Path

import torch

from warp_collision import MeshWorld
from warp_collision.io import load_world_mapping

ASSETS = Path(str(files("warp_collision.assets")))
PROBLEMS = {
    name: entry
    for folder in ("planning", "problems")
    for file in sorted((ASSETS / folder).glob("*.json"))
    for name, entry in json.loads(file.read_text()).items()
}
QUICK = ("bookshelf_small_1", "box_1", "cage_2", "table_under_pick_3")


def obstacles_of(name: str) -> dict:
    return {kind: PROBLEMS[name].get(kind, {}) for kind in ("cuboid", "cylinder")}


def ends_of(*names: str) -> list[torch.Tensor]:
    """Starts and goals (n, 7)."""
    return [torch.tensor([PROBLEMS[name][end] for name in names]) for end in ("start", "goal")]


def world_of(*names: str, device: torch.device) -> MeshWorld:
    """Each problem's obstacles in an env of its own."""
    world = MeshWorld(n_envs=len(names), device=device)
    for env, name in enumerate(names):
        world.load(load_world_mapping(obstacles_of(name)), env)
    return world

"""A stranger's machine: what the README promises, where nothing of a developer's is installed.

    python3 .ci/stranger.py            all stages
    python3 .ci/stranger.py core io    some of them

Each stage has an environment of its own, a folder of its own, and an empty cache of kernels:

    demo   `make demo` in a fresh clone
    core   the wheel without extras: the README's Python blocks, its shell lines that need no
           extra, and a robot whose collision shapes are meshes, fitted, checked and planned for
    viz, view, label, io, mujoco, usd   that extra alone, with the command that needs it

Needs git, make, and the Python that runs it. Versions are those of constraints.txt; pip's settings
are the machine's.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()

# A Panda whose links collide by their meshes, as most robots' do.
MESH_ROBOT = """
import re, xml.etree.ElementTree as ET
tree = ET.parse("panda.urdf")
for link in tree.getroot().iter("link"):
    for collision in link.findall("collision"):
        link.remove(collision)
    for visual in link.findall("visual"):
        visual.tag = "collision"
tree.write("mesh_panda.urdf")
"""
USE_MESH_ROBOT = """
import numpy as np
import torch
from warp_collision import MeshWorld, RobotSpheres, configuration_in_collision
from warp_collision.planning import optimize_paths
robot = RobotSpheres("mesh_panda.urdf")
world = MeshWorld.from_file("cage.glb")
start = torch.tensor([[0, -0.785, 0, -2.356, 0, 1.571, 0.785]])
goal = torch.tensor([[0.5, -0.785, 0, -2.356, 0, 1.571, 0.785]])
assert not configuration_in_collision(torch.stack((start, goal), 1), robot, world).any()
found = optimize_paths(start, goal, robot, world)
assert found.free.all(), found
np.savez("mesh_path.npz", joints=found.joints[0].numpy(), joint_names=robot.joint_names)
print("fitted", robot, "planned", found.length.tolist())
"""
YAML_WORLD = """
from warp_collision.io import load_world_file, save_world_file
save_world_file("cage.yaml", load_world_file("cage.glb"))
"""
MJCF = """<mujoco><worldbody>
<geom name="table" type="box" size="0.3 0.3 0.1" pos="2 0 0.1"/></worldbody></mujoco>"""
USDA = """#usda 1.0
(
    upAxis = "Z"
    metersPerUnit = 1
)
def Cube "table"
{
    double size = 0.2
    double3 xformOp:translate = (2, 0, 0.1)
    uniform token[] xformOpOrder = ["xformOp:translate"]
}
"""


class Stranger:
    """An environment that has the wheel, and one extra at most."""

    def __init__(self, folder: Path, wheel: Path, extra: str = "", base: "Stranger | None" = None):
        self.place = folder / f"place-{extra or 'core'}"
        self.place.mkdir(parents=True)
        environment = folder / f"env-{extra or 'core'}"
        call(sys.executable, "-m", "venv", environment)
        self.bin = environment / "bin"
        self.environ = clean_environment(folder, self.bin)
        (self.site,) = environment.glob("lib/python3*/site-packages")
        if base is not None:  # what the core brought is seen, and not installed again
            (self.site / "core.pth").write_text(f"{base.site}\n")
        wanted = f"warp-collision[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        pip = ("-m", "pip", "install", "--quiet")
        self.python(*pip, "-c", ROOT / "constraints.txt", wanted)
        if base is not None:  # its command has this environment's Python
            self.python(*pip, "--ignore-installed", "--no-deps", wheel)

    def python(self, *arguments: object) -> str:
        """Runs the Python of the environment and returns what it printed."""
        return call(self.bin / "python", *arguments, cwd=self.place, env=self.environ)

    def shell(self, line: str, status: int = 0) -> str:
        """Runs a line of a shell and returns what it printed."""
        return call("bash", "-c", line, cwd=self.place, env=self.environ, status=status)

    def page(self, line: str) -> None:
        """Runs a line that serves a page, and reads the page."""
        print(f"$ {line}", flush=True)
        server = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self.place, env=self.environ, text=True,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[0]
            with urllib.request.urlopen(address, timeout=60) as answer:
                page = answer.read()
            assert answer.status == 200, answer.status
            assert b"<html" in page, page[:200]
        finally:
            server.terminate()
            server.wait(60)


def call(*command: object, status: int = 0, **options: object) -> str:
    """Runs a command and returns what it printed; another status than the one expected ends all."""
    words = [str(word) for word in command]
    shown = words[2] if words[0] == "bash" else " ".join(words)
    print(f"$ {shown if len(shown) < 300 else shown[:300] + ' ...'}", flush=True)
    done = subprocess.run(
        words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options
    )
    if done.returncode != status:
        sys.exit(f"{done.stdout}\nstatus {done.returncode}, expected {status}: {shown}")
    return done.stdout


def clean_environment(folder: Path, programs: Path | None = None) -> dict[str, str]:
    """The variables of a machine that has never seen the library."""
    dropped = ("PYTHON", "VIRTUAL_ENV", "WARP_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environ["WARP_CACHE_PATH"] = str(folder / "kernels")
    if programs is not None:
        environ["PATH"] = f"{programs}{os.pathsep}{environ['PATH']}"
    return environ


def blocks(language: str) -> list[str]:
    """The blocks of the README in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def readme_lines() -> list[str]:
    """The lines of the README for the command `warp-collision`."""
    text = "".join(blocks("sh")).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.startswith("warp-collision ")]


def expected_status(line: str) -> int:
    """The exit status that a line of the README names in its comment."""
    stated = re.search(r"# status (\d)", line)
    return int(stated.group(1)) if stated else 0


def build(folder: Path) -> Path:
    """Builds sdist and wheel from the files that git knows; returns the wheel."""
    tools = folder / "env-build"
    call(sys.executable, "-m", "venv", tools)
    pip = (tools / "bin" / "python", "-m", "pip", "install", "--quiet")
    call(*pip, "-c", ROOT / "constraints.txt", "build", "setuptools", "twine")
    call("git", "clone", "--quiet", "--no-hardlinks", ROOT, folder / "clone")
    call(
        tools / "bin" / "python", "-m", "build", "--no-isolation", "--outdir", folder / "dist",
        cwd=folder / "clone",
    )  # fmt: skip
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    print(call(tools / "bin" / "python", "-m", "twine", "check", "--strict", wheel, sdist))
    shutil.rmtree(folder / "clone" / "build", ignore_errors=True)
    return wheel


def demo(folder: Path) -> None:
    """`make demo`, before anything else was installed."""
    environ = clean_environment(folder)
    printed = call("make", "demo", f"PYTHON={sys.executable}", cwd=folder / "clone", env=environ)
    assert "certified" in printed, printed
    assert (folder / "clone" / "demo.png").stat().st_size > 10_000


def core(stranger: Stranger) -> None:
    """What needs no extra."""
    (stranger.place / "blocks.py").write_text("\n".join(blocks("python")))
    print(stranger.python("blocks.py"))
    for line in readme_lines():
        if line.split()[1] in ("example", "plan", "check"):
            print(stranger.shell(line, expected_status(line)))
    stranger.python("-c", MESH_ROBOT)
    print(stranger.python("-c", USE_MESH_ROBOT))
    print(
        stranger.shell(
            "warp-collision check cage.glb mesh_path.npz --robot mesh_panda.urdf --quiet"
        )
    )
    for extra, line in {
        "view": "view cage.glb path.npz --robot panda.urdf",
        "viz": "render cage.glb path.npz --robot panda.urdf -o it.png",
        "label": "label path.npz --world cage.glb --robot panda.urdf --out labels",
        "io": "check cage.yaml path.npz --robot panda.urdf",
    }.items():
        (stranger.place / "cage.yaml").write_text("{}")
        told = stranger.shell(f"warp-collision {line}", 2)
        assert f"pip install 'warp-collision[{extra}]'" in told, told


def viz(stranger: Stranger) -> None:
    """Pictures and films."""
    for line in readme_lines():
        if line.split()[1] in ("example", "plan", "render"):
            stranger.shell(line)
    assert (stranger.place / "path.png").stat().st_size > 10_000
    assert (stranger.place / "it.mp4").stat().st_size > 10_000


def view(stranger: Stranger) -> None:
    """A page that answers."""
    stranger.shell("warp-collision example")
    stranger.shell("mv straight.npz path.npz")
    (line,) = (line for line in readme_lines() if line.split()[1] == "view")
    stranger.page(line.partition("#")[0])


def label(stranger: Stranger) -> None:
    """A table."""
    stranger.shell("warp-collision example")
    stranger.shell(
        "warp-collision label straight.npz --world cage.glb --robot panda.urdf --out labels"
    )
    read = "import pyarrow.parquet as p; print(p.read_table('labels').to_pylist())"
    printed = stranger.python("-c", read)
    assert "'free': False" in printed, printed


def io(stranger: Stranger) -> None:
    """A YAML world."""
    stranger.shell("warp-collision example")
    stranger.python("-c", YAML_WORLD)
    stranger.shell("warp-collision check cage.yaml straight.npz --robot panda.urdf", 1)


def mujoco(stranger: Stranger) -> None:
    """An MJCF world."""
    stranger.shell("warp-collision example")
    (stranger.place / "table.xml").write_text(MJCF)
    stranger.shell("warp-collision check table.xml straight.npz --robot panda.urdf")


def usd(stranger: Stranger) -> None:
    """A USD world."""
    stranger.shell("warp-collision example")
    (stranger.place / "table.usda").write_text(USDA)
    stranger.shell("warp-collision check table.usda straight.npz --robot panda.urdf")


EXTRAS: tuple[Callable[[Stranger], None], ...] = (viz, view, label, io, mujoco, usd)


def main(chosen: list[str]) -> None:
    """Runs the stages, all of them if none is chosen."""
    names = ("demo", "core", *(stage.__name__ for stage in EXTRAS))
    unknown = set(chosen) - set(names)
    if unknown:
        sys.exit(f"stages are {', '.join(names)}, got {', '.join(sorted(unknown))}")
    chosen = chosen or [*names]
    folder = Path(tempfile.mkdtemp(prefix="stranger-"))
    try:
        begin = time.monotonic()
        wheel = build(folder)
        if "demo" in chosen:
            demo(folder)
            print(f"stranger: demo works, after {time.monotonic() - begin:.0f} s", flush=True)
        plain = Stranger(folder, wheel)
        if "core" in chosen:
            core(plain)
            print(f"stranger: core works, after {time.monotonic() - begin:.0f} s", flush=True)
        for stage in EXTRAS:
            if stage.__name__ in chosen:
                stage(Stranger(folder, wheel, stage.__name__, plain))
                took = time.monotonic() - begin
                print(f"stranger: {stage.__name__} works, after {took:.0f} s", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])

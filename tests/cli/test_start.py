"""What a command imports, which is most of what it takes to start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from warp_collision.cli.__main__ import main

# Beside torch's own: 1,520 to 1,860 and 250 to 276 when they were counted; versions of libraries
# differ.
MOST_MODULES, MOST_OF_OURS = 2300, 300
OF_SHAPES = {"warp_collision.kernels.shape_clearance", "warp_collision.kernels.shape_hit"}
NOT_NEEDED = OF_SHAPES | {
    "scipy.interpolate",
    "av",
    "h5py",
    "matplotlib",
    "mujoco",
    "pxr",
    "ray",
    "torch._dynamo",
    "viser",
}
CODE = """
import sys
from warp_collision.cli.__main__ import main
status = main()
print(status, *sorted(sys.modules), file=sys.stderr)
"""
ENDS = "--start 0 -0.785 0 -2.356 0 1.571 0.785 --goal -0.03 0.53 0.02 -1.61 2.89 2.56 -2.16"
COMMANDS = {
    "check": "check cage.glb straight.npz --robot panda.urdf",
    "plan": f"plan panda.urdf cage.glb --no-picture {ENDS}",
    "label": "label straight.npz --world cage.glb --robot panda.urdf --out labels",
}


@pytest.mark.parametrize(
    "name", ["check", *(pytest.param(name, marks=pytest.mark.slow) for name in ("plan", "label"))]
)
def test_a_command_imports_little(name: str, tmp_path: Path) -> None:
    """And its threads that wait take no CPU: torch's OpenMP tells how where it is loaded."""
    assert main(["example", str(tmp_path)]) == 0
    command = [sys.executable, "-W", "ignore", "-c", CODE, *COMMANDS[name].split()]
    environment = {**os.environ, "OMP_DISPLAY_ENV": "verbose"}
    environment.pop("OMP_WAIT_POLICY", None)
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    if "GOMP_SPINCOUNT" in done.stderr:  # or torch comes with another OpenMP
        assert "GOMP_SPINCOUNT = '0'" in done.stderr
    status, *modules = done.stderr.splitlines()[-1].split()
    assert status == ("1" if name == "check" else "0")
    assert not NOT_NEEDED & {*modules}
    assert sum(module.partition(".")[0] != "torch" for module in modules) < MOST_MODULES
    assert sum(module.startswith("warp_collision") for module in modules) < MOST_OF_OURS


# After arguments were parsed: while robots are imported, and after all that commands need.
LATE_MODULES = "networkx", "pyarrow.parquet"
INTERRUPTED = """
import os, signal, sys
from warp_collision.cli.__main__ import main

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

wanted = sys.argv.pop(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored behind a shell
sys.meta_path.insert(0, Finder)
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module",
    [
        "warp_collision.labeling.places",
        *(pytest.param(name, marks=pytest.mark.slow) for name in LATE_MODULES),
    ],
)
def test_an_interrupt_while_modules_are_imported_has_no_traceback(module: str, tmp_path: Path):
    """Some modules would go on as if what they import was missing."""
    assert main(["example", str(tmp_path)]) == 0
    command = [sys.executable, "-c", INTERRUPTED, module, *COMMANDS["label"].split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.count("interrupted") == 1
    assert "Traceback" not in done.stderr

"""How fast the library is: `python -m benchmarks --help`."""

import sys
from pathlib import Path

# The references, and a GPU that is simulated, belong to the tests, whose folder is no package.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

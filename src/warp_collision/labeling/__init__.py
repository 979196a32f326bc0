"""Labels of many paths: which are proven free, by how much, and where what is touched first.

`PathLabeler` is a function of batches, for loops over Arrow tables, `map_batches` of Ray Data, and
the commands `check` and `label`; they all give a path the same bits, however it is batched.

Names are imported when they are first used: the engine imports torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warp_collision.labeling.labeler import PathLabeler
    from warp_collision.labeling.on_ray import label_dataset
    from warp_collision.labeling.path_files import PathFiles
    from warp_collision.labeling.path_row import PathRow

__all__ = ["PathFiles", "PathLabeler", "PathRow", "label_dataset"]

_MODULE_OF = {
    "PathFiles": "path_files",
    "PathLabeler": "labeler",
    "PathRow": "path_row",
    "label_dataset": "on_ray",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'warp_collision.labeling' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, imported or not."""
    return sorted({*globals(), *__all__})

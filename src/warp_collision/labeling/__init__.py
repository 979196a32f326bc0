"""Labels of many paths: which are proven free, by how much, and where what is touched first.

`PathLabeler` is a function of batches. Loops over Arrow tables, `map_batches` of Ray Data, and the
commands `check` and `label` call it. They all give a path the same bits, however it is batched.

Names are imported when they are first used: the engine imports torch.
"""

from typing import TYPE_CHECKING

from warp_collision.lazy_names import lazy_names

if TYPE_CHECKING:
    from warp_collision.labeling.labeler import PathLabeler
    from warp_collision.labeling.on_ray import label_dataset
    from warp_collision.labeling.path_files import PathFiles
    from warp_collision.labeling.path_row import PathRow

__all__ = ["PathFiles", "PathLabeler", "PathRow", "label_dataset"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "labeler": ("PathLabeler",),
        "on_ray": ("label_dataset",),
        "path_files": ("PathFiles",),
        "path_row": ("PathRow",),
    },
)

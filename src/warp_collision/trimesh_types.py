"""Type checks for trimesh without importing it, which takes half a second.

Worlds of exact shapes do not need trimesh.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import trimesh
    from typing_extensions import TypeIs


def is_trimesh(value: Any) -> TypeIs[trimesh.Trimesh]:
    """Whether something is a `trimesh.Trimesh`."""
    return _is("Trimesh", value)


def is_scene(value: Any) -> TypeIs[trimesh.Scene]:
    """Whether something is a `trimesh.Scene`."""
    return _is("Scene", value)


def _is(name: str, value: Any) -> bool:
    kind = getattr(sys.modules.get("trimesh"), name, None)
    return kind is not None and isinstance(value, kind)

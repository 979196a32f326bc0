"""The report on a mesh that was loaded."""

from __future__ import annotations

from dataclasses import dataclass, field

from warp_collision.obstacles.sensed import Sensed
from warp_collision.obstacles.shapes import Shape


class OpenMeshWarning(UserWarning):
    """A mesh is open, and no `sign` says what counts as its inside.

    What its surface encloses by more than half counts as solid: a bowl without thickness is filled
    up to its rim and a little beyond.

    Attributes:
        name: of the obstacle.
        border: length of the edges at which its surface ends, or its orientation changes [m].

    Example:
        >>> import warnings
        >>> import trimesh
        >>> from warp_collision import MeshWorld, OpenMeshWarning
        >>> box = trimesh.creation.box((0.4, 0.4, 0.2))
        >>> open_box = (box.vertices, box.faces[2:])
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always", OpenMeshWarning)
        ...     _ = MeshWorld().add("tray", open_box)
        >>> caught[0].message.name, round(caught[0].message.border, 1)
        ('tray', 1.7)
    """

    def __init__(self, name: str, border: float):
        self.name = name
        self.border = border
        super().__init__(
            f"mesh {name!r} is open, its border is {border:.3g} m long: what it encloses by more "
            "than half counts as solid; sign='sheet' makes it a surface without an inside, "
            "sign='exact_winding' keeps it solid"
        )


@dataclass
class MeshReport:
    """Defects that were found in a mesh when it was loaded, and repairs.

    Attributes:
        n_faces: faces as given.
        n_components: components connected by shared edges.
        closed: whether every edge has as many faces on one side as on the other. Faces without area
            that were dropped from between others do not count.
        consistent: neighbouring faces agree in orientation.
        degenerate_faces: faces without area, and those that queries do not see and the others cover
            to 2**-22 of the largest coordinate; all of them were dropped.
        duplicate_faces: faces that repeat an earlier one with the same orientation.
        reversed_faces: faces that repeat an earlier one with the opposite orientation.
        inverted_components: closed components whose faces are oriented inward.
        overlapping_components: pairs of components whose bounding boxes intersect.
        sliver_faces: faces too thin for float32, which were split.
        sliced_faces: faces so long and thin, in pairs, that they were sliced across.
        repairs: what was changed, in words; empty if nothing was.
        sign_method: what decides between inside and outside: "winding", "exact_winding", "convex",
            "sheet", or "exact" for an exact shape.
        reason: why that method.
        shape: the exact or sensed shape that queries see instead of triangles, if there is one.
    """

    n_faces: int
    n_components: int = 0
    closed: bool = False
    consistent: bool = False
    degenerate_faces: int = 0
    duplicate_faces: int = 0
    reversed_faces: int = 0
    inverted_components: int = 0
    overlapping_components: int = 0
    sliver_faces: int = 0
    sliced_faces: int = 0
    repairs: list[str] = field(default_factory=list)
    sign_method: str = "winding"
    reason: str = ""
    shape: Shape | Sensed | None = None

    def __str__(self) -> str:
        state = "closed" if self.closed else "open"
        kind = f"sign: {self.sign_method}" if self.shape is None else f"exact: {self.shape}"
        lines = [
            f"{self.n_faces} faces, {self.n_components} components, {state}, "
            + ("consistently oriented" if self.consistent else "inconsistently oriented"),
            f"degenerate {self.degenerate_faces}, duplicate {self.duplicate_faces}, reversed "
            f"duplicate {self.reversed_faces}, sliver {self.sliver_faces} faces",
            f"inverted components {self.inverted_components}, pairs of components that may overlap "
            f"{self.overlapping_components}",
            "repaired: " + ("; ".join(self.repairs) or "nothing"),
            f"{kind} ({self.reason})",
        ]
        return "\n".join(lines)

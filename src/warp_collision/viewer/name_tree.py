"""The names of obstacles in the browser: a tree whose rows switch obstacles and tell of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warp_collision.messages import escaped
from warp_collision.viewer import panel_text
from warp_collision.viewer.host import Host

MOST_ROWS = 100  # that are listed at once; a group of more is filled when it is asked for
_ON, _OFF, _REPORT, _LIST = "☑ on", "☐ off", "report", "list them"
_ALL_ON, _ALL_OFF = "all on", "all off"


@dataclass
class Group:
    """Names that stand together.

    Attributes:
        groups: in it, by label.
        names: in it, by what is left of each.
    """

    groups: dict[str, Group] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def everything(self) -> list[str]:
        """All names, those of groups in it too."""
        inner = [name for group in self.groups.values() for name in group.everything()]
        return [*inner, *self.names.values()]


def tree_of(kinds: Mapping[str, str]) -> Group:
    """Returns names as a tree.

    Names are cut at `/`. Many names without one stand together by kind. A group that holds nothing
    but one group or one name is none of its own.

    Args:
        kinds: by name, what it is.

    Example:
        >>> from warp_collision.viewer.name_tree import tree_of
        >>> root = tree_of({"shelf/top": "Cuboid", "shelf/side": "Cuboid", "ball": "Sphere"})
        >>> root.groups["shelf"].names, root.names
        ({'top': 'shelf/top', 'side': 'shelf/side'}, {'ball': 'ball'})
    """
    root, by_kind = Group(), len(kinds) > MOST_ROWS
    for name, kind in kinds.items():
        *path, leaf = [part for part in name.split("/") if part] or [name]
        group = root
        for part in path or ([kind] if by_kind else []):
            group = group.groups.setdefault(part, Group())
        # Two names may differ in empty parts alone.
        group.names[name if leaf in group.names else leaf] = name
    return _merged(root)


def _merged(group: Group) -> Group:
    found = Group(names=group.names)
    for label, inner in group.groups.items():
        inner = _merged(inner)
        if len(inner.groups) + len(inner.names) > 1:
            found.groups[label] = inner
            continue
        for last, only in inner.groups.items():
            found.groups[f"{label}/{last}"] = only
        for last, name in inner.names.items():
            found.names[f"{label}/{last}"] = name
    return found


class NameTree:
    """The tree in a panel.

    Args:
        viewer: that holds the panel.
    """

    def __init__(self, viewer: Host):
        self._viewer, self._gui = viewer, viewer.server.gui
        self._holder: Any = None
        self._rows: dict[str, Any] = {}
        self._enabled: Mapping[str, bool] = {}
        self._folder = self._gui.add_folder("obstacles: those that are on are checked")

    def show(self, kinds: Mapping[str, str], enabled: Mapping[str, bool]) -> None:
        """Lists names anew.

        Args:
            kinds: by name, what it is.
            enabled: by name, whether queries check it; read again when a group is filled.
        """
        if self._holder is not None:
            self._holder.remove()
        self._rows.clear()
        self._enabled = enabled
        with self._folder:
            self._holder = self._gui.add_folder(None)
        root = tree_of(kinds)
        self._fill(self._holder, root, is_small=len(kinds) <= MOST_ROWS)

    def enable(self, names: Sequence[str]) -> None:
        """Shows whether obstacles are on."""
        for name in names:
            if name in self._rows:
                self._rows[name].options = self._options(name)

    def _options(self, name: str) -> tuple[str, str]:
        return _ON if self._enabled[name] else _OFF, _REPORT

    def _fill(self, folder: Any, group: Group, *, is_small: bool) -> None:
        with folder:
            for label, inner in [*group.groups.items()][:MOST_ROWS]:
                self._add_group(label, inner, is_small=is_small)
            for label, name in [*group.names.items()][:MOST_ROWS]:
                self._add_row(label, name)
            more = sum(max(0, len(rows) - MOST_ROWS) for rows in (group.groups, group.names))
            if more:
                self._gui.add_html(panel_text.hint(f"{more} more: find them above"))

    def _add_group(self, label: str, group: Group, *, is_small: bool) -> None:
        names = group.everything()
        folder = self._gui.add_folder(f"{escaped(label, 60)} ({len(names)})")
        options = _ALL_ON, _ALL_OFF, _LIST
        with folder:
            row = self._gui.add_button_group("", options[:2] if is_small else options)
        if is_small:
            self._fill(folder, group, is_small=True)

        def fill() -> None:
            if len(row.options) == len(options):
                row.options = options[:2]
                self._fill(folder, group, is_small=len(names) <= MOST_ROWS)

        def click(event: Any) -> None:
            if event.target.value == _LIST:
                self._viewer.put(f"list {id(row)}", fill)
            else:
                on = event.target.value == _ALL_ON
                self._viewer.put(f"enable {id(row)}", lambda: self._viewer.switch(names, on))

        row.on_click(click)

    def _add_row(self, label: str, name: str) -> None:
        row = self._gui.add_button_group(escaped(label, 60), self._options(name))

        def click(event: Any) -> None:
            if event.target.value == _REPORT:
                self._viewer.select(name)
            else:
                self._viewer.enable(name, not self._enabled[name])

        row.on_click(click)
        self._rows[name] = row

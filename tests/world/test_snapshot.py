"""What shows that tables were written, by torch or past it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from warp_collision.world.broad_phase import Snapshot


def tables() -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(0)
    poses = torch.rand((2, 3, 8), generator=random)
    return poses, torch.randint(99, (2, 3), generator=random), torch.full((2,), 3).int()


def write_past_torch(table: torch.Tensor) -> None:
    table.numpy()[1, 2] = float("nan")


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize(
    "write", [torch.Tensor.zero_, write_past_torch, torch.Tensor.share_memory_]
)
def test_writes_and_moves_show(write: Callable[[torch.Tensor], object], is_settled: bool) -> None:
    known = tables()
    snapshot = Snapshot(known)
    if is_settled:
        snapshot.settle()
    assert snapshot.is_of(known)
    write(known[0])
    assert not snapshot.is_of(known)


def test_what_was_written_back_shows_until_it_is_settled() -> None:
    """Boxes that are computed meanwhile may be of other poses."""
    known = tables()
    snapshot = Snapshot(known)
    before = known[0].clone()
    known[0].zero_()
    known[0].copy_(before)
    snapshot.settle()
    assert not snapshot.is_of(known)
    settled = Snapshot(known)
    settled.settle()
    known[0].copy_(before)
    assert settled.is_of(known)

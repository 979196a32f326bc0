"""Meshes that callers made themselves, in the drop-in Functions: `python -m benchmarks.foreign`.

Against what such callers have today: straightforward kernels that search radius + eta around each
sphere with Warp's default sign, and, where spheres move, the sum over samples of the path. Both get
the same `wp.Mesh` without a tree of winding numbers, tables, spheres and buffers, and run in turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import warp as wp
from torch import Tensor

from benchmarks.baseline import pose_of, smooth_hinge
from benchmarks.report import RESULTS
from benchmarks.shapes import clutter, random_poses
from benchmarks.workloads import ACTIVATION_DISTANCE, WORKLOADS, Placed
from warp_collision.launching.launch import quiet_warp
from warp_collision.poses import invert_pose, to_rows
from warp_collision.warp_primitives import SdfMeshWarpPy, SweptSdfMeshWarpPy

COUNTS, BATCHES = (1, 5, 20, 100), (1, 32, 500)
# How many times its time the library may take, by number of meshes.
TARGETS = {1: 2.0, 5: 1.5, 20: 1.0, 100: 1.0}
STEPS = wp.constant(2)  # samples of each half segment, beside the waypoint itself
# Queries of one call of the straightforward kernels: where there are more they run fewer rows.
_MOST_PAIRS = 4_000_000


@wp.func
def short_search(
    mesh_id: wp.uint64, pose: wp.transform, point: wp.vec3, reach: float, eta: float
) -> wp.vec4:
    """Gradient by the center, and cost, of one mesh: 0 where it finds none within reach."""
    local = wp.transform_point(pose, point)
    query = wp.mesh_query_point(mesh_id, local, reach)
    if not query.result:
        return wp.vec4(0.0)
    offset = local - wp.mesh_eval_position(mesh_id, query.face, query.u, query.v)
    term = smooth_hinge(reach - query.sign * wp.length(offset), eta)
    push = wp.transform_vector(
        wp.transform_inverse(pose), -term[1] * query.sign * wp.normalize(offset)
    )
    return wp.vec4(push[0], push[1], push[2], term[0])


@wp.kernel(enable_backward=False)
def resting(
    spheres: wp.array3d[wp.vec4],  # (batch, horizon, n_spheres)
    mesh_ids: wp.array2d[wp.uint64],  # (1, slots)
    mesh_from_world: wp.array3d[wp.float32],  # (1, slots, 8)
    enabled: wp.array2d[wp.uint8],  # (1, slots)
    n_meshes: wp.array[wp.int32],  # (1,)
    eta: wp.array[wp.float32],  # (1,) [m]
    cost: wp.array3d[wp.float32],
    gradient: wp.array3d[wp.vec4],
):
    """One thread per sphere, one query per mesh."""
    b, h, s = wp.tid()
    sphere = spheres[b, h, s]
    center = wp.vec3(sphere[0], sphere[1], sphere[2])
    total = wp.vec4(0.0)
    for slot in range(n_meshes[0]):
        if enabled[0, slot] == wp.uint8(1):
            pose = pose_of(mesh_from_world, 0, slot)
            total += short_search(mesh_ids[0, slot], pose, center, sphere[3] + eta[0], eta[0])
    cost[b, h, s] = total[3]
    gradient[b, h, s] = wp.vec4(total[0], total[1], total[2], 0.0)


@wp.kernel(enable_backward=False)
def sampled(
    spheres: wp.array3d[wp.vec4],
    mesh_ids: wp.array2d[wp.uint64],
    mesh_from_world: wp.array3d[wp.float32],
    enabled: wp.array2d[wp.uint8],
    n_meshes: wp.array[wp.int32],
    eta: wp.array[wp.float32],
    cost: wp.array3d[wp.float32],
    gradient: wp.array3d[wp.vec4],
):
    """The same, and the sum over samples of both half segments."""
    b, h, s = wp.tid()
    sphere = spheres[b, h, s]
    center = wp.vec3(sphere[0], sphere[1], sphere[2])
    before = spheres[b, wp.max(h - 1, 0), s]
    after = spheres[b, wp.min(h + 1, spheres.shape[1] - 1), s]
    back = (wp.vec3(before[0], before[1], before[2]) - center) / (2.0 * float(STEPS))
    ahead = (wp.vec3(after[0], after[1], after[2]) - center) / (2.0 * float(STEPS))
    total = wp.vec4(0.0)
    for slot in range(n_meshes[0]):
        if enabled[0, slot] == wp.uint8(1):
            pose = pose_of(mesh_from_world, 0, slot)
            for step in range(-STEPS, STEPS + 1):
                way = wp.where(step < 0, -float(step) * back, float(step) * ahead)
                total += short_search(
                    mesh_ids[0, slot], pose, center + way, sphere[3] + eta[0], eta[0]
                )
    cost[b, h, s] = total[3]
    gradient[b, h, s] = wp.vec4(total[0], total[1], total[2], 0.0)


class Scene(NamedTuple):
    """A caller's meshes and tables."""

    meshes: list[wp.Mesh]
    ids: Tensor
    rows: Tensor
    enabled: Tensor
    counts: Tensor


class Buffers(NamedTuple):
    """A caller's spheres and buffers."""

    spheres: Tensor
    cost: Tensor
    gradient: Tensor
    active: Tensor


def placed_meshes(count: int) -> list[Placed]:
    """Boxes and cylinders of the Panda's problem, those near its path first; and clutter."""
    rng = np.random.default_rng(17)
    content = WORKLOADS["panda-1"].make(1.0)
    centers = content.spheres[..., :3]
    placed = sorted(
        content.scenes[0],
        key=lambda p: float(np.linalg.norm(centers - np.array(p.pose)[:3], axis=-1).min()),
    )[:count]
    poses = random_poses(rng, count - len(placed), 1.6) - np.array([0.8, 0.8, 0.2, 0, 0, 0, 0])
    kinds = clutter()
    return placed + [Placed(kinds[i % len(kinds)], pose) for i, pose in enumerate(poses)]


def make_scene(placed: Sequence[Placed], device: torch.device) -> Scene:
    """Meshes as a caller makes them, and tables of one env."""
    with quiet_warp():
        meshes = [
            wp.Mesh(
                wp.array(np.array(p.mesh.vertices), dtype=wp.vec3, device=str(device)),
                wp.array(np.array(p.mesh.faces).ravel(), dtype=wp.int32, device=str(device)),
            )
            for p in placed
        ]
    rows = to_rows(invert_pose(torch.tensor(np.array([p.pose for p in placed]))))
    return Scene(
        meshes,
        torch.tensor([[mesh.id for mesh in meshes]], dtype=torch.int64, device=device),
        rows.float()[None].contiguous().to(device),
        torch.ones((1, len(placed)), dtype=torch.uint8, device=device),
        torch.tensor([len(placed)], dtype=torch.int32, device=device),
    )


def panda_spheres(batch: int) -> np.ndarray:
    """Spheres (batch, 32, 59, 4) of the Panda's bent paths."""
    return WORKLOADS["panda-1"].make(float(batch)).spheres


def make_buffers(rows: np.ndarray, device: torch.device) -> Buffers:
    """Spheres, and buffers of zeros for them, as callers make them."""
    spheres = torch.from_numpy(np.asarray(rows, dtype=np.float32)).to(device)
    cost = torch.zeros(spheres.shape[:3], device=device)
    active = torch.zeros(spheres.shape[:3], dtype=torch.uint8, device=device)
    return Buffers(spheres, cost, torch.zeros_like(spheres), active)


def library_call(scene: Scene, buffers: Buffers, swept: bool) -> Callable[[], Tensor]:
    """A forward and backward of the drop-in Function."""
    device = buffers.spheres.device
    one, eta = torch.ones(1, device=device), torch.full((1,), ACTIVATION_DISTANCE, device=device)
    spheres = buffers.spheres.detach().requires_grad_(True)
    # The caller keeps the meshes alive.
    tables = (scene.ids, scene.rows, scene.enabled, scene.counts, one)

    def call() -> Tensor:
        spheres.grad = None
        if swept:
            cost = SweptSdfMeshWarpPy.apply(spheres, *buffers[1:], one, eta, one, *tables)
        else:
            cost = SdfMeshWarpPy.apply(spheres, *buffers[1:], one, eta, *tables)
        cost.sum().backward()
        return buffers.cost

    return call


class _Straightforward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, spheres: Tensor, kernel: Any, scene: Scene, buffers: Buffers, eta: Tensor
    ) -> Tensor:
        cost, gradient = buffers.cost[: len(spheres)], buffers.gradient[: len(spheres)]
        arguments = [
            wp.from_torch(spheres.detach(), dtype=wp.vec4),
            wp.from_torch(scene.ids, dtype=wp.uint64),
            *map(wp.from_torch, (scene.rows, scene.enabled, scene.counts, eta, cost)),
            wp.from_torch(gradient, dtype=wp.vec4),
        ]
        stream = wp.stream_from_torch() if spheres.is_cuda else None
        device = str(spheres.device)
        wp.launch(kernel, spheres.shape[:3], arguments, device=device, stream=stream)
        ctx.save_for_backward(gradient)
        return cost

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0], None, None, None, None


def straightforward_call(
    scene: Scene, buffers: Buffers, swept: bool, rows: int
) -> Callable[[], Tensor]:
    """A forward and backward of what callers have, of the first rows."""
    eta = torch.full((1,), ACTIVATION_DISTANCE, device=buffers.spheres.device)
    spheres = buffers.spheres[:rows].detach().requires_grad_(True)
    kernel = sampled if swept else resting

    def call() -> Tensor:
        spheres.grad = None
        _Straightforward.apply(spheres, kernel, scene, buffers, eta).sum().backward()
        return buffers.cost[:rows]

    return call


class Row(NamedTuple):
    """One line of the table: seconds per call and sphere, medians, and the median of ratios."""

    meshes: int
    batch: int
    swept: bool
    library: float
    straightforward: float
    ratio: float
    first_sight: float  # [s] that the first call took longer than later ones
    wrong: int  # costs of the straightforward kernel that differ by 1e-4 m
    spheres: int  # that were compared


def measure(count: int, batch: int, swept: bool, seconds: float, device: torch.device) -> Row:
    """Runs both in turns."""
    scene = make_scene(placed_meshes(count), device)
    buffers = make_buffers(panda_spheres(batch), device)
    per_row = buffers.cost[0].numel()
    work = count * per_row * (5 if swept else 1)
    rows = max(1, min(batch, _MOST_PAIRS // work))
    library = library_call(scene, buffers, swept)
    theirs = straightforward_call(scene, buffers, swept, rows)
    begin = time.perf_counter()
    right = library()[:rows].clone()
    first_sight = time.perf_counter() - begin
    wrong = 0 if swept else int(((theirs() - right).abs() > 1e-4).sum())
    theirs()
    times: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        times.append((elapsed(library) / batch / per_row, elapsed(theirs) / rows / per_row))
    mine, other = np.median(np.array(times), axis=0)
    ratio = float(np.median([a / b for a, b in times]))
    found = float(mine), float(other), ratio
    first_sight = max(0.0, first_sight - batch * per_row * found[0])
    return Row(count, batch, swept, *found, first_sight, wrong, rows * per_row)


def elapsed(call: Callable[[], Tensor]) -> float:
    """Seconds of a call, repeated to at least 10 ms, by the thread's own time on the CPU."""
    clock = time.perf_counter if torch.cuda.is_available() else time.thread_time
    repeats, begin = 0, clock()
    while clock() - begin < 1e-2:
        call()
        repeats += 1
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (clock() - begin) / repeats


def text(rows: Sequence[Row]) -> str:
    """The table, in Markdown."""
    lines = [
        "| meshes | batch | | library, µs a sphere | short search, µs | ratio | target | first "
        "sight, ms | wrong costs of the short search |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        wrong = "" if r.swept else f"{r.wrong} of {r.spheres}"
        lines.append(
            f"| {r.meshes} | {r.batch} | {'swept' if r.swept else 'resting'} | "
            f"{1e6 * r.library:.3g} | {1e6 * r.straightforward:.3g} | {r.ratio:.2f} | "
            f"{TARGETS[r.meshes]:.1f} | {1e3 * r.first_sight:.0f} | {wrong} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.foreign", description=__doc__)
    parser.add_argument("--meshes", type=int, nargs="+", choices=COUNTS, default=COUNTS)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each line (default 1)")
    parser.add_argument("--write", action="store_true", help="keep the table in results/")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = []
    with quiet_warp():
        for swept in (False, True):
            measure(1, 1, swept, 0.0, device)  # compiles the kernels
            for count in options.meshes:
                for batch in options.batch:
                    rows.append(measure(count, batch, swept, options.seconds, device))
                    print(text(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(text(rows))
    if options.write:
        (RESULTS / f"foreign-{device.type}.md").write_text(text(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

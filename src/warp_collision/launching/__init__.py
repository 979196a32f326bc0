"""Launches of Warp kernels on torch tensors.

- `launch` runs a kernel on torch's current stream or on torch's CPU threads.
- `recorded_launch` keeps a kernel's packed arguments and patches pointers.
- `warp_runtime` starts Warp quietly.
- `deferred_free` keeps what kernels read alive until no launch can read it any more.
- `graph_memory` keeps what captured graphs read until they are gone.

Nothing here checks its arguments: callers validate first.
"""

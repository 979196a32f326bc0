"""A simulated GPU for tests: torch's and Warp's, on machines that have none.

What is simulated: two devices with streams, events and graph captures, whose launches run as late
as CUDA may run them; memory that is NaN when it is fresh and overwritten when it is freed; copies
and waits of the host, which are counted, and refused in captures. Kernels are compiled as for a GPU
as far as they ask `runs_on_cpu`, and run one thread after another. What is not: speed, threads that
run at once, the GPU's own rounding, and Warp's builders of trees on CUDA.

`install` makes the type of device "simulated" known to torch, to Warp and to warp_collision, once
per process and before anything else in it takes a gradient.
"""

from __future__ import annotations

import functools

import torch
import warp as wp

from simulated_cuda import building
from warp_collision import devices

NAME = "simulated"


def reason_against() -> str | None:
    """Why there cannot be one here, if so."""
    if not wp.__version__.startswith("1.19."):
        return f"the simulated GPU is known to work with Warp 1.19 alone, got {wp.__version__}"
    return building.reason_against()


@functools.cache
def install() -> None:
    """Builds the device, or takes it from the cache of the user, and makes it known."""
    building.extension()
    torch.utils.rename_privateuse1_backend(NAME)
    from simulated_cuda import torch_module, warp_device

    torch._register_device_module(NAME, torch_module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=False)
    devices.GPUS[NAME] = torch_module
    devices.DRIVERS[NAME] = str(building.extension().__file__)
    warp_device.install(NAME)

"""Eight configurations at once in the lanes of vector instructions, on CPUs.

Lanes decide only outside of a margin around contact that bounds the rounding of their arithmetic
and of the scalar functions'. What is inside of it the scalar functions decide, lane by lane, so
that all answers are those of the kernels without lanes. Of splines, lanes have the joints.

Nothing here is compiled for GPUs.
"""

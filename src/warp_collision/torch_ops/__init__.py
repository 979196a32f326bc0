"""The kernels as differentiable torch operators.

`operators` and `pose_operators` are custom operators with fake implementations and batching rules;
`autograd` has the Functions around them; `dispatch` chooses between a direct launch in eager code
and the operator that every transform knows; `second_derivatives` makes second derivatives raise.
"""

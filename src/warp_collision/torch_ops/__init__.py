"""The kernels as differentiable torch operators.

The modules `*operators` have custom operators with fake implementations and batching rules;
`autograd` and `linearized` the Functions around them. `dispatch` chooses between a direct launch in
eager code and an operator, which supports all transforms; `second_derivatives` makes second
derivatives raise.
"""

"""Trees of parts: sorted by place, and split where the numbers of their places part.

A part has a code, the number of its cell on a curve through all cells of a cube. Codes of a node
begin with the same bits, and its children differ in the next one. Equal codes are told apart by
their places in the order: any number of parts at one point makes a tree without a chain. A part
without a place is in no box, and is never found. Nodes have the layout of Warp's own trees, so that
the same walk is for both.
"""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS

wp.set_module_options(OPTIONS)

# Of the cells of a code along each axis.
BITS = wp.constant(21)
# Parts of a leaf, and of a block, at most.
LEAF = wp.constant(8)


@wp.struct
class Box:
    """A box, empty if its lower corner is beyond its upper one."""

    lower: wp.vec3
    upper: wp.vec3


@wp.func
def empty_box() -> Box:
    """The box of nothing, which no query reaches."""
    return Box(wp.vec3(wp.inf), wp.vec3(-wp.inf))


@wp.func
def corner_of(vector: wp.vec4) -> wp.vec3:
    """Without what stands beside it."""
    return wp.vec3(vector[0], vector[1], vector[2])


@wp.func
def is_part(vector: wp.vec4) -> bool:
    """Whether the first vector of a part has a place: its radius is not negative."""
    return vector[3] >= 0.0


@wp.func
def with_parts(box: Box, parts: wp.array2d[wp.vec4], begin: int, end: int) -> Box:
    """The box around a box and some parts."""
    lower = box.lower
    upper = box.upper
    for place in range(begin, end):
        if is_part(parts[place, 0]):
            lower = wp.min(lower, corner_of(parts[place, 0]))
            upper = wp.max(upper, corner_of(parts[place, parts.shape[1] - 1]))
    return Box(lower, upper)


# -- order ----------------------------------------------------------------------------------------


@wp.func
def spread_bits(cell: int) -> wp.int64:
    """The bits of a number, each followed by two zeros."""
    spread = wp.int64(0)
    for bit in range(BITS):
        spread += wp.int64((cell >> bit) & 1) << wp.int64(3 * bit)
    return spread


@wp.func
def code_of(point: wp.vec3, lower: wp.vec3, upper: wp.vec3) -> wp.int64:
    """The number of a point's cell in a cube, in Morton's order."""
    cells = float(1 << BITS)
    scale = cells / wp.max(wp.max(upper - lower), 1.0e-30)
    code = wp.int64(0)
    for axis in range(3):
        cell = int(wp.clamp((point[axis] - lower[axis]) * scale, 0.0, cells - 1.0))
        code += spread_bits(cell) << wp.int64(axis)
    return code


@wp.kernel
def code_parts(
    # operands
    given: wp.array2d[wp.vec4],  # (n, stride) see `PartTree`
    middles: wp.array[wp.vec3],  # (n,) [m]
    corners: wp.array[wp.vec3],  # (2,) of the box around those that have a place [m]
    # outputs
    codes: wp.array[wp.int64],  # (capacity,) the largest number for what has no place
):
    """One thread per place in the tree."""
    index = wp.tid()
    codes[index] = wp.int64(0x7FFFFFFFFFFFFFFF)
    if index < given.shape[0] and is_part(given[index, 0]):
        codes[index] = code_of(middles[index], corners[0], corners[1])


@wp.kernel
def take_parts(
    # operands
    given: wp.array2d[wp.vec4],  # (n, stride) see `PartTree`
    order: wp.array[wp.int64],  # (capacity,) by code
    # outputs
    parts: wp.array2d[wp.vec4],  # (capacity, stride)
):
    """One thread per vector of a part."""
    place, row = wp.tid()
    index = int(order[place])
    parts[place, row] = wp.vec4(wp.inf, wp.inf, wp.inf, -1.0)
    if index < given.shape[0] and is_part(given[index, 0]):
        parts[place, row] = given[index, row]


# -- boxes of ranges ------------------------------------------------------------------------------


@wp.kernel
def box_blocks(
    # operands
    parts: wp.array2d[wp.vec4],  # (capacity, stride) in their order
    # outputs
    boxes: wp.array[Box],  # (2^k,) of blocks of parts
):
    """One thread per block."""
    block = wp.tid()
    begin = wp.min(LEAF * block, parts.shape[0])
    boxes[block] = with_parts(empty_box(), parts, begin, wp.min(begin + LEAF, parts.shape[0]))


@wp.kernel
def box_levels(
    # operands
    below: wp.array[Box],  # (2^k,) a level of a heap
    # outputs
    boxes: wp.array[Box],  # (m,) the levels next above it, in their order
):
    """One thread per box: around its descendants in the level that is known."""
    own = wp.tid()
    number = below.shape[0] - boxes.shape[0] + own  # in the heap, from 1
    level = int(1)
    while 2 * level <= number:
        level *= 2
    count = below.shape[0] / level
    begin = (number - level) * count
    box = empty_box()
    for index in range(begin, begin + count):
        box = Box(wp.min(box.lower, below[index].lower), wp.max(box.upper, below[index].upper))
    boxes[own] = box


@wp.func
def box_of(parts: wp.array2d[wp.vec4], heap: wp.array[Box], begin: int, end: int) -> Box:
    """The box of consecutive parts: of blocks that lie between, and of those beside them."""
    first = (begin + LEAF - 1) / LEAF
    last = end / LEAF
    if first >= last:
        return with_parts(empty_box(), parts, begin, end)
    box = with_parts(empty_box(), parts, begin, first * LEAF)
    box = with_parts(box, parts, last * LEAF, end)
    n_blocks = (heap.shape[0] + 1) / 2
    left = first + n_blocks
    right = last + n_blocks
    while left < right:
        if left % 2 == 1:
            side = heap[left - 1]
            box = Box(wp.min(box.lower, side.lower), wp.max(box.upper, side.upper))
            left += 1
        if right % 2 == 1:
            right -= 1
            side = heap[right - 1]
            box = Box(wp.min(box.lower, side.lower), wp.max(box.upper, side.upper))
        left = left / 2
        right = right / 2
    return box


# -- nodes ----------------------------------------------------------------------------------------


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    return 63 - __clzll(number);
#else
    return 63 - __builtin_clzll(number);
#endif
""")
def highest_bit(number: wp.int64) -> int:
    """The place of the highest bit of a number that is not 0."""
    ...


@wp.func
def level_of(codes: wp.array[wp.int64], first: int, second: int) -> int:
    """How high up the node is that holds both; above all others if one is out of range."""
    if second < 0 or second >= codes.shape[0]:
        return 128
    unequal = codes[first] ^ codes[second]
    if unequal == wp.int64(0):
        return highest_bit(wp.int64(first ^ second))
    return 32 + highest_bit(unequal)


@wp.func
def reach_of(codes: wp.array[wp.int64], begin: int, way: int, level: int) -> int:
    """How many parts beyond the first one, in a direction, are in nodes below a level with it."""
    step = int(1)
    while level_of(codes, begin, begin + way * step) < level:
        step *= 2
    reach = int(0)
    while step > 1:
        step = step / 2
        if level_of(codes, begin, begin + way * (reach + step)) < level:
            reach += step
    return reach


@wp.func_native("""
    ((wp::BVHPackedNodeHalf*)nodes.data)[index] = wp::make_node(corner, link, is_leaf);
""")
def put_node(nodes: wp.array[wp.vec4], index: int, corner: wp.vec3, link: int, is_leaf: bool):
    """Writes one corner of a node, and where a child is, or its parts begin or end."""
    ...


@wp.kernel
def link_nodes(
    # operands
    codes: wp.array[wp.int64],  # (n,) sorted
    parts: wp.array2d[wp.vec4],  # (n, stride) in their order
    heap: wp.array[Box],  # of blocks, see `box_levels`
    # outputs
    lowers: wp.array[wp.vec4],  # (2 n - 1,) nodes: inner ones, then single parts
    uppers: wp.array[wp.vec4],
):
    """One thread per node (Karras 2012): an inner one begins or ends at the part of its number."""
    node = wp.tid()
    n_inner = codes.shape[0] - 1
    begin = node - n_inner
    end = begin + 1
    left = begin
    right = end
    if node < n_inner:
        # It grows to the side of the nearer neighbour, up to where that of the other side is.
        outer = level_of(codes, node, node - 1)
        way = int(1)
        if level_of(codes, node, node + 1) > outer:
            way = -1
            outer = level_of(codes, node, node + 1)
        reach = reach_of(codes, node, way, outer)
        begin = wp.min(node, node + way * reach)
        end = wp.max(node, node + way * reach) + 1
        # All parts of the first child are below the level at which the children part.
        split = begin + reach_of(codes, begin, 1, level_of(codes, begin, end - 1))
        left = wp.where(split == begin, n_inner + split, split)
        right = wp.where(split + 2 == end, n_inner + split + 1, split + 1)
    is_leaf = end - begin <= LEAF
    box = box_of(parts, heap, begin, end)
    put_node(lowers, node, box.lower, wp.where(is_leaf, begin, left), is_leaf)
    put_node(uppers, node, box.upper, wp.where(is_leaf, end, right), False)


@wp.func_native("""
    static_assert(sizeof(wp::BVH) + sizeof(int) <= 256, "a header has no room for Warp's");
    wp::BVH* bvh = (wp::BVH*)header.data;
    bvh->node_lowers = (wp::BVHPackedNodeHalf*)lowers.data;
    bvh->node_uppers = (wp::BVHPackedNodeHalf*)uppers.data;
    bvh->num_items = count;
    bvh->root = (int*)(header.data + 256 - sizeof(int));
""")
def write_header(
    header: wp.array[wp.uint8], lowers: wp.array[wp.vec4], uppers: wp.array[wp.vec4], count: int
):
    """Writes what Warp keeps of a tree; the root is node 0."""
    ...


@wp.kernel
def describe_tree(
    # operands
    lowers: wp.array[wp.vec4],  # nodes
    uppers: wp.array[wp.vec4],
    parts: wp.array2d[wp.vec4],  # (capacity, stride)
    # outputs
    header: wp.array[wp.uint8],  # (256,) zeros
):
    """One thread for all."""
    write_header(header, lowers, uppers, parts.shape[0])

"""Images by ray casting: translucent surfaces from front to back, their outlines, and shadows."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS

wp.set_module_options(OPTIONS)

# Layers of a pixel: the first body that is not glass, the nearest and the farthest wall of glass
# before it.
SOLID, NEAR_WALL, FAR_WALL = wp.constant(0), wp.constant(1), wp.constant(2)
N_LAYERS = 3
MOST_SOLIDS = wp.constant(16)  # bodies that are not glass

_MOST_WALLS = wp.constant(32)  # on one ray
_OPAQUE = wp.constant(0.97)
_FAR = wp.constant(1.0e6)  # m
_GLOSS = wp.constant(0.22)
_CREASE = wp.constant(0.5)  # of normals, as the sum of the differences of their coordinates

floats = wp.types.vector(length=MOST_SOLIDS, dtype=wp.float32)
ints = wp.types.vector(length=MOST_SOLIDS, dtype=wp.int32)


@wp.struct
class Hits:
    """Where a ray meets solid bodies first, by body; infinitely far where it does not."""

    distance: floats
    face: ints
    u: floats
    v: floats


@wp.func
def shade(color: wp.vec3, normal: wp.vec3, toward_eye: wp.vec3, toward_light: wp.vec3) -> wp.vec3:
    """The colour of a surface under a key light, a fill light at the eye and a highlight."""
    facing = wp.dot(normal, toward_eye)
    # Open meshes and far walls are seen from behind: light the side that is seen.
    seen = wp.where(facing < 0.0, -normal, normal)
    light = 0.42 + 0.46 * wp.max(wp.dot(seen, toward_light), 0.0) + 0.2 * wp.abs(facing)
    middle = wp.normalize(toward_eye + toward_light)
    shine = _GLOSS * wp.pow(wp.max(wp.dot(seen, middle), 0.0), 32.0)
    return wp.min(light * color + wp.vec3(shine, shine, shine), wp.vec3(1.0, 1.0, 1.0))


@wp.func
def normal_at(normals: wp.array2d[wp.vec3], face: int, u: float, v: float) -> wp.vec3:
    """The normal at barycentric coordinates of a face."""
    blend = u * normals[face, 0] + v * normals[face, 1] + (1.0 - u - v) * normals[face, 2]
    return wp.normalize(blend)


@wp.func
def meet_solids(
    mesh_ids: wp.array[wp.int64], opacities: wp.array[wp.float32], eye: wp.vec3, ray: wp.vec3
) -> Hits:
    """Where a ray meets each solid body first; what is behind an opaque one is left out."""
    hits = Hits()
    limit = float(_FAR)
    for body in range(mesh_ids.shape[0] - 1):
        hit = wp.mesh_query_ray(wp.uint64(mesh_ids[body + 1]), eye, ray, limit)
        hits.distance[body] = wp.where(hit.result, hit.t, wp.inf)
        if hit.result:
            hits.face[body] = hit.face
            hits.u[body] = hit.u
            hits.v[body] = hit.v
            if opacities[body + 1] > _OPAQUE:
                limit = hit.t
    return hits


@wp.func
def nearest_of(hits: Hits, count: int) -> int:
    """The body that a ray meets first, -1 for none."""
    nearest = int(-1)
    distance = float(wp.inf)
    for body in range(count):
        if hits.distance[body] < distance:
            distance = hits.distance[body]
            nearest = body
    return nearest


@wp.struct
class Surface:
    """The next surface on a ray; `face` -1 where there is none."""

    face: int
    distance: float
    normal: wp.vec3
    is_glass: bool
    is_behind: bool  # of glass: the ray leaves the body


@wp.func
def next_surface(
    glass: wp.int64,
    first_faces: wp.array[wp.int32],
    normals: wp.array2d[wp.vec3],
    hits: Hits,
    solid: int,
    eye: wp.vec3,
    ray: wp.vec3,
    start: float,
) -> Surface:
    """The nearer one of the next wall of glass behind `start`, and of a solid body."""
    found = Surface()
    found.face = -1
    limit = float(_FAR)
    if solid >= 0:
        limit = hits.distance[solid]
        found.face = first_faces[solid + 1] + hits.face[solid]
        found.distance = limit
        found.normal = normal_at(normals, found.face, hits.u[solid], hits.v[solid])
    if glass != wp.int64(0) and limit > start:
        wall = wp.mesh_query_ray(wp.uint64(glass), eye + start * ray, ray, limit - start)
        if wall.result:
            found.face = first_faces[0] + wall.face
            found.distance = start + wall.t
            found.normal = normal_at(normals, found.face, wall.u, wall.v)
            found.is_glass = True
            found.is_behind = wp.dot(wall.normal, ray) > 0.0
    return found


@wp.kernel
def cast_rays(
    offset: wp.vec2i,  # of this launch in the image
    mesh_ids: wp.array[wp.int64],  # (1 + n_solids,) all glass, and each solid body
    first_faces: wp.array[wp.int32],  # (1 + n_solids,) where the faces of each begin in the tables
    opacities: wp.array[wp.float32],  # (1 + n_solids,) of solid bodies
    normals: wp.array2d[wp.vec3],  # (n_faces, 3) of the corners
    colors: wp.array[wp.vec4],  # (n_faces,) r, g, b, opacity
    view: wp.array[wp.vec3],  # (5,) eye, ray of the corner, steps right and down, toward the light
    image: wp.array2d[wp.vec4],  # (height, width) r, g, b times opacity, and opacity
    layers: wp.array3d[wp.vec4],  # (height, width, N_LAYERS) normal, depth [m], inf for none
    first: wp.array2d[wp.int32],  # (height, width) the first body that is not glass, -1 for none
):
    """The surfaces that each pixel shows, from front to back.

    A solid body is seen as one surface, its first one on the ray; of glass every wall is seen.
    """
    row, column = wp.tid()
    row += offset[0]
    column += offset[1]
    ray = view[1] + (float(column) + 0.5) * view[2] + (float(row) + 0.5) * view[3]
    per_depth = wp.length(ray)
    ray = ray / per_depth
    for layer in range(3):
        layers[row, column, layer] = wp.vec4(0.0, 0.0, 0.0, wp.inf)
    hits = meet_solids(mesh_ids, opacities, view[0], ray)
    solid = nearest_of(hits, mesh_ids.shape[0] - 1)
    first[row, column] = solid
    start = float(0.0)
    result = wp.vec4(0.0, 0.0, 0.0, 0.0)
    for _ in range(_MOST_WALLS):
        found = next_surface(mesh_ids[0], first_faces, normals, hits, solid, view[0], ray, start)
        if found.face < 0 or result[3] > _OPAQUE:
            break
        color = colors[found.face]
        opacity = color[3] * wp.where(found.is_behind, 0.5, 1.0)  # far walls are fainter
        lit = shade(wp.vec3(color[0], color[1], color[2]), found.normal, -ray, view[4])
        result += (1.0 - result[3]) * opacity * wp.vec4(lit[0], lit[1], lit[2], 1.0)
        normal = found.normal
        mark = wp.vec4(normal[0], normal[1], normal[2], found.distance / per_depth)
        if layers[row, column, SOLID][3] == wp.inf:
            if not found.is_glass:
                layers[row, column, SOLID] = mark
            else:
                layers[row, column, FAR_WALL] = mark
                if layers[row, column, NEAR_WALL][3] == wp.inf:
                    layers[row, column, NEAR_WALL] = mark
        start = found.distance
        if found.is_glass:
            start += 1.0e-5 + 2.0e-6 * start  # behind the wall, despite rounding
        else:
            hits.distance[solid] = wp.inf
            solid = nearest_of(hits, mesh_ids.shape[0] - 1)
    image[row, column] = result


@wp.func
def differs(a: wp.vec4, b: wp.vec4) -> bool:
    """Whether there is an outline between two pixels of a layer."""
    step = wp.abs(a[0] - b[0]) + wp.abs(a[1] - b[1]) + wp.abs(a[2] - b[2])
    return step > _CREASE


@wp.kernel
def draw_outlines(
    offset: wp.vec2i,  # of this launch in the image
    layers: wp.array3d[wp.vec4],  # (height, width, N_LAYERS) of `cast_rays`
    strengths: wp.array[wp.float32],  # (N_LAYERS,) opacity of their outlines
    ink: wp.array[wp.vec3],  # (1,) r, g, b
    color: wp.array2d[wp.vec4],  # (height, width) changed in place
):
    """Draws silhouettes and creases, two pixels wide."""
    row, column = wp.tid()
    row += offset[0]
    column += offset[1]
    right = wp.min(column + 1, layers.shape[1] - 1)
    below = wp.min(row + 1, layers.shape[0] - 1)
    left = wp.max(column - 1, 0)
    above = wp.max(row - 1, 0)
    strength = float(0.0)
    for layer in range(3):
        own = layers[row, column, layer]
        if (
            differs(own, layers[row, right, layer])
            or differs(own, layers[below, column, layer])
            or differs(own, layers[row, left, layer])
            or differs(own, layers[above, column, layer])
        ):
            strength = wp.max(strength, strengths[layer])
    drawn = color[row, column]
    line = wp.vec4(ink[0][0], ink[0][1], ink[0][2], 1.0)
    color[row, column] = drawn + strength * (line - drawn)


@wp.kernel
def cast_shadows(
    offset: wp.vec2i,  # of this launch in the points
    mesh_ids: wp.array[wp.int64],  # as in `cast_rays`
    points: wp.array2d[wp.vec3],  # (rows, columns) [m]
    direction: wp.array[wp.vec3],  # (1,) toward the light, unit
    shadow: wp.array2d[wp.float32],  # (rows, columns) 1 where a body is in the way, else 0
):
    """Which points a light does not reach."""
    row, column = wp.tid()
    row += offset[0]
    column += offset[1]
    is_dark = bool(False)
    for body in range(mesh_ids.shape[0]):
        if mesh_ids[body] != wp.int64(0) and not is_dark:
            hit = wp.mesh_query_ray(
                wp.uint64(mesh_ids[body]), points[row, column], direction[0], _FAR
            )
            is_dark = hit.result
    shadow[row, column] = wp.where(is_dark, 1.0, 0.0)

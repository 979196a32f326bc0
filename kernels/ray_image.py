"""Images by ray casting: translucent surfaces from front to back, their outlines, and shadows."""

import warp as wp

from warp_collision.kernels.compiling import OPTIONS

# Warp's own flags for the CPU: with its thresholds of inlining rays take a sixth less time.
wp.set_module_options({**OPTIONS, "cpu_compiler_flags": None})

# Layers of a pixel: the first body that is not glass, the nearest and the farthest wall of glass
# before it.
SOLID, NEAR_WALL, FAR_WALL = wp.constant(0), wp.constant(1), wp.constant(2)
N_LAYERS = 3
SAMPLES = wp.constant(2)  # of a pixel with edges, in each direction
MOST_SOLIDS = wp.constant(16)  # bodies that are not glass

_MOST_WALLS = wp.constant(32)  # on one ray
_OPAQUE = wp.constant(0.97)
_FAR = wp.constant(1.0e6)  # m
_GLOSS = wp.constant(0.22)
_STEP = wp.constant(0.05)  # of a color between two pixels, from which on there is an edge
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
    mesh_ids: wp.array[wp.int64],
    opacities: wp.array[wp.float32],
    near: int,
    eye: wp.vec3,
    ray: wp.vec3,
) -> Hits:
    """Where a ray meets first each solid body that it comes near to.

    What is behind an opaque one is left out.
    """
    hits = Hits()
    limit = float(_FAR)
    for body in range(mesh_ids.shape[0] - 1):
        hits.distance[body] = wp.inf
        if near >> body & 1 == 0:
            continue
        hit = wp.mesh_query_ray(wp.uint64(mesh_ids[body + 1]), eye, ray, limit)
        if hit.result:
            hits.distance[body] = hit.t
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
    offset: wp.vec2i,  # of this launch in the rays
    pixels: wp.array2d[wp.vec2i],  # (n, k) row and column in the image of the camera, of each ray
    mesh_ids: wp.array[wp.int64],  # (1 + n_solids,) all glass, and each solid body
    first_faces: wp.array[wp.int32],  # (1 + n_solids,) where the faces of each begin in the tables
    opacities: wp.array[wp.float32],  # (1 + n_solids,) of solid bodies
    near: wp.array2d[wp.int32],  # (height, width) bits of the solid bodies that a ray comes near to
    normals: wp.array2d[wp.vec3],  # (n_faces, 3) of the corners
    colors: wp.array[wp.vec4],  # (n_faces,) r, g, b, opacity
    view: wp.array[wp.vec3],  # (5,) eye, ray of the corner, steps right and down, toward the light
    image: wp.array2d[wp.vec4],  # (n, k) r, g, b times opacity, and opacity
    layers: wp.array3d[wp.vec4],  # (n, k, N_LAYERS) normal, depth [m], inf for none
    first: wp.array2d[wp.int32],  # (n, k) the first body that is not glass, -1 for none
):
    """The surfaces that each ray meets, from front to back.

    A solid body is seen as one surface, its first one on the ray; of glass every wall is seen.
    """
    i, j = wp.tid()
    i += offset[0]
    j += offset[1]
    place = pixels[i, j]
    ray = view[1] + (float(place[1]) + 0.5) * view[2] + (float(place[0]) + 0.5) * view[3]
    per_depth = wp.length(ray)
    ray = ray / per_depth
    for layer in range(3):
        layers[i, j, layer] = wp.vec4(0.0, 0.0, 0.0, wp.inf)
    hits = meet_solids(mesh_ids, opacities, near[place[0], place[1]], view[0], ray)
    solid = nearest_of(hits, mesh_ids.shape[0] - 1)
    first[i, j] = solid
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
        if layers[i, j, SOLID][3] == wp.inf:
            if not found.is_glass:
                layers[i, j, SOLID] = mark
            else:
                layers[i, j, FAR_WALL] = mark
                if layers[i, j, NEAR_WALL][3] == wp.inf:
                    layers[i, j, NEAR_WALL] = mark
        start = found.distance
        if found.is_glass:
            start += 1.0e-5 + 2.0e-6 * start  # behind the wall, despite rounding
        else:
            hits.distance[solid] = wp.inf
            solid = nearest_of(hits, mesh_ids.shape[0] - 1)
    image[i, j] = result


@wp.func
def bend(a: wp.vec4, b: wp.vec4) -> float:
    """How much the normals of a layer differ between two pixels."""
    return wp.abs(a[0] - b[0]) + wp.abs(a[1] - b[1]) + wp.abs(a[2] - b[2])


@wp.func
def differs(a: wp.vec4, b: wp.vec4) -> bool:
    """Whether there is an outline between two pixels of a layer."""
    return bend(a, b) > _CREASE


@wp.kernel
def find_edges(
    offset: wp.vec2i,  # of this launch in the image
    color: wp.array2d[wp.vec4],  # (height, width) of `cast_rays`
    layers: wp.array3d[wp.vec4],  # (height, width, N_LAYERS) of `cast_rays`
    is_edge: wp.array2d[wp.int32],  # (height, width)
):
    """Which pixels differ from one of the four beside them, in color or in a normal."""
    row, column = wp.tid()
    row += offset[0]
    column += offset[1]
    found = int(0)
    for k in range(4):
        step = 1 - k // 2 * 2
        other_row = wp.clamp(row + k % 2 * step, 0, color.shape[0] - 1)
        other_column = wp.clamp(column + (1 - k % 2) * step, 0, color.shape[1] - 1)
        change = wp.abs(color[row, column] - color[other_row, other_column])
        if wp.max(change) > _STEP:
            found = 1
        for layer in range(3):
            if (
                found == 0
                and bend(layers[row, column, layer], layers[other_row, other_column, layer])
                > 0.5 * _CREASE
            ):
                found = 1
    is_edge[row, column] = found


@wp.func
def layer_at(
    index: wp.array2d[wp.int32],
    coarse: wp.array3d[wp.vec4],
    fine: wp.array3d[wp.vec4],
    row: int,
    column: int,
    layer: int,
) -> wp.vec4:
    """A layer at a sample: its own where its pixel has several, else that of the pixel."""
    top = wp.clamp(row, 0, SAMPLES * index.shape[0] - 1)
    left = wp.clamp(column, 0, SAMPLES * index.shape[1] - 1)
    refined = index[top // SAMPLES, left // SAMPLES]
    if refined >= 0:
        return fine[refined, top % SAMPLES * SAMPLES + left % SAMPLES, layer]
    return coarse[top // SAMPLES, left // SAMPLES, layer]


@wp.kernel
def draw_outlines(
    offset: wp.vec2i,  # of this launch in the samples
    samples: wp.array2d[wp.vec2i],  # (n, SAMPLES**2) row and column of each, by refined pixels
    index: wp.array2d[wp.int32],  # (height, width) number of each refined pixel, -1 for others
    coarse: wp.array3d[wp.vec4],  # (height, width, N_LAYERS) of `cast_rays`, a ray for each pixel
    fine: wp.array3d[wp.vec4],  # (n, SAMPLES**2, N_LAYERS) of `cast_rays`, of the samples
    strengths: wp.array[wp.float32],  # (N_LAYERS,) opacity of their outlines
    ink: wp.array[wp.vec3],  # (1,) r, g, b
    color: wp.array2d[wp.vec4],  # (n, SAMPLES**2) changed in place
):
    """Draws silhouettes and creases, two samples wide."""
    i, j = wp.tid()
    i += offset[0]
    j += offset[1]
    row, column = samples[i, j][0], samples[i, j][1]
    strength = float(0.0)
    for layer in range(3):
        own = fine[i, j, layer]
        if (
            differs(own, layer_at(index, coarse, fine, row, column + 1, layer))
            or differs(own, layer_at(index, coarse, fine, row + 1, column, layer))
            or differs(own, layer_at(index, coarse, fine, row, column - 1, layer))
            or differs(own, layer_at(index, coarse, fine, row - 1, column, layer))
        ):
            strength = wp.max(strength, strengths[layer])
    drawn = color[i, j]
    line = wp.vec4(ink[0][0], ink[0][1], ink[0][2], 1.0)
    color[i, j] = drawn + strength * (line - drawn)


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

"""What files may hold at most."""

MAX_FACES = 50_000_000  # of a file, those of every instance counted
MAX_COORDINATE = 1e9  # as in a world; trimesh merges vertices far beyond it, all into one
MAX_PARTS = 4_000  # of a text file: trimesh takes quadratic time to name them

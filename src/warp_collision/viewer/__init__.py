"""Pictures of paths, drawn by a software renderer that needs no OpenGL."""

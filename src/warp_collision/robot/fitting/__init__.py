"""Spheres that cover meshes and shapes: fits, and certified bounds of their coverage."""

"""File formats to plain values: what a file claims is believed as far as its data bears it out.

Every reader takes bounded time and memory, and raises a ValueError that names the file, the place
in it, the rule and the value. Nothing that a file holds is left out in silence.
"""

"""Readers of file formats: sizes and counts in a file are checked against its data before use.

Every reader takes bounded time and memory, and raises a ValueError that names the file, the entry
in it, the rule and the value. Nothing that a file holds is left out in silence.
"""

"""Data that the demo and the tests use; see README.md in this folder for sources and licences."""

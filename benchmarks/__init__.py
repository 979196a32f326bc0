"""Speed of the library against a straightforward baseline: `python -m benchmarks --help`."""

"""The census: every file of Python's own standard library, measured by jobs. `make demo` runs it.

Read `jobs` first (the job), then `worker` (what runs it), then `run` (what pushes it and watches).
"""

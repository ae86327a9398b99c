"""What a directory's place and options mean for jobs (DOCTOR-1)."""

from aqueue.backends._filesystem import PlaceFacts, facts_of
from aqueue.backends._filesystem import judged as place_judged
from aqueue.backends.file.directory import Directory
from aqueue.port import Examination, Finding
from aqueue.port.examining import ok, warning


def examine(directory: Directory) -> Examination:
    """Look at the directory and where it is."""
    return Examination(judged(facts_of(directory.layout.root), syncs=directory.disk.syncs))


def judged(place: PlaceFacts, *, syncs: bool) -> list[Finding]:
    """Return what the facts mean; `syncs` is whether files are on disk before a push returns."""
    return [_fsync(syncs), *place_judged(place)]


def _fsync(syncs: bool) -> Finding:
    if syncs:
        return ok("fsync", "full")
    meaning = "a power failure may lose what was pushed, acked and failed last, some 30 s of it"
    return warning("fsync", "none", meaning, "leave fsync=none out of the URL")

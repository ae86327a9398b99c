"""What a place in the file system means for jobs that are kept there; for all stores that keep files."""

import os
from pathlib import Path
from typing import NamedTuple

from aqueue.port import Finding
from aqueue.port.examining import ok, problem, warning

_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs"),
        *("gpfs", "ocfs2", "gfs2", "davfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse"),
    }
)
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_OF_A_CONTAINER = frozenset({"overlay", "overlayfs", "aufs"})

_MOUNTS = Path("/proc/self/mountinfo")
_SCARCE, _SHORT = 1 << 30, 100 << 20
_FEW_FILES = 10_000


class PlaceFacts(NamedTuple):
    """A place's kind of file system, "" if unknown, and how much is free; `files` None is no limit."""

    kind: str
    free: int
    files: int | None


def facts_of(path: str) -> PlaceFacts:
    """Look at where a path is; raises `OSError` where that can't be done."""
    space = os.statvfs(path)
    files = space.f_favail if space.f_files else None
    return PlaceFacts(kind_of(os.path.realpath(path)), space.f_bavail * space.f_frsize, files)


def kind_of(path: str, mounts: Path = _MOUNTS) -> str:
    """Return the kind of file system a path is on, as Linux calls it; "" where nobody says."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        place = before.split(" ")[4].encode().decode("unicode_escape") if before.count(" ") > 4 else ""
        is_above = place in {"/", path} or path.startswith(f"{place}/")
        if place and is_above and len(place) >= len(best):  # a later mount hides an earlier one
            best, kind = place, after.partition(" ")[0]
    return kind


def judged(place: PlaceFacts) -> list[Finding]:
    """Return what the facts mean for jobs."""
    return [_kind(place.kind), _space(place)]


def _kind(kind: str) -> Finding:
    if kind in _NETWORK:
        meaning = "locks and renames over a network are not what they are on a disk: jobs are lost or damaged"
        advice = "use a local disk, or a server such as PostgreSQL or Redis for several machines"
        return problem("file system", kind, meaning, advice)
    if kind in _IN_MEMORY:
        return problem("file system", kind, "every job is gone when the machine restarts", "use a disk")
    if kind in _OF_A_CONTAINER:
        meaning = "this looks like a container's own layer, which goes when the container goes"
        return warning("file system", kind, meaning, "use a volume")
    return ok("file system", kind or "unknown")


def _space(place: PlaceFacts) -> Finding:
    found = f"{place.free / (1 << 30):.1f} GiB free"
    advice = "make room; purge failed jobs with `aqueue failed purge`"
    if place.files is not None and place.files < _FEW_FILES:
        return problem("disk", f"room for {place.files} more files", "a full disk refuses pushes", advice)
    if place.free < _SHORT:
        return problem("disk", found, "a full disk refuses pushes", advice)
    if place.free < _SCARCE:
        return warning("disk", found, "a full disk refuses pushes", advice)
    return ok("disk", found)

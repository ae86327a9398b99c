"""Jobs as files in a directory: durable, shared by one machine's processes, nothing to install or operate.

`file:///var/lib/app/jobs` is the directory, made if it is missing; `file://./jobs` is relative to the working
directory. Each job is a file of its own, and what changes of a job is its file's name. Options:

* `fsync=full` (the default) has files and their names on disk before `push` or a settlement returns;
  `fsync=none` leaves that to the system, and a power failure may lose what was written last.

It needs a local POSIX file system: atomic renames, second names (hard links) and `flock`. All times are the
machine's.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from aqueue.errors import InvalidQueueArgument, Unsupported
from aqueue.port import StoreOptions
from aqueue.urls import StoreURL, choice

if TYPE_CHECKING:
    from aqueue.backends.file.backend import FileBackend


def from_url(url: StoreURL, options: StoreOptions) -> "FileBackend":
    """Return the store in the URL's directory; nothing is opened. Raises `Unsupported` outside POSIX."""
    if os.name != "posix":
        raise Unsupported("file:// needs a POSIX system; sqlite:// keeps jobs in a file on any")
    from aqueue.backends.file.backend import FileBackend
    from aqueue.backends.file.disk import Disk

    given = url.read_options({"fsync": choice("full", "none")})
    disk = Disk(syncs=given.get("fsync", "full") == "full")
    return FileBackend(_root_of(url), disk, lease=options.lease, clock=options.clock)


def _root_of(url: StoreURL) -> str:
    where = [host for host, _ in url.hosts]
    if where not in ([], ["."], ["localhost"]) or url.username is not None or not url.path.strip("/"):
        raise InvalidQueueArgument("write file:///absolute/directory, or file://./relative/directory")
    path = url.path.lstrip("/")
    return str(Path(path if where == ["."] else f"/{path}").resolve())

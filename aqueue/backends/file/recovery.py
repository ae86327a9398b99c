"""What the dead left: a draft on its way, an intent half done, a queue half cleared, a counter too low.

Every queue is looked after by the first to lock it after somebody died in it, and by every process when it
first meets it, since after a power failure nothing tells that anybody was there.
"""

import re
from typing import TYPE_CHECKING

from aqueue.backends.file.clearing import remove_cleared
from aqueue.backends.file.content import read_file
from aqueue.backends.file.disk import links_of, names_in
from aqueue.backends.file.names import entry_of, unfolded
from aqueue.backends.file.steps import decoded

if TYPE_CHECKING:
    from aqueue.backends.file.commit import Commit
    from aqueue.backends.file.session import Session

_DRAFT = re.compile(r"[0-9a-f]+\.(job|record|note|intent)\.([^./]*)\.([0-9a-f]{32})")
_SECOND = re.compile(r"queues/[^./]+/(?:ids|failed-ids)/[0-9a-f]{32}")
_WRITER = re.compile(r"[0-9a-f]{16}")


def recover(session: "Session") -> None:
    """Finish what was begun in this queue, so that nobody sees a half of it."""
    session.mark()
    _finish_doing(session)
    _take_steps(session)
    for name in names_in(session.place.cleared):
        remove_cleared(session, f"{session.place.cleared}/{name}")
    session.raise_seq(_last_seq(session))


def finish_draft(commit: "Commit", path: str) -> None:
    """Give a draft that is in its place already its second name, too."""
    name = path.rpartition("/")[2]
    kind, directory, id = _parts(name)
    queue = unfolded(directory)
    if queue is None or links_of(path) < 2:
        return
    place = commit.layout.queue(queue)
    second = f"{place.ids if kind == 'job' else place.failed_ids}/{id}"
    commit.into(second, lambda: commit.disk.rename(path, second))


def queue_of_draft(name: str) -> str | None:
    """Return which queue a draft is for."""
    return unfolded(_parts(name)[1])


def _parts(name: str) -> tuple[str, str, str]:
    found = _DRAFT.fullmatch(name)
    return (found[1], found[2], found[3]) if found is not None else ("", "", "")


def _finish_doing(session: "Session") -> None:
    doing = session.doing
    folder, _, rest = doing.partition("/")
    writer, _, name = rest.partition("/")
    if folder == "writers" and _WRITER.fullmatch(writer) and _DRAFT.fullmatch(name):
        finish_draft(session.commit, session.commit.layout.absolute(doing))
    elif _SECOND.fullmatch(doing):
        session.forget(session.commit.layout.absolute(doing))


def _take_steps(session: "Session") -> None:
    """Take the steps of every intent that names this queue: who wrote it had the lock that is ours now.

    Two that find the same intent would step on each other, so they take turns.
    """
    commit = session.commit
    if not names_in(commit.layout.intents):
        return
    with commit.alone():
        for name in names_in(commit.layout.intents):
            path = f"{commit.layout.intents}/{name}"
            try:
                intent = decoded(read_file(path))
            except FileNotFoundError:  # its writer was only about to remove it
                continue
            if intent is None or session.place.name not in intent.queues:
                continue
            for step in intent.steps:
                commit.take(step, again=True)
            commit.finished(path)
            commit.last()


def _last_seq(session: "Session") -> int:
    """Return the last place in the queue that has a job."""
    ready = session.place.ready
    for segment in sorted(names_in(ready), reverse=True):
        if names := names_in(f"{ready}/{segment}"):
            return max(entry_of(name).seq for name in names)
    return 0

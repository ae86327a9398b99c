"""The lock files that one thread has open."""

from collections import OrderedDict
from collections.abc import Callable

from aqueue.backends.file.directory import Directory
from aqueue.backends.file.disk import unless_gone
from aqueue.backends.file.layout import QueuePlace
from aqueue.backends.file.state import Counters, StateFile

_OPEN_AT_ONCE = 64


class Locks:
    """State files by queue, the last used ones kept open; `is_hopeless` ends the wait for a lock."""

    def __init__(self, directory: Directory, is_hopeless: Callable[[], bool] = lambda: False) -> None:
        self._directory = directory
        self.is_hopeless = is_hopeless
        self._files: OrderedDict[str, StateFile] = OrderedDict()

    def locked(self, place: QueuePlace) -> StateFile:
        """Return the queue's state file, locked; raises `FileNotFoundError` where the queue has none yet."""
        state = self._file(place)
        state.lock(self.is_hopeless)
        return state

    def counters(self, place: QueuePlace) -> Counters | None:
        """Return what the queue's file tells everybody; None for a queue that nobody has used."""
        state = self._files.get(place.name)
        if state is None:
            if not unless_gone(lambda: self._file(place)):
                return None
            state = self._files[place.name]
        return state.counters()

    def trim(self) -> None:
        """Close what was not used lately; closing a file unlocks it, so not while anything is locked."""
        while len(self._files) > _OPEN_AT_ONCE:
            self._files.popitem(last=False)[1].close()

    def close(self) -> None:
        """Close what is open."""
        while self._files:
            self._files.popitem()[1].close()

    def _file(self, place: QueuePlace) -> StateFile:
        state = self._files.get(place.name)
        if state is not None:
            self._files.move_to_end(place.name)
            return state
        state = self._files[place.name] = StateFile(place.state, self._directory.disk)
        return state

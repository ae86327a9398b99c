"""The notes of the memory store: plain and synchronous, each forgotten once its time is over."""

import heapq

from aqueue.port import Note, NoteKey, Noting

_FOREVER = float("inf")
_SPARE = 64
_FORGOTTEN_AT_ONCE = 16


class NoteShelf:
    """What each note says, and in which order notes end."""

    def __init__(self) -> None:
        self._notes: dict[NoteKey, tuple[bytes, str, float]] = {}
        self._endings: list[tuple[float, NoteKey]] = []

    def __len__(self) -> int:
        return len(self._notes)

    def read(self, at: NoteKey, now: float) -> Note:
        """Return what the note says at this time."""
        value, token, until = self._notes.get(at, (None, "", _FOREVER))
        return Note(value, token, now) if until > now else Note(None, "", now)

    def write(self, noting: Noting, now: float) -> bool:
        """Write the note if it still is what the writer read; False if not."""
        self._forget_until(now)
        if self.read(noting.at, now).token != noting.expected:
            return False
        if noting.value is None:
            self._notes.pop(noting.at, None)
            return True
        until = _FOREVER if noting.seconds is None else now + noting.seconds
        self._notes[noting.at] = (noting.value, noting.token, until)
        if until < _FOREVER:
            heapq.heappush(self._endings, (until, noting.at))
        return True

    def _forget_until(self, now: float) -> None:
        for _ in range(_FORGOTTEN_AT_ONCE):
            if not self._endings or self._endings[0][0] > now:
                break
            until, at = heapq.heappop(self._endings)
            if at in self._notes and self._notes[at][2] == until:  # it was not written anew since
                del self._notes[at]
        if len(self._endings) > _SPARE + 4 * len(self._notes):
            self._endings = [(until, at) for at, (_, _, until) in self._notes.items() if until < _FOREVER]
            heapq.heapify(self._endings)

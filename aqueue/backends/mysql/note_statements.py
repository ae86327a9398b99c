"""The statements on notes, as data.

A write first makes sure that its notes have rows, in the order of their keys, which locks those rows; so two
writes can't deadlock over them, and of two that expect no note the second finds the first one's. A note whose
time is over counts as none, and such is the row that a write makes to have one to lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from aqueue.backends.mysql.literals import NOW, binary, listed, microseconds, name
from aqueue.backends.mysql.schema import Names
from aqueue.port import NoteKey, Noting


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteStatements:
    """The statements on notes: the table's name and the clock are filled in once, the rest for each call."""

    clock: str = "SELECT {now}"
    read: str = """
        SELECT queue, name, value, token FROM {notes} FORCE INDEX (PRIMARY)
        WHERE ({these}) AND (until IS NULL OR until > {now})"""
    lock: str = """
        INSERT INTO {notes} (queue, name, value, token, until) VALUES {rows}
        ON DUPLICATE KEY UPDATE token = token"""
    locked_row: str = "({queue}, {name}, '', '', 0)"
    locked: str = """
        SELECT queue, name, IF(until IS NULL OR until > {now}, token, '') FROM {notes} FORCE INDEX (PRIMARY)
        WHERE {these} FOR UPDATE"""
    write: str = """
        UPDATE {notes} FORCE INDEX (PRIMARY) SET value = {value}, token = {token}, until = {until}
        WHERE {this}"""
    until: str = "{now} + {lasts}"
    over: str = """
        SELECT queue, name FROM {notes} FORCE INDEX (ending)
        WHERE until <= {now} ORDER BY until LIMIT {limit} FOR UPDATE SKIP LOCKED"""
    forget: str = "DELETE n FROM {notes} AS n FORCE INDEX (PRIMARY) WHERE {these}"

    def locking(self, batch: Sequence[NoteKey]) -> list[str]:
        """Return what locks the notes' rows, and then shows their tokens."""
        rows = listed(self.locked_row.format(queue=name(at.queue), name=name(at.key)) for at in sorted(batch))
        return [self.lock.format(rows=rows), self.locked.format(these=these(batch))]

    def writing(self, noting: Noting) -> str:
        """Return what writes the note, whose row is locked."""
        this = these([noting.at])
        if noting.value is None:
            return self.forget.format(these=this)
        lasts = noting.seconds
        return self.write.format(
            value=binary(noting.value),
            token=name(noting.token),
            until="NULL" if lasts is None else self.until.format(lasts=microseconds(lasts)),
            this=this,
        )


def these(keys: Sequence[NoteKey]) -> str:
    """Return the condition that finds the notes, which every optimizer looks up one by one."""
    return " OR ".join(f"(queue = {name(at.queue)} AND name = {name(at.key)})" for at in keys)


def note_statements(names: Names) -> NoteStatements:
    """Return the statements with the names of the tables in their places."""
    templates = {each.name: str(each.default) for each in fields(NoteStatements)}
    return NoteStatements(**{key: names.fill(template, now=NOW) for key, template in templates.items()})

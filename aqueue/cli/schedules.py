"""`aqueue schedules …`: where schedules stand, and pausing, resuming and triggering them (CRON-1)."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import anyio
import click

from aqueue.cli.connecting import as_json
from aqueue.cli.output import json_time, print_json, print_table
from aqueue.cli.target import load_target, scheduler_from
from aqueue.scheduler import Scheduler

T = TypeVar("T")


@click.group()
def schedules() -> None:
    """Say where schedules stand, and pause, resume or trigger them.

    TARGET, module:attribute, names or makes an aqueue.Scheduler, or a Worker that has one.
    """


@schedules.command(name="list")
@click.argument("target", metavar="TARGET")
@as_json
def list_(*, target: str, as_json: bool) -> None:
    """List the schedules: when each is due next, when it fired last, and whether it is paused."""
    found = _run_on(target, lambda scheduler: scheduler.list())
    if as_json:
        rows = [
            {
                **each._asdict(),
                "next_due": json_time(each.next_due),
                "last_fired": json_time(each.last_fired),
            }
            for each in found
        ]
        print_json(rows)
        return
    print_table(
        ("NAME", "EXPRESSION", "ZONE", "QUEUE", "NEXT", "LAST", "PAUSED"),
        [
            (
                each.name,
                each.expression,
                each.tz,
                each.queue,
                json_time(each.next_due) or "-",
                json_time(each.last_fired) or "-",
                "yes" if each.paused else "no",
            )
            for each in found
        ],
    )


@schedules.command()
@click.argument("target", metavar="TARGET")
@click.argument("name", metavar="NAME")
@as_json
def pause(*, target: str, name: str, as_json: bool) -> None:
    """Have the schedule NAME fire nothing, in any process, until it is resumed."""
    _run_on(target, lambda scheduler: scheduler.pause(name))
    _tell({"schedule": name, "paused": True}, f"{name} is paused", as_json=as_json)


@schedules.command()
@click.argument("target", metavar="TARGET")
@click.argument("name", metavar="NAME")
@as_json
def resume(*, target: str, name: str, as_json: bool) -> None:
    """Have the schedule NAME fire again from now on; what passed meanwhile was not missed."""
    _run_on(target, lambda scheduler: scheduler.resume(name))
    _tell({"schedule": name, "paused": False}, f"{name} fires again", as_json=as_json)


@schedules.command()
@click.argument("target", metavar="TARGET")
@click.argument("name", metavar="NAME")
@as_json
def trigger(*, target: str, name: str, as_json: bool) -> None:
    """Push one more job of the schedule NAME now, and print its id."""
    id = _run_on(target, lambda scheduler: scheduler.trigger(name))
    _tell({"schedule": name, "id": id}, id, as_json=as_json)


@schedules.command()
@click.argument("target", metavar="TARGET")
@click.argument("name", metavar="NAME")
@click.option("-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many.")
@as_json
def preview(*, target: str, name: str, count: int, as_json: bool) -> None:
    """Print when the schedule NAME is due next, in its own zone."""
    times = [json_time(due) for due in _run_on(target, lambda scheduler: scheduler.preview(name, count))]
    _tell({"schedule": name, "due": times}, "\n".join(map(str, times)), as_json=as_json)


def _run_on(target: str, action: Callable[[Scheduler], Awaitable[T]]) -> T:
    """Find the scheduler, open its queues, do it, close them."""
    found = load_target(target)

    async def run() -> T:
        async with AsyncExitStack() as stack:
            scheduler = await scheduler_from(found, target, stack)
            for queue in {scheduler.queue, scheduler.store}:
                await queue.open()
                stack.push_async_callback(queue.aclose)
            return await action(scheduler)

    return anyio.run(run)


def _tell(fact: dict[str, object], words: str, *, as_json: bool) -> None:
    if as_json:
        print_json(fact)
    else:
        click.echo(words)

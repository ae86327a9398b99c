"""What a type checker says about topics and events. Each `type: ignore` proves an error; never imported.

Checked wherever mypy runs over `tests`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Protocol, assert_type

from aqueue import (
    AppScope,
    Backoff,
    Depends,
    Dispatcher,
    Handlers,
    InvokeListener,
    PublishManyError,
    Queue,
    Subscriptions,
    Topic,
    Worker,
    job,
)


class Mailer:
    pass


def get_mailer() -> Mailer:
    return Mailer()


@job
class OrderPlaced:
    order: int


class HasOrder(Protocol):
    order: int


@dataclass(frozen=True)
class Paid:
    order: int


# Subscriptions go on from one to the next, and are read as tuples.
subscriptions = Subscriptions().subscribe("orders", "orders-email").subscribe("orders", "orders-stock")
assert_type(subscriptions, Subscriptions)
assert_type(subscriptions.queues("orders"), tuple[str, ...])
assert_type(subscriptions.topics, Mapping[str, tuple[str, ...]])
subscriptions.topics["orders"] = ()  # type: ignore[index]  # a view
subscriptions.subscribe("orders", 5)  # type: ignore[arg-type]  # a name


async def publishing(queue: Queue) -> None:
    topic = Topic(queue, subscriptions)
    await topic.publish(OrderPlaced(7), "orders", delay=timedelta(seconds=5), max_attempts=3)
    id = await topic.publish(OrderPlaced(7), "orders")  # type: ignore[func-returns-value]  # no ids are told
    await topic.publish(OrderPlaced(7), "orders", queue="x")  # type: ignore[call-arg]  # its subscribers'
    assert_type(await queue.push_copies(OrderPlaced(7), ["a", "b"]), list[str])
    assert_type(await queue.push_many([OrderPlaced(7)], together=True), list[str])
    del id


def outcomes(error: PublishManyError) -> None:
    assert_type(error.queues, dict[str, str | Exception])
    assert_type(error.outcomes, tuple[str | Exception, ...])


# A listener keeps its own type, decorated or given.
dispatcher = Dispatcher(scope=AppScope(values={Mailer: Mailer()}))


@dispatcher.listen(Paid)
async def note(event: Paid, mailer: Annotated[Mailer, Depends(get_mailer)]) -> int:
    return event.order


@dispatcher.listen(HasOrder, queued=True, queue="mails", name="mails.receipt", backoff=Backoff.fixed(5))
class SendReceipt:
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer

    async def handle(self, event: HasOrder) -> None: ...


def plain(event: Paid) -> bool:
    return True


assert_type(SendReceipt(Mailer()).mailer, Mailer)
assert_type(dispatcher.listen(Paid, SendReceipt, queued=True), type[SendReceipt])
assert_type(dispatcher.listen(Paid, plain)(Paid(1)), bool)
dispatcher.listen(Paid, "not callable")  # type: ignore[call-overload]  # a function or a class
dispatcher.listen(Paid(1))  # type: ignore[call-overload]  # a class of event
dispatcher.listen(Paid, queued="yes")  # type: ignore[call-overload]  # a bool
dispatcher.listen(Paid, plain, retries=3)  # type: ignore[call-overload]  # no such option


async def dispatching(queue: Queue) -> None:
    assert_type(await note(Paid(1), Mailer()), int)
    await Dispatcher(queue).dispatch(Paid(1), connection=object())
    await Dispatcher(queue).dispatch()  # type: ignore[call-arg]  # what happened?


assert_type(dispatcher.jobs, tuple[type[InvokeListener], ...])
handlers = Handlers()
handlers.add(*dispatcher.jobs)


def working(queue: Queue) -> None:
    Worker(queue, [OrderPlaced, *dispatcher.jobs])

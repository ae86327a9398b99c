"""A shop whose orders and jobs are committed together or not at all: FastAPI, SQLAlchemy, and one database.

    export AQUEUE_URL=postgresql+asyncpg://app:secret@localhost/shop
    uvicorn examples.orders_app:app
    aqueue worker examples.orders_app:worker

Then

    curl -X PUT 'localhost:8000/stock/tea?left=2'
    curl localhost:8000/orders --json '{"item": "tea"}'
    curl localhost:8000/baskets --json '{"items": ["tea", "ice"]}'
    curl localhost:8000/orders/1

The second request answers 409, since there is no ice, and leaves neither orders nor jobs. The queue's tables
are in the application's own database; mysql+asyncmy:// names a MySQL or MariaDB in the same way.
"""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import String, update
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from aqueue import Backoff, Delivery, Worker, connect, job
from aqueue.integrations.fastapi import QueueDep, queue_lifespan

URL = os.environ.get("AQUEUE_URL", "postgresql+asyncpg://localhost/shop")

log = logging.getLogger("orders")

# One URL for both; neither opens anything yet.
queue = connect(URL)
engine = create_async_engine(URL)


class Base(DeclarativeBase): ...


class Stock(Base):
    __tablename__ = "stock"

    item: Mapped[str] = mapped_column(String(80), primary_key=True)
    left: Mapped[int]


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(String(80))
    shipped_by: Mapped[str | None] = mapped_column(String(32), default=None)


async def get_session() -> AsyncIterator[AsyncSession]:
    """One transaction for one request or one job: committed at its end, or rolled back if that raised."""
    async with AsyncSession(engine) as session, session.begin():
        yield session


# "function": the commit comes before the answer to a request, and before a job is acknowledged.
Session = Annotated[AsyncSession, Depends(get_session, scope="function")]


@job(name="orders.ship", queue="orders", max_attempts=5, backoff=Backoff.exponential(1, 60))
class ShipOrder:
    order: int

    async def handle(self, delivery: Delivery, session: Session) -> None:
        order = await session.get_one(Order, self.order, with_for_update=True)
        if order.shipped_by is not None:  # a worker that dies before its ack has the job run again
            log.info("order %d was shipped before", order.id)
            return
        order.shipped_by = delivery.id
        log.info("order %d is shipped", order.id)


class Wish(BaseModel):
    item: str = Field(max_length=80)


class Basket(BaseModel):
    items: list[Annotated[str, Field(max_length=80)]] = Field(max_length=100)


class Status(BaseModel):
    item: str
    shipped_by: str | None


@asynccontextmanager
async def database(app: FastAPI) -> AsyncIterator[None]:
    """Make the tables at the start; a real service has its deploy do that, with `aqueue migrate`."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await queue.migrate()
    try:
        yield
    finally:
        await engine.dispose()


app = FastAPI(title="orders", lifespan=queue_lifespan(queue, lifespan=database))


@app.put("/stock/{item}", status_code=204)
async def fill_up(item: str, left: int, session: Session) -> None:
    await session.merge(Stock(item=item, left=left))


@app.post("/orders", status_code=202)
async def place_order(wish: Wish, session: Session, queue: QueueDep) -> int:
    order = Order(item=wish.item)
    session.add(order)
    await session.flush()  # gives the order its number
    await queue.push(ShipOrder(order.id), connection=session)
    await take_from_stock(session, wish.item)
    return order.id


@app.post("/baskets", status_code=202)
async def place_orders(basket: Basket, session: Session, queue: QueueDep) -> list[int]:
    orders = [Order(item=item) for item in basket.items]
    session.add_all(orders)
    await session.flush()
    await queue.push_many([ShipOrder(order.id) for order in orders], connection=session)
    for item in sorted(basket.items):  # in one order always, so that no two baskets wait for each other
        await take_from_stock(session, item)
    return [order.id for order in orders]


@app.get("/orders/{id}")
async def look_up(id: int, session: Session) -> Status:
    order = await session.get(Order, id)
    if order is None:
        raise HTTPException(404)
    return Status(item=order.item, shipped_by=order.shipped_by)


async def take_from_stock(session: AsyncSession, item: str) -> None:
    """Take one, or refuse, which undoes all of the request. Last, since it locks what everybody wants."""
    one_less = update(Stock).where(Stock.item == item, Stock.left > 0).values(left=Stock.left - 1)
    connection = await session.connection()
    if (await connection.execute(one_less)).rowcount == 0:
        raise HTTPException(409, f"{item} is sold out")


@asynccontextmanager
async def worker() -> AsyncIterator[Worker]:
    try:
        yield Worker(queue, [ShipOrder], queues=["orders"], concurrency=10, grace=10)
    finally:
        await engine.dispose()

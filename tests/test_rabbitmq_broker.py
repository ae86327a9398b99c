"""A broker with users, virtual hosts, policies and TLS, and what it refuses."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.processes import free_port, fresh_directory
from servers.rabbitmq import RabbitMQServer, unreachable
from servers.reach import check_reachable

from aqueue import ConnectionFailed, PublishNotConfirmed, PushManyError, StoreRefused, connect, job


@job(name="rabbitmq.note")
class Note:
    text: str


def certificate() -> tuple[Path, Path]:
    """Make a certificate of its own for 127.0.0.1, and its key."""
    place = fresh_directory("tls")
    made, key = place / "certificate.pem", place / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=here",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(made)],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key


class Guarded:
    """A broker that also speaks TLS, with a second virtual host and a user who may do little."""

    def __init__(self) -> None:
        self.certificate, key = certificate()
        self.tls_port = free_port()
        self.server = RabbitMQServer(
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
            f"ssl_options.cacertfile = {self.certificate}",
            f"ssl_options.certfile = {self.certificate}",
            f"ssl_options.keyfile = {key}",
            "ssl_options.verify = verify_none",
        ).start()
        for command in (
            ("add_vhost", "jobs"),
            ("add_user", "ann", "s3cret/p@ss"),
            ("set_permissions", "-p", "jobs", "ann", ".*", ".*", ".*"),
            ("add_user", "bob", "bob"),
            ("set_permissions", "-p", "jobs", "bob", "", ".*", ".*"),
            (
                "set_policy",
                "-p",
                "jobs",
                "small",
                "small$",
                '{"max-length": 2, "overflow": "reject-publish"}',
            ),
        ):
            self.server.control(*command)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    check_reachable("rabbitmq", unreachable())
    guarded = Guarded()
    yield guarded
    guarded.server.stop()


def url(
    guarded: Guarded, user: str = "ann:s3cret%2Fp%40ss", *, vhost: str = "jobs", options: str = ""
) -> str:
    return f"amqp://{user}@127.0.0.1:{guarded.server.port}/{vhost}{options}"


@pytest.mark.rule("FACE-1")
async def test_a_user_works_in_a_virtual_host(guarded: Guarded) -> None:
    async with connect(url(guarded)) as queue, connect(guarded.server.url()) as elsewhere:
        await queue.push(Note("x"))

        assert await queue.size() == 1
        assert await elsewhere.size() == 0
        assert await queue.clear("default") == 1


@pytest.mark.rule("FACE-1", "PUSH-4")
@pytest.mark.parametrize(
    ("user", "vhost"),
    [("ann:wrong-pass", "jobs"), ("nobody:s3cret", "jobs"), ("ann:s3cret%2Fp%40ss", "other")],
)
async def test_who_may_not_enter_is_told_without_the_secret(guarded: Guarded, user: str, vhost: str) -> None:
    queue = connect(url(guarded, user, vhost=vhost))

    with pytest.raises(ConnectionFailed, match="the broker refused the connection") as caught:
        await queue.open()

    for secret in ("wrong-pass", "s3cret"):
        assert secret not in str(caught.value)


@pytest.mark.rule("PUSH-4")
async def test_who_may_not_declare_is_told_what_is_missing(guarded: Guarded) -> None:
    async with connect(url(guarded, "bob:bob")) as queue:
        with pytest.raises(StoreRefused, match="permission"):
            await queue.push(Note("x"))
        with pytest.raises(StoreRefused, match="permission"):
            await queue.pop_now(1)


@pytest.mark.rule("PUSH-5", "PUSH-7")
@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_a_job_that_the_broker_has_no_room_for_is_not_confirmed(guarded: Guarded, kind: str) -> None:
    async with connect(url(guarded, options=f"?queue_type={kind}&prefix={kind}")) as queue:
        outcomes: list[str | Exception] = []
        for number in range(6):
            try:
                outcomes.append(await queue.push(Note(str(number)), queue="small"))
            except PublishNotConfirmed as error:
                outcomes.append(error)
        assert isinstance(outcomes[0], str)
        refused = outcomes[-1]
        assert isinstance(refused, PublishNotConfirmed)
        assert refused.job_id is not None
        assert await queue.push(Note("room"), queue="large")

        with pytest.raises(PushManyError) as caught:
            await queue.push_many([Note(str(number)) for number in range(6)], queue="small")
        assert {type(outcome) for outcome in caught.value.outcomes} == {PublishNotConfirmed}


@pytest.mark.rule("FACE-1")
async def test_it_is_reached_over_tls_by_who_trusts_it(guarded: Guarded) -> None:
    secure = f"amqps://127.0.0.1:{guarded.tls_port}/"
    for options in (f"?tls_ca={guarded.certificate}", "?tls_verify=false"):
        async with connect(secure + options) as queue:
            await queue.push(Note("x" * 300_000))
            delivery = await queue.pop(timeout=10)
            assert delivery is not None
            await queue.ack(delivery)

    with pytest.raises(ConnectionFailed, match="certificate"):
        await connect(secure).open()
    with pytest.raises(ConnectionFailed):
        await connect(f"amqps://127.0.0.1:{guarded.server.port}/").open()
    with pytest.raises(ConnectionFailed):
        await connect(f"amqp://127.0.0.1:{guarded.tls_port}/").open()


@pytest.mark.rule("FACE-1")
async def test_the_first_broker_of_a_list_that_answers_is_taken(guarded: Guarded) -> None:
    async with connect(f"amqp://127.0.0.1:1,127.0.0.1:{guarded.server.port}/?prefix=list") as queue:
        await queue.push(Note("x"))

        assert await queue.size() == 1

"""What a type checker says about `@job`. Each `type: ignore` proves an error: an unused one fails the check.

Checked by `mypy --strict tests/typing`, run by `tests/test_jobs_typing.py`; never imported.
"""

from dataclasses import field
from typing import Any, assert_type

from aqueue.jobs import JSON, FunctionJob, JobType, Sensitive, job, job_type


class Store:
    pass


STORE: Any = object()


@job
class SendWelcome:
    email: str
    copies: int = 1
    tags: list[str] = field(default_factory=list)

    async def handle(self) -> None:
        assert_type(self.email, str)


@job(name="emails.goodbye", queue="emails", max_attempts=5, timeout=30, aliases=["emails.bye"])
class SendGoodbye:
    email: str
    token: Sensitive[str] = ""
    extra: JSON = None
    secret: Sensitive[JSON] = None


@job
class SendLoudGoodbye(SendGoodbye):
    volume: int = 11


@job
async def resize(image_id: int, width: int = 640, *, store: Store = STORE) -> str:
    return ""


@job(name="images.crop")
def crop(image_id: int) -> bool:
    return True


# A job class's constructor is checked, and the class stays what it was.
assert_type(SendWelcome("a@b.c", copies=2), SendWelcome)
assert_type(SendGoodbye(email="a@b.c").email, str)
assert_type(SendGoodbye("a@b.c", token="t").token, str)
SendLoudGoodbye("a@b.c", "t", None, {"a": [1]}, 5)
SendWelcome()  # type: ignore[call-arg]  # email is missing
SendWelcome(5)  # type: ignore[arg-type]  # email is a str
SendWelcome("a@b.c", colour="red")  # type: ignore[call-arg]  # no such field
SendGoodbye()  # type: ignore[call-arg]  # also with options
SendGoodbye("a@b.c", token=5)  # type: ignore[arg-type]  # Sensitive[str] is a str
SendLoudGoodbye("a@b.c", volume="x")  # type: ignore[arg-type]  # also when inherited

# Jobs are frozen.
welcome = SendWelcome("a@b.c")
welcome.email = "x"  # type: ignore[misc]  # read-only
goodbye = SendGoodbye("a@b.c")
goodbye.email = "x"  # type: ignore[misc]  # read-only, also with options

# JSON is JSON at any depth.
SendGoodbye("a@b.c", extra={"a": [1, 2.5, None, {"b": True}]})
SendGoodbye("a@b.c", extra=b"x")  # type: ignore[arg-type]  # bytes are not
SendGoodbye("a@b.c", extra=[{"a": {1, 2}}])  # type: ignore[dict-item]  # nor is a set inside

# A function job has the function's parameters, both to make a job and to call it.
assert_type(resize.job(42, width=800), object)
accepted: FunctionJob[..., bool] = crop
assert_type(crop(1), bool)
resize.job("x")  # type: ignore[arg-type]  # image_id is an int
resize.job()  # type: ignore[call-arg]  # image_id is missing
resize.job(42, depth=1)  # type: ignore[call-arg]  # no such parameter
crop("x")  # type: ignore[arg-type]  # the same when called
crop.job("x")  # type: ignore[arg-type]  # also with options

# What isn't an option is not accepted, and options are checked.
job(queue=5)  # type: ignore[call-overload]  # a name
job(retries=5)  # type: ignore[call-overload]  # no such option


async def call_it() -> None:
    assert_type(await resize(42, store=Store()), str)
    await resize("x")  # type: ignore[arg-type]  # image_id is an int


assert_type(job_type(SendWelcome), JobType)
assert_type(job_type(resize.job(42)).restore(b"{}"), object)

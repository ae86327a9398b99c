"""The SQS backend: `sqs://region`, and `sqs://host:port?region=…` for servers that speak as SQS does."""

from aqueue.backends.sqs.backend import SQSBackend
from aqueue.backends.sqs.settings import settings_from
from aqueue.port import StoreOptions
from aqueue.urls import StoreURL

__all__ = ["SQSBackend", "from_url"]


def from_url(url: StoreURL, options: StoreOptions) -> SQSBackend:
    """Return a backend on the queues of one account in one region; nothing is opened.

    Options: `region` of a server that the URL names by its host, `tls` for such a server (`false`), `create`
    queues that are missing (`false`), `prefix` of their names there, `connections` that calls share (32).
    """
    return SQSBackend(settings_from(url), lease=options.lease)

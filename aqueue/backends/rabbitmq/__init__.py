"""The RabbitMQ backend: `amqp://` and `amqps://`."""

from aqueue.backends.rabbitmq.backend import RabbitMQBackend
from aqueue.backends.rabbitmq.settings import settings_from
from aqueue.port import StoreOptions
from aqueue.urls import StoreURL

__all__ = ["RabbitMQBackend", "from_url"]


def from_url(url: StoreURL, options: StoreOptions) -> RabbitMQBackend:
    """Return a backend on the broker, or the cluster, that the URL names; nothing is opened.

    The path is the virtual host. Options: `queue_type` (`quorum` or `classic`), `prefetch` (500), `prefix` of
    every name, `heartbeat` (20 s), `confirm_timeout` (5 s), and for `amqps://` `tls_ca`, `tls_cert`,
    `tls_key`, `tls_verify`.
    """
    return RabbitMQBackend(settings_from(url), clock=options.clock)

"""RabbitMQ: one script for each contender, run in an environment of its own, and the broker they meet on."""

"""One script for each contender. Each runs in an environment of its own and prints one JSON object."""

"""The stores. Each module translates the port's verbs into one store's primitives, and nothing else."""

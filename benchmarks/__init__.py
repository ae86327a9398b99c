"""What aqueue costs, beside its peers and beside the bare driver."""

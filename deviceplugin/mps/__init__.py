"""MPS control daemons: asks them, starts them, watches them, stops them."""

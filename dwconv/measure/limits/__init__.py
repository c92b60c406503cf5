"""How fast this CPU can copy and multiply."""

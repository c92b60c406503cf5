"""``bench spaces``: hundreds of configurations of every pass, timed once, and searches replayed on them."""

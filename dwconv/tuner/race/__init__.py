"""The race: a few known configurations of every untuned workload, in seconds."""

"""Training on data: what images there are, batches of each rank, a step in one form or the other, epochs."""

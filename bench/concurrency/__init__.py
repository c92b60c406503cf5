"""``bench concurrency``: training steps run op by op, in every way there is to choose."""

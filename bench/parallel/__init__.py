"""``bench parallel``: training on several processes."""

"""``bench parallel`` and ``bench communication``: training on several processes."""

"""Which configurations no family offers, whatever it computes: they cannot be fast."""

from __future__ import annotations

LEAST_THREADS = 32
"""Threads of a block: a warp."""
MOST_PADDED = 1.3
"""Results computed over results wanted."""
MOST_IMAGES = 64
"""Shares of the images, in a weight gradient."""
MOST_WORKSPACE_BYTES = 64 << 20
"""Partial sums of a weight gradient."""

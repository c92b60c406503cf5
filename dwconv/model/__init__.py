"""Models: their depthwise layers found, converted, listed, and reverted."""

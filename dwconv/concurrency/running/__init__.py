"""Runs a graph as a schedule says: on persistent threads, or on streams of a GPU."""

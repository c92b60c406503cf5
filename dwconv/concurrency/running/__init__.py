"""Runs a graph as a schedule says: on threads that stay, or on streams of a GPU."""

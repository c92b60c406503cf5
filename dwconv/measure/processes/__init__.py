"""Processes that may die: candidates are built and measured in them."""

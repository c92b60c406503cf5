"""The search: which candidate to try next, and when to stop."""

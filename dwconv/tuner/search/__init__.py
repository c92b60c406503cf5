"""The search of one workload: which candidate to try next, and when to stop."""

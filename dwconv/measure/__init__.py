"""Build, verify and time candidates in processes that may die."""

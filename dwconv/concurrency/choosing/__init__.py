"""Which schedules are tried, steps in turns with plain execution, the choice, and where it is kept."""

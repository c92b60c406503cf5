"""From tasks and their times to schedules, computed: the four strategies, memory, and machines that are not here."""

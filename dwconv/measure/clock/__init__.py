"""How long a call takes, and what other work took meanwhile."""

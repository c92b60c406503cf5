"""Knowledge of candidates: the record, the log on disk, and the database that answers questions."""

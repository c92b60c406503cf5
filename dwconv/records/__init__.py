"""What was measured: the record, the log on disk, and the database over many logs."""

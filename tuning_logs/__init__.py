"""Measured tuning records that ship with the package, one JSONL file a device."""

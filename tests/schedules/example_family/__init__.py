"""A family of templates to copy: one folder, found by the registry where it is put into ``schedules/cpu``."""

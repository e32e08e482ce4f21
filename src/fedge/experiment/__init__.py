"""Keys become a job here: they make a configuration, and a job is built from it."""

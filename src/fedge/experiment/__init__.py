"""From keys to a job: the configuration, and what is built from it."""

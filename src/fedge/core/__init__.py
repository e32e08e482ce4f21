"""The mathematics is here: it is pure, with no I/O, engine or algorithm in sight."""

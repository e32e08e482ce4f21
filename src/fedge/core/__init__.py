"""The mathematics: pure, without I/O, engine or algorithm in sight."""

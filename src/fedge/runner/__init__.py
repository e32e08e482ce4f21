"""One run: its configuration, its loop, what it leaves on disk."""

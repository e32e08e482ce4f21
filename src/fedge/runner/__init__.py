"""One run is made here: its loop, what it measures, what it writes down, how it is resumed."""

"""Each idea of what may happen to an update on its way has one file; `core/update.py` says of which kinds they are."""

"""Reckon what a run would cost on a real network: bytes per link (`ledger`) and simulated seconds (`clock`)."""

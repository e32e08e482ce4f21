"""Convergence bounds as functions: as printed in the papers, and fixed where a proof does not hold."""

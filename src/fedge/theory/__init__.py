"""These functions are convergence bounds: as printed in the papers, and fixed where a proof does not hold."""

"""Many runs, one answer: comparisons, sweeps, papers' figures."""

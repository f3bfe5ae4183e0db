"""The grid over which the paper tunes, 3-fold."""

PAPER_LAMBDAS = (0.1, 0.08, 0.05, 0.03, 0.01, 0.008, 0.005, 0.003, 0.001, 5e-4, 1e-4)
PAPER_KAPPAS = (0.1, 0.01, 0.001, 1e-4, 1e-5)

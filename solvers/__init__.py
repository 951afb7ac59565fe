"""Optimisation over atoms: Frank-Wolfe, matching pursuit, coordinate descent and cones."""

"""Sensitivities, budgets and privacy proofs, with OpenDP's noise; no JAX."""
